"""recipe.score: the operators by name; `owa` and `choquet` are written in words of the criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fedmerit.core.parts import PARTS, Doc, Setting, load_parts, settings
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.ranking import Ranked
from fedmerit.core.weights.scores import (
    AS_MANY_AS_POSSIBLE,
    AT_LEAST_HALF,
    MOST,
    OWA,
    Choquet,
    Linear,
    Power,
    Quantifier,
    QuantifierOWA,
    Score,
    WeightedMean,
)
from fedmerit.core.weights.topsis import Topsis
from fedmerit.errors import ConfigError, UnknownName

QUANTIFIERS: Mapping[str, Quantifier] = {
    "most": MOST,
    "at-least-half": AT_LEAST_HALF,
    "as-many-as-possible": AS_MANY_AS_POSSIBLE,
}
Values: TypeAlias = tuple[float, ...]
Coalitions: TypeAlias = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class OWAForm:
    """Ordered weighted average: `weights`, best value first, or a `quantifier`, with or without `importances`."""

    weights: Annotated[Values, Doc("best value first, sum 1")] = ()
    quantifier: Annotated[
        str | float | tuple[float, float] | None,
        Doc('"most", "at-least-half", "as-many-as-possible", an exponent, or [a, b]'),
    ] = None
    importances: Annotated[Values, Doc("of the criteria, in priority order, with a quantifier; default: equal")] = ()

    def make(self, priority: Sequence[str]) -> Score:
        """The average by places, or by a quantifier."""
        check_length("weights", self.weights, priority)
        check_length("importances", self.importances, priority)
        if bool(self.weights) == (self.quantifier is not None):
            raise ConfigError("owa takes either weights (best value first) or a quantifier")
        if self.quantifier is not None:
            return QuantifierOWA(_quantifier(self.quantifier), self.importances)
        if self.importances:
            raise ConfigError("owa takes importances with a quantifier, not with weights")
        return OWA(self.weights)


@dataclass(frozen=True, slots=True)
class ChoquetForm:
    """Choquet integral: a `capacity`, or `shapley` values with or without `interaction` of pairs."""

    capacity: Annotated[Coalitions, Doc('value of each coalition of criteria, `{"DS" = 0.3, "DS+CB" = 0.8, ...}`')] = ()
    shapley: Annotated[Values, Doc("in priority order, sum 1, in place of a capacity")] = ()
    interaction: Annotated[Coalitions, Doc('of pairs of criteria, `{"DS+CB" = 0.1}`, with shapley')] = ()

    def make(self, priority: Sequence[str]) -> Score:
        """The integral with respect to the capacity."""
        if bool(self.capacity) == bool(self.shapley):
            raise ConfigError("choquet takes either a capacity, or shapley (with interaction)")
        if self.shapley:
            return Choquet(_two_additive(self.shapley, dict(self.interaction), priority))
        if self.interaction:
            raise ConfigError("choquet takes interaction with shapley, not with a capacity")
        return Choquet(_capacity(dict(self.capacity), priority))


load_parts()  # a configuration can name every part, not only those that are imported already
FORMS: Mapping[str, type[Any]] = {"owa": OWAForm, "choquet": ChoquetForm}
SCORES: Mapping[str, type[Any]] = {
    name: FORMS.get(name, kind)
    for name, kind in PARTS["score"].items()
    if kind not in (QuantifierOWA, Ranked)  # written as owa with a quantifier, and as `rank`
}
"""The operators of configurations by name, each with its settings."""
RANKING: Mapping[str, Setting] = {"rank": settings(Ranked)["how"], "top": settings(Ranked)["top"]}
"""What every score takes: put the clients' ranks in place of their scores."""


def finish_score(made: Any, priority: Sequence[str]) -> Score:
    """The operator for criteria in this order."""
    if isinstance(made, OWAForm | ChoquetForm):
        return made.make(priority)
    if isinstance(made, WeightedMean | Topsis):
        check_length("weights", made.weights, priority)
    score: Score = made
    return score


def check_length(key: str, values: Values, priority: Sequence[str]) -> None:
    """One value for each criterion, where there are any."""
    if values and len(values) != len(priority):
        raise ConfigError(f"{key} has {len(values)} values for {len(priority)} criteria; give one for each")


def _quantifier(value: str | float | tuple[float, float]) -> Quantifier:
    match value:
        case str() if value in QUANTIFIERS:
            return QUANTIFIERS[value]
        case int() | float():
            return Power(float(value))
        case (a, b):
            return Linear(float(a), float(b))
    raise UnknownName("quantifier", str(value), [*QUANTIFIERS, "an exponent", "[a, b]"])


def _two_additive(shapley: Values, interaction: Mapping[str, float], priority: Sequence[str]) -> Capacity:
    check_length("shapley", shapley, priority)
    pairs = {_coalition(key, priority): value for key, value in interaction.items()}
    if any(len(pair) != 2 for pair in pairs):
        raise ConfigError('interaction names pairs of criteria, for example {"DS+CB" = 0.1}')
    return Capacity.two_additive(shapley, {(i, j): value for (i, j), value in pairs.items()})


def _capacity(values: Mapping[str, float], priority: Sequence[str]) -> Capacity:
    if len(priority) > 16:
        raise ConfigError(f"a capacity is of at most 16 criteria; got {len(priority)}")
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
            raise UnknownName("criterion of the recipe", part, priority)
    return tuple(sorted({priority.index(part) for part in parts}))
