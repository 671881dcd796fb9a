"""recipe.score: one section per operator, each beside the way to make the operator; a closed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from fedmerit.config.own import is_own, own_part
from fedmerit.config.sections import OWN, Section, name_of, one_of
from fedmerit.core.weights import scores
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.ranking import Rank, Ranked
from fedmerit.core.weights.scores import AS_MANY_AS_POSSIBLE, AT_LEAST_HALF, MOST, Quantifier, Score
from fedmerit.errors import ConfigError, UnknownName

QUANTIFIERS: Mapping[str, Quantifier] = {
    "most": MOST,
    "at-least-half": AT_LEAST_HALF,
    "as-many-as-possible": AS_MANY_AS_POSSIBLE,
}
Values: TypeAlias = tuple[float, ...]


class ScoreConfig(Section):
    """What every score takes: its name, and `rank` to put the clients' ranks in place of their scores."""

    name: str
    rank: Rank | None = None
    top: float | None = None
    about: ClassVar[str]

    @abstractmethod
    def operator(self, priority: Sequence[str]) -> Score:
        """The operator for criteria in this order."""

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], ScoreConfig], tuple[Mapping[str, Any]]]:
        """By name, for worker processes: sections of scores without options are made by a function."""
        return _by_name, ({"name": self.name} | self.model_dump(exclude_unset=True),)

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """The keys that this score takes besides those that all take."""
        return tuple(key for key in cls.model_fields if key not in ScoreConfig.model_fields)


def _by_name(values: Mapping[str, Any]) -> ScoreConfig:
    section = OwnScore if is_own(values["name"]) else SCORES[values["name"]]
    return section(**values)


def _plain(score: str) -> type[ScoreConfig]:
    """The section of a score without options."""

    class PlainScore(ScoreConfig):
        name: Literal[score] = score  # type: ignore[valid-type]
        about = scores.PLAIN[score][1]

        def operator(self, priority: Sequence[str]) -> Score:
            """As the table of the core has it."""
            return scores.PLAIN[score][0]()

    return PlainScore


class WeightedMeanScore(ScoreConfig):
    """score = { name = "weighted-mean", weights = [...] }, in priority order."""

    name: Literal["weighted-mean"] = "weighted-mean"
    about = "sum of v_i * c_i"
    weights: Values | None = None

    def operator(self, priority: Sequence[str]) -> Score:
        """The mean by these weights."""
        _check_length(self.name, "weights", self.weights, priority)
        return scores.WeightedMean(self.weights or ())


class OWAScore(ScoreConfig):
    """score = { name = "owa", ... }: `weights`, best value first, or a `quantifier`, with or without `importances`."""

    name: Literal["owa"] = "owa"
    about = "ordered weighted average"
    weights: Values | None = None
    quantifier: str | float | tuple[float, float] | None = None
    importances: Values | None = None

    def operator(self, priority: Sequence[str]) -> Score:
        """The average by places, or by a quantifier."""
        _check_length(self.name, "weights", self.weights, priority)
        _check_length(self.name, "importances", self.importances, priority)
        if (self.weights is None) == (self.quantifier is None):
            raise ConfigError("score owa takes either weights (best value first) or a quantifier")
        if self.weights is None:
            return scores.QuantifierOWA(_quantifier(self.quantifier), self.importances or ())
        if self.importances is not None:
            raise ConfigError("score owa takes importances with a quantifier, not with weights")
        return scores.OWA(self.weights)


class ChoquetScore(ScoreConfig):
    """score = { name = "choquet", ... }: a `capacity`, or `shapley` values with or without `interaction` of pairs."""

    name: Literal["choquet"] = "choquet"
    about = "Choquet integral"
    capacity: dict[str, float] | None = None
    shapley: Values | None = None
    interaction: dict[str, float] | None = None

    def operator(self, priority: Sequence[str]) -> Score:
        """The integral with respect to the capacity."""
        if (self.capacity is None) == (self.shapley is None):
            raise ConfigError("score choquet takes either a capacity, or shapley (with interaction)")
        if self.shapley is not None:
            return scores.Choquet(_two_additive(self.shapley, self.interaction or {}, priority))
        if self.interaction is not None:
            raise ConfigError("score choquet takes interaction with shapley, not with a capacity")
        return scores.Choquet(_capacity(self.capacity or {}, priority))


