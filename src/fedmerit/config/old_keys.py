"""Keys and names that were renamed or removed: two tables, which feed the message."""

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

STEPS_ONLY = "a search tests orders of the criteria (backtracking) or server steps (steps)"
ROUND_ONLY = "all clients test the orders, and the clients of the round the steps"
REMOVED_KEYS: Mapping[str, str] = {
    "recipe.least": "reputations weigh clients, and none is excluded",
    "recipe.criteria.least": "reputations weigh clients, and none is excluded",
    "recipe.criteria.power": "a reputation counts as it is",
    "recipe.criteria.evidence": "use NormInlier, RareCoordinateOverlap or SimilarityFilter",
    "recipe.criteria=Consistency": "use NormInlier, RareCoordinateOverlap or SimilarityFilter",
    "recipe.criteria=Plausibility": "use NormInlier, RareCoordinateOverlap or SimilarityFilter",
    "recipe.criteria=Conduct": "use NormInlier, RareCoordinateOverlap or SimilarityFilter",
    "recipe.name=rffl": "use cgsv",
    "recipe.name=cfl": 'use ifca, or m2f with models = {grouping = {name = "cosine", over = "all"}}',
    "recipe.models.grouping=splits": "use the grouping cosine",
    "recipe.models.reward.largest": "the entries of the largest magnitude are sent",
    "recipe.models.reward.exclude_own": 'use recipe.models.training = "reset"',
    "recipe.score.quantifier": "give recipe.score.weights, best value first",
    "recipe.score.importances": "use weighted-mean with weights",
    "recipe.score.capacity": "give recipe.score.shapley, and recipe.score.interaction of pairs",
    "recipe.search.among": STEPS_ONLY,
    "recipe.search.exchange": "all orders that are left are tested in one exchange",
    "recipe.search.judges": ROUND_ONLY,
    "recipe.search.confidence": ROUND_ONLY,
    "recipe.search.count": "a step's gain is the median over the clients of the round",
    "recipe.search.rungs": "give recipe.search.steps",
    "recipe.search.max_change": "give recipe.search.steps",
    "recipe.search.majority": "recipe.search.accept says which gain is enough",
    "task.smallest": "give task.size = [750, 1500], the least and the most",
    "task.mix": "clients of label-draws hold labels of their own group",
    "task.against": "task.kinds harm the group of task.attribute whose value is 0",
    "privacy.search_share": "use the fixed search with [privacy]",
    "privacy.search_clip": "use the fixed search with [privacy]",
    "privacy.centre_noise": "use no task.centre with [privacy]",
    "privacy.centre_clip": "use no task.centre with [privacy]",
}
"""Removed -> what to use instead."""


def renamed(key: str, value: str | None = None) -> str | None:
    """The message for a key, or for a value of a key, that was renamed or removed; None for others.

    >>> renamed("recipe.search.judges")
    '`recipe.search.judges` was removed; all clients test the orders, and the clients of the round the steps'
    >>> renamed("run.wait.over")
    '`run.wait.over` is now `run.wait.overselect`'
    >>> renamed("recipe.criteria.1", "Usual")
    'recipe.criteria.1: Usual is now NormInlier'
    """
    place = re.sub(r"\.\d+(?=\.|$)", "", key)
    old, subject = (place, f"`{key}`") if value is None else (f"{place}={value}", f"{key}: {value}")
    if old in REMOVED_KEYS:
        return f"{subject} was removed; {REMOVED_KEYS[old]}"
    new = OLD_KEYS.get(old)
    return new and f"{subject} is now {f'`{new}`' if value is None else new}"
