"""fedmerit: federated learning in which clients are weighted by priorities that you set, with a reason per weight.

All public names are available here. Each is imported on first use, so that `import fedmerit` is fast:

>>> import fedmerit
>>> fedmerit.prioritized(fedmerit.LD, fedmerit.DS).priority
('LD', 'DS')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmerit.checks.laws import LawResult as LawResult, check_weighting as check_weighting
    from fedmerit.config.schema import load_config as load_config
    from fedmerit.core.collect.collect import InTime as InTime, Poisson as Poisson, Uniform as Uniform
    from fedmerit.core.collect.memory import LastAnswers as LastAnswers
    from fedmerit.core.criteria.criterion import Criterion as Criterion, criterion as criterion
    from fedmerit.core.criteria.nearness import MW as MW
    from fedmerit.core.criteria.table import (
        CB as CB,
        DS as DS,
        IS as IS,
        LC as LC,
        LD as LD,
        Attribute as Attribute,
    )
    from fedmerit.core.criteria.validated import Validated as Validated
    from fedmerit.core.host import Fleet as Fleet
    from fedmerit.core.learner import Learner as Learner
    from fedmerit.core.models.clusters import ClusterModels as ClusterModels
    from fedmerit.core.models.grouping import ByCosine as ByCosine
    from fedmerit.core.models.personal import PersonalModels as PersonalModels
    from fedmerit.core.models.rewards import TopShare as TopShare
    from fedmerit.core.models.shared import LocalModel as LocalModel, OneModel as OneModel
    from fedmerit.core.recipe import Recipe as Recipe
    from fedmerit.core.recipes import (
        adaptive as adaptive,
        agnostic as agnostic,
        cosine_rewards as cosine_rewards,
        device_aware as device_aware,
        discounted as discounted,
        ditto as ditto,
        fedamp as fedamp,
        fedavg as fedavg,
        fedval as fedval,
        finetuned as finetuned,
        ifca as ifca,
        last_answers as last_answers,
        m2f as m2f,
        pooled as pooled,
        prioritized as prioritized,
        private as private,
        qffl as qffl,
        robust as robust,
        standalone as standalone,
    )
    from fedmerit.core.search.backtracking import Backtracking as Backtracking
    from fedmerit.core.search.step_search import StepSearch as StepSearch
    from fedmerit.core.server.optimizers import (
        Adam as Adam,
        FedExP as FedExP,
        Momentum as Momentum,
        Yogi as Yogi,
    )
    from fedmerit.core.server.private_sum import PrivateSum as PrivateSum
    from fedmerit.core.server.server import SGD as SGD, Server as Server
    from fedmerit.core.stages.claims import Claims as Claims
    from fedmerit.core.stages.clip import Clip as Clip
    from fedmerit.core.types import Samples as Samples
    from fedmerit.core.weights.limits import Cap as Cap
    from fedmerit.core.weights.scores import (
        OWA as OWA,
        Choquet as Choquet,
        Prioritized as Prioritized,
        Product as Product,
        Ranked as Ranked,
        Score as Score,
        WeightedMean as WeightedMean,
    )
    from fedmerit.core.weights.weigh import Scale as Scale, scale as scale, weigh as weigh
    from fedmerit.engine.finished import Run as Run
    from fedmerit.engine.run import federate as federate, resume as resume, run_config as run_config, run_on as run_on
    from fedmerit.errors import FedmeritError as FedmeritError, UserError as UserError
    from fedmerit.learn.sgd import TorchLearner as TorchLearner
    from fedmerit.study.study import Study as Study, compare as compare
    from fedmerit.tasks.federation import Federation as Federation, Split as Split
    from fedmerit.tasks.registry import Task as Task, TaskSpec as TaskSpec, load_task as load_task

_ROOMS = {
    "checks.laws": ("LawResult", "check_weighting"),
    "config.schema": ("load_config",),
    "core.collect.collect": ("InTime", "Poisson", "Uniform"),
    "core.collect.memory": ("LastAnswers",),
    "core.criteria.criterion": ("Criterion", "criterion"),
    "core.criteria.nearness": ("MW",),
    "core.criteria.table": ("CB", "DS", "IS", "LC", "LD", "Attribute"),
    "core.criteria.validated": ("Validated",),
    "core.host": ("Fleet",),
    "core.learner": ("Learner",),
    "core.models.clusters": ("ClusterModels",),
    "core.models.grouping": ("ByCosine",),
    "core.models.personal": ("PersonalModels",),
    "core.models.rewards": ("TopShare",),
    "core.models.shared": ("LocalModel", "OneModel"),
    "core.recipe": ("Recipe",),
    "core.recipes": (
        *("adaptive", "agnostic", "cosine_rewards", "device_aware", "ditto", "fedamp", "fedavg", "fedval"),
        *(
            "discounted",
            "finetuned",
            "ifca",
            "last_answers",
            "m2f",
            "pooled",
            "prioritized",
            "private",
            "qffl",
            "robust",
        ),
        "standalone",
    ),
    "core.search.backtracking": ("Backtracking",),
    "core.search.step_search": ("StepSearch",),
    "core.server.optimizers": ("Adam", "FedExP", "Momentum", "Yogi"),
    "core.server.private_sum": ("PrivateSum",),
    "core.server.server": ("SGD", "Server"),
    "core.stages.claims": ("Claims",),
    "core.stages.clip": ("Clip",),
    "core.types": ("Samples",),
    "core.weights.limits": ("Cap",),
    "core.weights.scores": ("OWA", "Choquet", "Prioritized", "Product", "Ranked", "Score", "WeightedMean"),
    "core.weights.weigh": ("Scale", "scale", "weigh"),
    "engine.finished": ("Run",),
    "engine.run": ("federate", "resume", "run_config", "run_on"),
    "errors": ("FedmeritError", "UserError"),
    "learn.sgd": ("TorchLearner",),
    "study.study": ("Study", "compare"),
    "tasks.federation": ("Federation", "Split"),
    "tasks.registry": ("Task", "TaskSpec", "load_task"),
}
_MODULE_OF = {name: module for module, names in _ROOMS.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(
            f"module 'fedmerit' has no attribute {name!r}; dir(fedmerit) lists the public names, and other names are "
            "imported from their module"
        )
    value = getattr(importlib.import_module(f"fedmerit.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
