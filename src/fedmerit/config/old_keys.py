"""Keys and names that were renamed: one table, which feeds the message."""

from __future__ import annotations

import re
from collections.abc import Mapping

OPTIMIZER = "recipe.server.optimizer"
VALIDATED = 'recipe.criteria = [{name = "validated:accuracy", %s}]'

OLD_KEYS: Mapping[str, str] = {
    "recipe.priority": 'recipe.criteria = ["LD", "DS"]',
    "recipe.cap": 'recipe.limits = [{name = "cap", times = 2.0}]',
    "recipe.cap_group": 'recipe.limits = [{name = "site-cap", share = 0.5}]',
    "recipe.claims": 'recipe.stages = ["claims"]',
    "recipe.stages.anchor": 'recipe.limits = [{name = "cap", anchored = true}]',
    "recipe.clip": 'recipe.stages = [{name = "clip", times = 2.0}]',
    "recipe.contributions": 'recipe.stages = ["contribution:shapley"]',
    "recipe.scales": 'recipe.normalise = {name = "scale", bounds = {DS = 500}}',
    "recipe.aggregate": "recipe.server.aggregator",
    "recipe.server.aggregator.mix": 'recipe.server.aggregator = {name = "nnm", of = "median"}',
    "recipe.server.aggregator.bucket": 'recipe.server.aggregator = {name = "bucketing", of = "median", size = 2}',
    "recipe.step": OPTIMIZER,
    f"{OPTIMIZER}.length": f"{OPTIMIZER}.lr",
    f"{OPTIMIZER}.carry": f"{OPTIMIZER}.momentum",
    f"{OPTIMIZER}=plain": "sgd",
    f"{OPTIMIZER}=extrapolated": "fedexp",
    "recipe.server.rho": VALIDATED % "rho = 0.5",
    "recipe.server.gate": VALIDATED % "min_accuracy = 0.3",
    "recipe.server.marginal": VALIDATED % "marginal = true",
    "recipe.groups": "recipe.models.grouping",
    "recipe.models.grouping.by": "recipe.models.grouping.name",
    "recipe.models.grouping.at": "recipe.models.grouping.threshold",
    "recipe.reward": "recipe.models.reward",
    "recipe.models.reward.kind": "recipe.models.reward.name",
    "recipe.until": "recipe.models.until",
    "recipe.pull": "recipe.models.pull",
    "recipe.beta": "recipe.models.reward.beta",
    "recipe.sharpness": "recipe.models.grouping.sharpness",
    "recipe.at": "recipe.models.grouping.threshold",
    "recipe.dealt": "recipe.models.warmup_rounds",
    "recipe.half_life": 'recipe.criteria = [{name = "reputation:contribution:cosine", half_life = 13.5}]',
    "recipe.least": 'recipe.criteria = [{name = "reputation:contribution:cosine", least = 0.3}]',
    "recipe.strength": 'recipe.criteria = [{name = "LossPower", q = 1.0}], or {name = "Agnostic", eta = 1.0}',
    "recipe.name=guarded": "robust",
    "recipe.criteria=Company": "SimilarityFilter",
    "recipe.criteria=Usual": "NormInlier",
    "recipe.criteria=Common": "RareCoordinateOverlap",
    "run.wait.at_least": "run.wait.min_fraction",
    "run.wait.over": "run.wait.overselect",
    "run.delays.usual": "run.delays.base_seconds",
}
"""Old -> new; `key=value` for a value that was renamed. Places in a list are left out."""


def renamed(key: str, value: str | None = None) -> str | None:
    """The message for a key, or for a value of a key, that has another name now; None where it was not renamed.

    >>> renamed("run.wait.over")
    '`run.wait.over` is now `run.wait.overselect`'
    >>> renamed("recipe.criteria.1", "Usual")
    'recipe.criteria.1: Usual is now NormInlier'
    """
    place = re.sub(r"\.\d+(?=\.|$)", "", key)
    new = OLD_KEYS.get(place if value is None else f"{place}={value}")
    if new is None:
        return None
    return f"`{key}` is now `{new}`" if value is None else f"{key}: {value} is now {new}"
