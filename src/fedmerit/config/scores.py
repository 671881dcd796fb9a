"""Scores by name: from `recipe.score` or `--score` to an operator; a closed table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedmerit.config.schema import ScoreConfig
from fedmerit.core.capacity import Capacity
from fedmerit.core.ranking import Ranked
from fedmerit.core.scores import (
    AS_MANY_AS_POSSIBLE,
    AT_LEAST_HALF,
    MOST,
    OWA,
    Choquet,
    Linear,
    Power,
    Prioritized,
    PrioritizedAnd,
    PrioritizedMean,
    Product,
    Quantifier,
    QuantifierOWA,
    Score,
    WeightedMean,
)
from fedmerit.errors import ConfigError, UnknownName

QUANTIFIERS: Mapping[str, Quantifier] = {
    "most": MOST,
    "at-least-half": AT_LEAST_HALF,
    "as-many-as-possible": AS_MANY_AS_POSSIBLE,
}


@dataclass(frozen=True, slots=True)
class NamedScore:
    """An operator that configuration can name, with the options it takes."""

    about: str
    options: tuple[str, ...]
    make: Callable[[ScoreConfig, Sequence[str]], Score]


def _owa(config: ScoreConfig, priority: Sequence[str]) -> Score:
    if (config.weights is None) == (config.quantifier is None):
        raise ConfigError("score owa takes either weights (best value first) or a quantifier")
    if config.weights is not None:
        return OWA(config.weights)
    return QuantifierOWA(_quantifier(config.quantifier), config.importances or ())


def _quantifier(value: str | float | tuple[float, float] | None) -> Quantifier:
    match value:
        case str() if value in QUANTIFIERS:
            return QUANTIFIERS[value]
        case int() | float():
            return Power(float(value))
        case (a, b):
            return Linear(a, b)
        case _:
            raise UnknownName("quantifier", str(value), [*QUANTIFIERS, "an exponent", "[a, b]"])


def _choquet(config: ScoreConfig, priority: Sequence[str]) -> Score:
    if (config.capacity is None) == (config.shapley is None):
        raise ConfigError("score choquet takes either a capacity, or shapley (with interaction)")
    if config.shapley is not None:
        if len(config.shapley) != len(priority):
            raise ConfigError(f"shapley has {len(config.shapley)} values for {len(priority)} criteria")
        pairs = {_coalition(key, priority): value for key, value in (config.interaction or {}).items()}
        if any(len(pair) != 2 for pair in pairs):
            raise ConfigError('interaction names pairs of criteria, for example {"DS+CB" = 0.1}')
        return Choquet(Capacity.two_additive(config.shapley, {(i, j): v for (i, j), v in pairs.items()}))
    given = {sum(1 << i for i in _coalition(key, priority)): v for key, v in (config.capacity or {}).items()}
    given = {0: 0.0, 2 ** len(priority) - 1: 1.0} | given
    missing = [mask for mask in range(2 ** len(priority)) if mask not in given]
    if missing:
        names = "+".join(name for i, name in enumerate(priority) if missing[0] >> i & 1)
        raise ConfigError(f"a capacity has a value for every coalition of {list(priority)}; {names!r} is missing")
    return Choquet(Capacity(tuple(given[mask] for mask in range(2 ** len(priority)))))


def _coalition(key: str, priority: Sequence[str]) -> tuple[int, ...]:
    """ "DS+CB" as places in the priority."""
    parts = [part.strip() for part in key.split("+")]
    for part in parts:
        if part not in priority:
            raise UnknownName("criterion of the priority", part, priority)
    return tuple(sorted({priority.index(part) for part in parts}))


SCORES: Mapping[str, NamedScore] = {
    "prioritized": NamedScore("c1 + c1*c2 + c1*c2*c3 ... (the papers)", (), lambda config, priority: Prioritized()),
    "prioritized-and": NamedScore("min of c_i ** lambda_i", (), lambda config, priority: PrioritizedAnd()),
    "prioritized-mean": NamedScore("prioritized / sum of lambdas", (), lambda config, priority: PrioritizedMean()),
    "weighted-mean": NamedScore(
        "sum of v_i * c_i", ("weights",), lambda config, priority: WeightedMean(config.weights or ())
    ),
    "product": NamedScore("product of all criteria", (), lambda config, priority: Product()),
    "owa": NamedScore("ordered weighted average", ("weights", "quantifier", "importances"), _owa),
    "choquet": NamedScore("Choquet integral", ("capacity", "shapley", "interaction"), _choquet),
}


def make_score(config: ScoreConfig, priority: Sequence[str]) -> Score:
    """The operator that a configuration names, checked against the number of criteria."""
    if config.name not in SCORES:
        raise UnknownName("score", config.name, SCORES)
    named = SCORES[config.name]
    given = [key for key, value in config.model_dump(exclude={"name"}, exclude_none=True).items() if value is not None]
    extra = [key for key in given if key not in (*named.options, "rank", "top")]
    if extra:
        takes = ", ".join(named.options) or "no options"
        raise ConfigError(f"score {config.name} does not take {', '.join(extra)}; it takes {takes}")
    for key in ("weights", "importances"):
        values = getattr(config, key)
        if values is not None and len(values) != len(priority):
            raise ConfigError(f"score {config.name}: {key} has {len(values)} values for {len(priority)} criteria")
    if config.top is not None and config.rank != "top":
        raise ConfigError(f'score.top goes with rank = "top"; got rank = {config.rank!r}')
    made = named.make(config, priority)
    return made if config.rank is None else Ranked(made, config.rank, 0.5 if config.top is None else config.top)
