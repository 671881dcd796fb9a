"""recipe.score: the operators by name, and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fedmerit.core.parts import PARTS, Setting, load_parts, settings
from fedmerit.core.weights.scores import OWA, Choquet, Ranked, Score, WeightedMean
from fedmerit.core.weights.topsis import Topsis
from fedmerit.errors import ConfigError

Values: TypeAlias = tuple[float, ...]
load_parts()  # a configuration can name every part, not only those that are imported already
SCORES: Mapping[str, type[Any]] = {name: kind for name, kind in PARTS["score"].items() if kind is not Ranked}
"""The operators of configurations by name, each with its settings."""
RANKING: Mapping[str, Setting] = {"rank": settings(Ranked)["how"], "top": settings(Ranked)["top"]}
"""What every score takes: put the clients' ranks in place of their scores."""


def finish_score(made: Any, priority: Sequence[str]) -> Score:
    """The operator for criteria in this order."""
    if isinstance(made, WeightedMean | Topsis | OWA):
        check_length("weights", made.weights, priority)
    elif isinstance(made, Choquet):
        check_length("shapley", made.shapley, priority)
    score: Score = made
    return score


def check_length(key: str, values: Values, priority: Sequence[str]) -> None:
    """One value for each criterion, where there are any."""
    if values and len(values) != len(priority):
        raise ConfigError(f"{key} has {len(values)} values for {len(priority)} criteria; give one for each")
