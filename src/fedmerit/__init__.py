"""fedmerit: federated learning in which a client's weight is earned."""

from fedmerit.capacity import Capacity
from fedmerit.config import Config, load_config
from fedmerit.criteria import CB, DS, IS, LC, LD, MW, Attribute, Criterion, Divergence, Family, Reported, Sharpness
from fedmerit.decision import Decision, Option, Tried
from fedmerit.errors import FedmeritError, RunFailed, RunStopped, UserError
from fedmerit.facts import measure
from fedmerit.fleet.base import Fleet
from fedmerit.learn.base import Learner
from fedmerit.recipes import Recipe, device_aware, fedavg, prioritized
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
from fedmerit.tasks import TaskKind
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.task import Task, load_task
from fedmerit.types import Evaluation, History, Parcel, Replies, Round, Samples
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
    "Attribute",
    "Backtracking",
    "Capacity",
    "Choquet",
    "Config",
    "Criterion",
    "Decision",
    "Divergence",
    "Earned",
    "Evaluation",
    "Family",
    "Federation",
    "FedmeritError",
    "Fixed",
    "Fleet",
    "History",
    "Learner",
    "Linear",
    "Note",
    "Option",
    "Parcel",
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
    "Round",
    "Run",
    "RunFailed",
    "RunStopped",
    "Samples",
    "Score",
    "Sharpness",
    "Split",
    "Standing",
    "State",
    "Task",
    "TaskKind",
    "Tried",
    "Updates",
    "UserError",
    "Way",
    "WeightedMean",
    "Weights",
    "device_aware",
    "dispersion",
    "fedavg",
    "federate",
    "load_config",
    "load_task",
    "measure",
    "orness",
    "play",
    "prioritized",
    "resume",
    "run_config",
    "weigh",
]
