"""fedmerit: federated learning in which a client's weight is earned."""

from fedmerit.capacity import Capacity
from fedmerit.config import Config, load_config
from fedmerit.criteria import (
    CB,
    DS,
    IS,
    LC,
    LD,
    MW,
    Agnostic,
    Attribute,
    Computation,
    Criterion,
    DataRatio,
    Divergence,
    Family,
    LossPower,
    Participation,
    Reported,
    Sharpness,
    Validated,
)
from fedmerit.decision import Decision, Option, Tried
from fedmerit.errors import FedmeritError, RunFailed, RunStopped, UserError
from fedmerit.facts import measure
from fedmerit.fairness import Account, Convergence, Fairness, convergence, fairness_of, rank_correlation
from fedmerit.fleet.base import Fleet
from fedmerit.groups import ByCosine, Grouping, Groups, Meetings, OneGroup
from fedmerit.handout import Handout
from fedmerit.learn.base import Learner
from fedmerit.objectives import Answers, ByGroup, Gated, Objective, Plain, find_objective
from fedmerit.ranking import Ranked
from fedmerit.recipes import Recipe, agnostic, device_aware, fedavg, fedval, m2f, prioritized, qffl
from fedmerit.rewards import Acceptance, Reward, TopShare, Whole
from fedmerit.round import Record, State, play
from fedmerit.run import Run, federate, resume, run_config
from fedmerit.scores import (
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
    QuantifierOWA,
    Score,
    WeightedMean,
    dispersion,
    orness,
)
from fedmerit.search import Backtracking, Fixed, Standing, Way
from fedmerit.selection import Schedule, Selection, Uniform
from fedmerit.study.compare import compare
from fedmerit.study.plan import Plan, load_plan
from fedmerit.study.study import Study
from fedmerit.tasks import TaskKind
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.task import Task, load_task
from fedmerit.types import Evaluation, History, Parcel, Part, Replies, Round, Samples, Verdict
from fedmerit.updates import Updates
from fedmerit.weights import Earned, Note, Weights, weigh

__all__ = [
    "AS_MANY_AS_POSSIBLE",
    "AT_LEAST_HALF",
    "CB",
    "DS",
    "IS",
    "LC",
    "LD",
    "MOST",
    "MW",
    "OWA",
    "Acceptance",
    "Account",
    "Agnostic",
    "Answers",
    "Attribute",
    "Backtracking",
    "ByCosine",
    "ByGroup",
    "Capacity",
    "Choquet",
    "Computation",
    "Config",
    "Convergence",
    "Criterion",
    "DataRatio",
    "Decision",
    "Divergence",
    "Earned",
    "Evaluation",
    "Fairness",
    "Family",
    "Federation",
    "FedmeritError",
    "Fixed",
    "Fleet",
    "Gated",
    "Grouping",
    "Groups",
    "Handout",
    "History",
    "Learner",
    "Linear",
    "LossPower",
    "Meetings",
    "Note",
    "Objective",
    "OneGroup",
    "Option",
    "Parcel",
    "Part",
    "Participation",
    "Plain",
    "Plan",
    "Power",
    "Prioritized",
    "PrioritizedAnd",
    "PrioritizedMean",
    "Product",
    "QuantifierOWA",
    "Ranked",
    "Recipe",
    "Record",
    "Replies",
    "Reported",
    "Reward",
    "Round",
    "Run",
    "RunFailed",
    "RunStopped",
    "Samples",
    "Schedule",
    "Score",
    "Selection",
    "Sharpness",
    "Split",
    "Standing",
    "State",
    "Study",
    "Task",
    "TaskKind",
    "TopShare",
    "Tried",
    "Uniform",
    "Updates",
    "UserError",
    "Validated",
    "Verdict",
    "Way",
    "WeightedMean",
    "Weights",
    "Whole",
    "agnostic",
    "compare",
    "convergence",
    "device_aware",
    "dispersion",
    "fairness_of",
    "fedavg",
    "federate",
    "fedval",
    "find_objective",
    "load_config",
    "load_plan",
    "load_task",
    "m2f",
    "measure",
    "orness",
    "play",
    "prioritized",
    "qffl",
    "rank_correlation",
    "resume",
    "run_config",
    "weigh",
]
