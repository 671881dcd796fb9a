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
    Attribute,
    Computation,
    Criterion,
    DataRatio,
    Divergence,
    Family,
    Participation,
    Reported,
    Sharpness,
)
from fedmerit.decision import Decision, Option, Tried
from fedmerit.errors import FedmeritError, RunFailed, RunStopped, UserError
from fedmerit.facts import measure
from fedmerit.fairness import Account, Convergence, Fairness, convergence, fairness_of, rank_correlation
from fedmerit.fleet.base import Fleet
from fedmerit.groups import ByCosine, Grouping, Groups, Meetings, OneGroup
from fedmerit.handout import Handout
from fedmerit.learn.base import Learner
from fedmerit.recipes import Recipe, device_aware, fedavg, m2f, prioritized
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
    "Attribute",
    "Backtracking",
    "ByCosine",
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
    "Grouping",
    "Groups",
    "Handout",
    "History",
    "Learner",
    "Linear",
    "Meetings",
    "Note",
    "OneGroup",
    "Option",
    "Parcel",
    "Part",
    "Participation",
    "Power",
    "Prioritized",
    "PrioritizedAnd",
    "PrioritizedMean",
    "Product",
    "QuantifierOWA",
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
    "Task",
    "TaskKind",
    "TopShare",
    "Tried",
    "Uniform",
    "Updates",
    "UserError",
    "Verdict",
    "Way",
    "WeightedMean",
    "Weights",
    "Whole",
    "convergence",
    "device_aware",
    "dispersion",
    "fairness_of",
    "fedavg",
    "federate",
    "load_config",
    "load_task",
    "m2f",
    "measure",
    "orness",
    "play",
    "prioritized",
    "rank_correlation",
    "resume",
    "run_config",
    "weigh",
]
