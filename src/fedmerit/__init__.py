"""fedmerit: federated learning in which a client's weight is earned."""

from fedmerit.config.schema import Config, load_config
from fedmerit.core.aggregation import Aggregation, Candidate, CandidateResult
from fedmerit.core.capacity import Capacity
from fedmerit.core.criteria import (
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
from fedmerit.core.facts import measure
from fedmerit.core.fleet import Fleet
from fedmerit.core.groups import ByCosine, Grouping, Groups, OneGroup, PairDistances
from fedmerit.core.handout import SentRewards
from fedmerit.core.learner import Learner
from fedmerit.core.objectives import ByGroup, Gated, Objective, Plain, Predictions, find_objective
from fedmerit.core.ranking import Ranked
from fedmerit.core.recipes import Recipe, agnostic, device_aware, fedavg, fedval, m2f, prioritized, qffl
from fedmerit.core.rewards import Acceptance, Reward, TopShare, Whole
from fedmerit.core.round import Record, State, play
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
    QuantifierOWA,
    Score,
    WeightedMean,
    dispersion,
    orness,
)
from fedmerit.core.search import Backtracking, Fixed, SearchState, Weighting
from fedmerit.core.selection import Schedule, Selection, Uniform
from fedmerit.core.types import Cohort, Download, Evaluation, History, Replies, Samples, SparseUpdate, Verdict
from fedmerit.core.updates import Updates
from fedmerit.core.weights import ClientWeight, Note, Weights, weigh
from fedmerit.engine.run import Run, federate, resume, run_config
from fedmerit.errors import FedmeritError, RunFailed, RunStopped, UserError
from fedmerit.study.compare import compare
from fedmerit.study.fairness import Account, Convergence, Fairness, convergence, fairness_of, rank_correlation
from fedmerit.study.plan import Plan, load_plan
from fedmerit.study.study import Study
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.registry import Task, load_task
from fedmerit.tasks.task_spec import TaskSpec

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
    "Aggregation",
    "Agnostic",
    "Attribute",
    "Backtracking",
    "ByCosine",
    "ByGroup",
    "Candidate",
    "CandidateResult",
    "Capacity",
    "Choquet",
    "ClientWeight",
    "Cohort",
    "Computation",
    "Config",
    "Convergence",
    "Criterion",
    "DataRatio",
    "Divergence",
    "Download",
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
    "History",
    "Learner",
    "Linear",
    "LossPower",
    "Note",
    "Objective",
    "OneGroup",
    "PairDistances",
    "Participation",
    "Plain",
    "Plan",
    "Power",
    "Predictions",
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
    "Run",
    "RunFailed",
    "RunStopped",
    "Samples",
    "Schedule",
    "Score",
    "SearchState",
    "Selection",
    "SentRewards",
    "Sharpness",
    "SparseUpdate",
    "Split",
    "State",
    "Study",
    "Task",
    "TaskSpec",
    "TopShare",
    "Uniform",
    "Updates",
    "UserError",
    "Validated",
    "Verdict",
    "WeightedMean",
    "Weighting",
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
