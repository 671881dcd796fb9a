"""[task.attack]: simulated attackers, their share of the clients, and the kind of attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from fedmerit.config.sections import Count, Positive, Section
from fedmerit.core.attacks import (
    Attack,
    Backdoor,
    Coalition,
    FreeRider,
    Gauss,
    InnerProduct,
    LabelFlip,
    Liar,
    LittleIsEnough,
    Mimic,
    ScaledUpdate,
    SignFlip,
)
from fedmerit.core.facts import ATTRIBUTE, FACTS
from fedmerit.errors import UnknownName

Kind: TypeAlias = Literal[
    "sign-flip", "scale", "gauss", "label-flip", "alie", "ipm", "mimic", "backdoor", "free-rider", "liar"
]
KINDS: tuple[str, ...] = get_args(Kind)

STRONG: Mapping[str, Callable[[float], Attack]] = {
    "sign-flip": SignFlip,
    "scale": ScaledUpdate,
    "gauss": Gauss,
    "label-flip": LabelFlip,
    "alie": LittleIsEnough,
    "ipm": InnerProduct,
    "backdoor": Backdoor,
}
"""The kinds that have a strength."""
DEFAULT_STRENGTH: Mapping[str, float] = {
    name: attack.__dataclass_fields__["strength"].default  # type: ignore[attr-defined]
    for name, attack in STRONG.items()
}
OF_ROWS = ("label-flip", "backdoor")
"""Kinds that change training rows once, when they are loaded; their strength is the share of rows."""
CLAIMED = tuple(name for name, fact in FACTS.items() if fact.source == "client")


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
    target: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="the label that a backdoor assigns to rows with its trigger"
    )
    from_round: Count = Field(1, description="first round of the attack; the clients are honest before it")

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
            "strength": (self.strength is not None, tuple(STRONG)),
            "facts": (bool(self.facts), ("liar",)),
            "target": (self.target != 0, ("backdoor",)),
            "from_round": (self.from_round != 1, tuple(kind for kind in KINDS if kind not in OF_ROWS)),
        }
        for key, (given, kinds) in takers.items():
            if given and self.kind not in kinds:
                raise ValueError(f"kind {self.kind} does not use {key!r}; remove it, or use kind {', '.join(kinds)}")
        if self.kind == "liar" and not self.facts:
            raise ValueError("kind liar needs facts (got none), for example facts = { samples = 100 }")
        if self.kind in OF_ROWS and self.strength is not None and self.strength > 1:
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
    [Coalition(attack=ScaledUpdate(strength=10.0), share=0.4, from_round=1)]
    """
    return [Coalition(_make_attack(attack), attack.share, attack.from_round) for attack in attacks]


def _make_attack(config: AttackConfig) -> Attack:
    match config.kind:
        case "liar":
            return Liar(dict(config.facts))
        case "mimic":
            return Mimic()
        case "free-rider":
            return FreeRider()
    strength = DEFAULT_STRENGTH[config.kind] if config.strength is None else config.strength
    return Backdoor(strength, config.target) if config.kind == "backdoor" else STRONG[config.kind](strength)
