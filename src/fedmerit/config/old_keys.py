"""Keys that people write and that are not ours: renamed, removed, or from another library. Three tables of messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fedmerit.errors import did_you_mean

OPTIMIZER = "recipe.server.optimizer"
VALIDATED = 'recipe.criteria = [{name = "validated:accuracy", %s}]'

OLD_KEYS: Mapping[str, str] = {
    "recipe.priority": 'recipe.criteria = ["LD", "DS"]',
    "recipe.cap": 'recipe.limits = [{name = "cap", times = 2.0}]',
    "recipe.claims": 'recipe.stages = ["claims"]',
    "recipe.clip": 'recipe.stages = [{name = "clip", times = 2.0}]',
    "recipe.contributions": 'recipe.stages = ["contribution:shapley"]',
    "recipe.scales": 'recipe.normalise = {name = "scale", bounds = {DS = 500}}',
    "recipe.aggregate": "recipe.server.aggregator",
    "recipe.server.aggregator.mix": 'recipe.server.aggregator = {name = "nnm", of = "median"}',
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
    "recipe.sharpness": "recipe.models.grouping.sharpness",
    "recipe.at": "recipe.models.grouping.threshold",
    "recipe.dealt": "recipe.models.warmup_rounds",
    "recipe.half_life": 'recipe.criteria = [{name = "reputation:contribution:cosine", half_life = 13.5}]',
    "recipe.strength": 'recipe.criteria = [{name = "LossPower", q = 1.0}], or {name = "Agnostic", eta = 1.0}',
    "recipe.name=guarded": "robust",
    "recipe.name=cgsv": "cosine_rewards",
    "recipe.criteria=Company": "SimilarityFilter",
    "recipe.criteria=Usual": "NormInlier",
    "run.wait.at_least": "run.wait.min_fraction",
}
"""Old -> new; `key=value` for a value that was renamed. Keys have no list positions."""

STEPS_ONLY = "use the search backtracking for orders of the criteria, or steps for server steps"
ROUND_ONLY = "all clients test orders, and the clients of the round test steps"
ONE_CLIP = "set privacy.clip, the largest norm of an update in every round"
REMOVED_KEYS: Mapping[str, str] = {
    "recipe.least": "a reputation lowers weights and excludes no client",
    "recipe.criteria.least": "a reputation lowers weights and excludes no client",
    "recipe.criteria.power": "reputations are used as they are",
    "recipe.criteria.ratio": "NearestDistance counts up to 0.2 medians of the round",
    "recipe.criteria.common": "SimilarityFilter has no settings",
    "recipe.criteria.min_clients": "SimilarityFilter has no settings",
    "recipe.criteria.evidence": "use NormInlier or SimilarityFilter",
    "recipe.criteria=Common": "it excluded honest clients with the same rare class",
    "recipe.criteria=RareCoordinateOverlap": "it excluded honest clients with the same rare class",
    "recipe.criteria=Consistency": "use NormInlier or SimilarityFilter",
    "recipe.criteria=Plausibility": "use NormInlier or SimilarityFilter",
    "recipe.criteria=Conduct": "use NormInlier or SimilarityFilter",
    "recipe.cap_group": 'use recipe.limits = ["cap"], the cap of each client',
    "recipe.limits=site-cap": "use the limit cap, of each client",
    "task.sites": "use the limit cap, of each client",
    "recipe.limits.anchored": 'with stages = ["claims"], a cap bounds a weight by the usual claims',
    "recipe.name=rffl": "use cosine_rewards",
    "recipe.name=cfl": 'use ifca, or m2f with models = {grouping = {name = "cosine", over = "all"}}',
    "recipe.models.grouping=splits": "use the grouping cosine",
    "recipe.models.reward.largest": "the entries with the largest magnitude are sent",
    "recipe.models.reward.exclude_own": 'use recipe.models.training = "reset"',
    "recipe.score.quantifier": "give recipe.score.weights, best value first",
    "recipe.score.importances": "use weighted-mean with weights",
    "recipe.score.capacity": "give recipe.score.shapley, and recipe.score.interaction of pairs",
    "recipe.score=topsis": "use weighted-mean with weights",
    "recipe.score=prioritized-and": "use prioritized",
    "recipe.score=prioritized-mean": "use prioritized",
    "recipe.server.aggregator.bucket": "use nnm in front of another aggregator",
    "recipe.server.aggregator=bucketing": "use nnm in front of another aggregator",
    "recipe.server.aggregator=centred-clipping": "use the stage clip, or geometric-median",
    "recipe.server.optimizer=adagrad": "use adam or yogi",
    "recipe.criteria.step": "LossPower always scales the updates by q-FedAvg's step",
    "recipe.stages.norm": "set recipe.stages.times, a multiple of the median norm",
    "recipe.stages.change": "a fact of a client's rows may differ from the first by a factor of 1.2",
    "recipe.models.reward.floor": 'use share = "max" or "tanh"',
    "recipe.models.reward.temperature": 'use share = "max" or "tanh"',
    "recipe.search.by": "set run.measure, which a search then judges by",
    "recipe.search.among": STEPS_ONLY,
    "recipe.search.exchange": "the remaining orders are tested in one exchange",
    "recipe.search.judges": ROUND_ONLY,
    "recipe.search.confidence": ROUND_ONLY,
    "recipe.search.count": "the gain of a step is the median over the clients of the round",
    "recipe.search.rungs": "give recipe.search.steps",
    "recipe.search.max_change": "give recipe.search.steps",
    "recipe.search.majority": "the largest step with 0.8 of the best gain is used",
    "recipe.search.accept": "the largest step with 0.8 of the best gain is used",
    "recipe.search.reference": "orders are compared with the last round",
    "recipe.stages.enrolled": "facts of rows count as at first",
    "recipe.criteria=Staleness": "late answers are dropped",
    "run.wait.over": "raise run.fraction",
    "run.wait.overselect": "raise run.fraction",
    "facts.client": "call that column client, id or name, or put it first",
    "facts.columns": "write the facts to a CSV file and set facts.file",
    "train.clip": "lower train.lr",
    "task.nodes.most_rows": "enroll the nodes with --samples",
    "run.wait.late": "late answers are dropped",
    "run.delays": "late clients are not simulated; run.wait is for `fedmerit flower run`",
    "run.stop.least": "set run.stop.patience, the rounds without a better measure",
    "privacy.clip_rate": ONE_CLIP,
    "privacy.clip_start": ONE_CLIP,
    "privacy.quantile": ONE_CLIP,
    "privacy.accountant": "epsilon is by Renyi divergences (rdp)",
    "task.smallest": "give task.size = [750, 1500], the smallest and the largest",
    "task.mix": "clients of label-draws hold only labels of their group",
    "task.against": "task.kinds harm group 0 of task.attribute",
    "privacy.search_share": "use the fixed search with [privacy]",
    "privacy.search_clip": "use the fixed search with [privacy]",
    "task.strict": "`fedmerit doctor` lists what is suspicious",
    "recipe.memory.everyone_first": "round 1 asks every client",
    "recipe.models.grouping.linkage": "groups are merged by average linkage",
    "recipe.models.reward.beta": "rewards by tanh use beta = 1",
    "recipe.criteria.orders": "64 orders are drawn for more than 12 clients",
    "recipe.server.optimizer.beta1": "it is 0.9",
    "task.centre": "subtract the mean input in the task's reader, or in the first layer of task.model",
}
"""Removed -> what to use instead."""

SYNONYMS: Mapping[str, str] = {
    "learning_rate": "train.lr",
    "batch_size": "train.batch",
    "local_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "mu": "train.prox",
    "proximal_mu": "train.prox",
    "num_rounds": "run.rounds",
    "num_server_rounds": "run.rounds",
    "fraction_fit": "run.fraction",
    "random_state": "run.seed",
    "num_clients": "task.clients",
    "dataset": "task.data",
}
"""Names that other libraries use -> the key here. They are never keys themselves."""


def suggest_key(key: str, valid: Iterable[str]) -> str:
    """' (did you mean ...?)' for a key that is a synonym or a near miss of a valid one, else an empty string.

    >>> suggest_key("train.learning_rate", ["lr", "batch"])
    " (did you mean 'train.lr'?)"
    """
    section, _, last = key.rpartition(".")
    meant = SYNONYMS.get(last)
    if meant is None:
        return did_you_mean(last, valid)
    short = meant.rpartition(".")[2]
    return f" (did you mean {f'{section}.{short}' if section and short in valid else meant!r}?)"


def renamed(key: str, value: str | None = None) -> str | None:
    """The message for a key, or a value of a key, that was renamed or removed; None for other keys.

    >>> renamed("recipe.search.judges")
    '`recipe.search.judges` was removed; all clients test orders, and the clients of the round test steps'
    >>> renamed("run.wait.at_least")
    '`run.wait.at_least` is now `run.wait.min_fraction`'
    >>> renamed("recipe.criteria.1", "Usual")
    'recipe.criteria.1: Usual is now NormInlier'
    """
    place = re.sub(r"\.\d+(?=\.|$)", "", key)
    old, subject = (place, f"`{key}`") if value is None else (f"{place}={value}", f"{key}: {value}")
    if old in REMOVED_KEYS:
        return f"{subject} was removed; {REMOVED_KEYS[old]}"
    new = OLD_KEYS.get(old)
    return new and f"{subject} is now {f'`{new}`' if value is None else new}"