class OwnScore(ScoreConfig):
    """score = "module:attribute": a score of a user's own."""

    name: str = OWN
    about = "a score of your own"

    def operator(self, priority: Sequence[str]) -> Score:
        """What the user's module defines."""
        wanted = "a score: a function of the table, or a class of such values"
        score: Score = own_part("score", self.name, wanted, ["__call__"])
        return score


SCORES: Mapping[str, type[ScoreConfig]] = {
    **{name: _plain(name) for name in scores.PLAIN},
    **{name_of(section): section for section in (WeightedMeanScore, OWAScore, ChoquetScore)},
}

if TYPE_CHECKING:
    AnyScore: TypeAlias = ScoreConfig
else:
    AnyScore = one_of((*SCORES.values(), OwnScore), "prioritized")
    """A score by name, bare or as a table."""


def make_score(config: ScoreConfig, priority: Sequence[str]) -> Score:
    """The operator that a configuration names, checked against the number of criteria."""
    if config.top is not None and config.rank != "top":
        raise ConfigError(f'score.top goes with rank = "top"; got rank = {config.rank!r}')
    score = config.operator(priority)
    return score if config.rank is None else Ranked(score, config.rank, 0.5 if config.top is None else config.top)


def _check_length(score: str, key: str, values: Values | None, priority: Sequence[str]) -> None:
    if values is not None and len(values) != len(priority):
        raise ConfigError(f"score {score}: {key} has {len(values)} values for {len(priority)} criteria")


def _quantifier(value: str | float | tuple[float, float] | None) -> Quantifier:
    match value:
        case str() if value in QUANTIFIERS:
            return QUANTIFIERS[value]
        case int() | float():
            return scores.Power(float(value))
        case (a, b):
            return scores.Linear(a, b)
        case _:
            raise UnknownName("quantifier", str(value), [*QUANTIFIERS, "an exponent", "[a, b]"])


def _two_additive(shapley: Values, interaction: Mapping[str, float], priority: Sequence[str]) -> Capacity:
    if len(shapley) != len(priority):
        raise ConfigError(f"shapley has {len(shapley)} values for {len(priority)} criteria")
    pairs = {_coalition(key, priority): value for key, value in interaction.items()}
    if any(len(pair) != 2 for pair in pairs):
        raise ConfigError('interaction names pairs of criteria, for example {"DS+CB" = 0.1}')
    return Capacity.two_additive(shapley, {(i, j): value for (i, j), value in pairs.items()})


def _capacity(values: Mapping[str, float], priority: Sequence[str]) -> Capacity:
    everything = 2 ** len(priority) - 1
    given = {sum(1 << i for i in _coalition(key, priority)): value for key, value in values.items()}
    given = {0: 0.0, everything: 1.0} | given
    missing = [mask for mask in range(everything) if mask not in given]
    if missing:
        names = "+".join(name for i, name in enumerate(priority) if missing[0] >> i & 1)
        raise ConfigError(f"a capacity has a value for every coalition of {list(priority)}; {names!r} is missing")
    return Capacity(tuple(given[mask] for mask in range(everything + 1)))


def _coalition(key: str, priority: Sequence[str]) -> tuple[int, ...]:
    """ "DS+CB" as places in the priority."""
    parts = [part.strip() for part in key.split("+")]
    for part in parts:
        if part not in priority:
            raise UnknownName("criterion of the priority", part, priority)
    return tuple(sorted({priority.index(part) for part in parts}))
