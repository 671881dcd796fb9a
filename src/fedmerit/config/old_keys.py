"""Keys that people write and that are not ours: renamed, removed, or from another library. Three tables of messages."""

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
    "recipe.models.grouping.at": "recipe.models.grouping.cut",
    "recipe.reward": "recipe.models.reward",
    "recipe.models.reward.kind": "recipe.models.reward.name",
    "recipe.until": "recipe.models.until",
    "recipe.pull": "recipe.models.pull",
    "recipe.sharpness": "recipe.models.grouping.sharpness",
    "recipe.at": "recipe.models.grouping.cut",
    "recipe.dealt": "recipe.models.warmup_rounds",
    "recipe.half_life": 'recipe.criteria = [{name = "reputation:contribution:cosine", half_life = 13.5}]',
    "recipe.strength": 'recipe.criteria = [{name = "LossPower", q = 1.0}], or {name = "Agnostic", eta = 1.0}',
    "recipe.name=guarded": "robust",
    "recipe.name=cgsv": "cosine_rewards",
    "recipe.criteria=Company": "SimilarityFilter",
    "recipe.criteria=Usual": "NormInlier",
    "train.alpha": "train.prox",
    "task.nodes.server": "task.server",
    "task.nodes.shape": "task.nodes.columns",
    "run.wait.at_least": "run.wait.min_fraction",
}
"""Old -> new; `key=value` for a value that was renamed. Keys have no list positions."""

REMOVED_KEYS: Mapping[str, str] = {
    "recipe.criteria=Consistency": "use NormInlier or SimilarityFilter",
    "recipe.cap_group": 'use recipe.limits = ["cap"], the cap of each client',
    "recipe.limits=site-cap": "use the limit cap, of each client",
    "task.sites": "use the limit cap, of each client",
    "recipe.name=rffl": "use cosine_rewards",
    "recipe.name=cfl": 'use ifca, or m2f with models = {grouping = {name = "cosine", over = "all"}}',
    "recipe.models.grouping=splits": "use the grouping cosine",
    "recipe.score=topsis": "use weighted-mean with weights",
    "recipe.score=prioritized-and": "use prioritized",
    "recipe.score=prioritized-mean": "use prioritized",
    "recipe.server.aggregator=bucketing": "use nnm in front of another aggregator",
    "recipe.server.aggregator=centred-clipping": "use the stage clip, or geometric-median",
    "recipe.server.optimizer=adagrad": "use adam or yogi",
    "recipe.search.orders": "the nearest order is tried first",
    "recipe.search.steps": "it tries eight fixed steps",
    "recipe.models.reward.scope": '`share = "tanh"` takes a part of each layer',
    f"{OPTIMIZER}.tau": "it is 0.001, as in the paper",
    "recipe.models.grouping.threshold": "`cut` is the distance, or finds one",
    "recipe.search.judges": "all clients test orders, and the clients of the round test steps",
    "recipe.criteria=Staleness": "late answers are dropped",
    "run.wait.over": "raise run.fraction",
    "run.wait.overselect": "raise run.fraction",
    "train.clip": "lower train.lr",
    "run.wait.late": "late answers are dropped",
    "run.delays": "late clients are not simulated; run.wait is for `fedmerit flower run`",
    "privacy.accountant": "epsilon is by Renyi divergences (rdp)",
    "recipe.memory.everyone_first": "round 1 asks every client",
    "task.shards": "the partition shards gives each client two; dirichlet has a setting, alpha",
    "task.attack.target": "backdoors assign, and erasers erase, class 0",
    "task.missing": "missing numbers become the client's median; remove rows from the file",
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
