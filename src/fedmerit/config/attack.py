"""[task.attack]: simulated attackers, their share of the clients, and the kind of attack."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import BeforeValidator, Field, field_validator, model_validator

from fedmerit.config.sections import Count, Positive, Section
from fedmerit.core.attacks.adaptive import (
    AT_LOADING,
    OptimalALIE,
    OptimalIPM,
    PooledBackdoor,
    RuleAware,
    SplitTrigger,
)
from fedmerit.core.attacks.answers import FreeRider, Gauss, Liar, ScaledUpdate, SignFlip, Sleeper
from fedmerit.core.attacks.attack import Attack, Coalition
from fedmerit.core.attacks.coalitions import Eraser, InnerProduct, LittleIsEnough, Mimic, MinMax
from fedmerit.core.attacks.rows import Backdoor, LabelFlip
from fedmerit.core.facts import ATTRIBUTE, FACTS
from fedmerit.errors import ConfigError, UnknownName

Kind: TypeAlias = Literal[
    "sign-flip",
    "scale",
    "gauss",
    "label-flip",
    "alie",
    "ipm",
    "mimic",
    "backdoor",
    "free-rider",
    "liar",
    "sleeper",
    "eraser",
    "min-max",
    "opt-ipm",
    "opt-alie",
    "rule-aware",
    "pooled-backdoor",
    "split-trigger",
]
KINDS: Mapping[Kind, type[Any]] = {
    "sign-flip": SignFlip,
    "scale": ScaledUpdate,
    "gauss": Gauss,
    "label-flip": LabelFlip,
    "alie": LittleIsEnough,
    "ipm": InnerProduct,
    "mimic": Mimic,
    "backdoor": Backdoor,
    "free-rider": FreeRider,
    "liar": Liar,
    "sleeper": Sleeper,
    "eraser": Eraser,
    "min-max": MinMax,
    "opt-ipm": OptimalIPM,
    "opt-alie": OptimalALIE,
    "rule-aware": RuleAware,
    "pooled-backdoor": PooledBackdoor,
    "split-trigger": SplitTrigger,
}
"""The closed table of attacks."""
CLAIMED = tuple(name for name, fact in FACTS.items() if fact.source == "client")


def kinds_with(setting: str) -> tuple[Kind, ...]:
    """Kinds whose attack has a setting."""
    return tuple(kind for kind, attack in KINDS.items() if setting in attack.__dataclass_fields__)


class AttackConfig(Section):
    """[task.attack]: simulated attackers; repeat [[task.attack]] for several disjoint coalitions."""

    kind: Kind = Field(description="the kind of attack, see the kinds below")
    share: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        0.2, description="share of the clients that attack, drawn from the seed"
    )
    strength: Positive | None = Field(None, description="strength of the attack, see the kinds below; default: by kind")
    facts: dict[str, Positive] = Field(
        {}, description="facts that a liar exaggerates, each with a factor: `{ samples = 100 }`; default: none"
    )
    from_round: Count | None = Field(
        None, description="first round of the attack; the clients are honest before it; default: 1, for sleepers 20"
    )
    draw: Literal["natural", "fixed"] = Field(
        "natural",
        description="attackers in a round: as clients are drawn, or `fixed`: their share of the clients of every round",
    )

    @field_validator("facts")
    @classmethod
    def _are_claims(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in CLAIMED and not name.startswith(ATTRIBUTE):
                raise ValueError(str(UnknownName("fact that clients claim", name, [*CLAIMED, f"{ATTRIBUTE}NAME"])))
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse keys that the kind does not use."""
        takers = {
            "strength": (self.strength is not None, kinds_with("strength")),
            "facts": (bool(self.facts), ("liar",)),
            "from_round": (
                self.from_round is not None,
                tuple(kind for kind, one in KINDS.items() if one not in AT_LOADING),
            ),
        }
        for key, (given, kinds) in takers.items():
            if given and self.kind not in kinds:
                raise ValueError(f"kind {self.kind} does not use {key!r}; remove it, or use kind {', '.join(kinds)}")
        if self.kind == "liar" and not self.facts:
            raise ValueError("kind liar needs facts (got none), for example facts = { samples = 100 }")
        if hasattr(KINDS[self.kind], "wanted") and self.strength is not None and self.strength > 1:
            raise ValueError(
                f"strength of {self.kind} is a share of the attacker's rows, at most 1 (got {self.strength:g})"
            )
        return self


def _as_list(value: Any) -> Any:
    """Accept one table in place of a list of tables."""
    return (value,) if isinstance(value, Mapping | AttackConfig) else value


Attacks: TypeAlias = Annotated[tuple[AttackConfig, ...], BeforeValidator(_as_list)]


def make_coalitions(attacks: Sequence[AttackConfig]) -> list[Coalition]:
    """Make the coalitions of [task.attack].

    >>> make_coalitions([AttackConfig(kind="scale", share=0.4)])
    [Coalition(attack=ScaledUpdate(strength=10.0), share=0.4, from_round=1, fixed=False)]
    """
    if len({attack.draw for attack in attacks}) > 1:
        raise ConfigError(
            "task.attack: all coalitions need the same `draw` (got natural and fixed); use one of the two"
        )
    return [
        Coalition(
            _make_attack(attack),
            attack.share,
            attack.from_round or (20 if attack.kind == "sleeper" else 1),
            attack.draw == "fixed",
        )
        for attack in attacks
    ]


def _make_attack(config: AttackConfig) -> Attack:
    """Make the attack with the settings that it has; an unset strength is that of its class."""
    values = {"strength": config.strength, "factors": dict(config.facts)}
    used = {key: value for key, value in values.items() if value is not None and config.kind in kinds_with(key)}
    return cast(Attack, KINDS[config.kind](**used))
