"""State and record: what a round starts from, what it leaves to the next, and what it writes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter

from fedmerit.core.aggregation import Aggregation
from fedmerit.core.facts import LOSS
from fedmerit.core.groups import Groups, PairDistances
from fedmerit.core.observations import Observations
from fedmerit.core.recipes import Recipe
from fedmerit.core.rewards import SentRewards
from fedmerit.core.search import SearchState
from fedmerit.core.types import NOTHING, ClientId, Cohort, Evaluation, History, Model, Vector
from fedmerit.core.validation import Audit
from fedmerit.core.weights import Note, Weights


@dataclass(frozen=True, slots=True)
class State:
    """What one round hands to the next; checkpoints keep all of it, to the bit.

    `parts` are named vectors beside the model, as long as it: what a server's step remembers.
    """

    model: Model
    parts: Mapping[str, Model] = field(default_factory=dict)
    history: History = field(default_factory=History)
    search: SearchState = field(default_factory=SearchState)
    distances: PairDistances = field(default_factory=PairDistances)


@dataclass(frozen=True, slots=True)
class Settled:
    """What the server made of one round's replies, and the state that follows."""

    state: State
    cohort: Cohort
    left_out: Mapping[ClientId, str]
    groups: Groups
    aggregation: Aggregation
    rewards: SentRewards
    notes: tuple[Note, ...]
    observations: Observations


@dataclass(frozen=True, slots=True)
class Record:
    """What one round did; rows of `facts`, `weights` and `groups` belong to `ids`."""

    index: int
    priority: tuple[str, ...]
    ids: tuple[ClientId, ...]
    facts: Mapping[str, Vector]
    weights: Weights | None
    left_out: Mapping[ClientId, str]
    evaluation: Evaluation | None
    bytes_down: int
    bytes_up: int
    seconds: Mapping[str, float]
    aggregation: Aggregation | None = None
    groups: Groups | None = None
    rewards: SentRewards = field(default_factory=SentRewards)
    notes: tuple[Note, ...] = ()
    audit: Audit = field(default_factory=dict)
    observations: Observations | None = None


def make_record(
    recipe: Recipe,
    settled: Settled,
    evaluation: Evaluation | None,
    bytes_down: int,
    bytes_up: int,
    clock: Clock,
    audited: Audit = NOTHING,
) -> Record:
    """The record of a round that was settled."""
    candidate, cohort = settled.aggregation.candidate, settled.cohort
    return Record(
        cohort.index,
        candidate.weighting.priority if candidate else recipe.priority,
        cohort.ids,
        cohort.facts,
        candidate.weights if candidate else None,
        settled.left_out,
        evaluation,
        bytes_down,
        bytes_up,
        clock.laps,
        settled.aggregation,
        settled.groups,
        settled.rewards,
        settled.notes,
        audited,
        settled.observations,
    )


def remember(history: History, cohort: Cohort) -> History:
    """The history after one more round."""
    counts, losses = dict(history.participations), dict(history.losses)
    for place, client in enumerate(cohort.ids):
        counts[client] = counts.get(client, 0) + 1
        if LOSS in cohort.facts:
            losses[client] = losses.get(client, 0.0) + float(cohort.facts[LOSS][place])
    return History(history.rounds + 1, counts, losses)


class Clock:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, stage: str) -> None:
        """Book the time since the last lap to a stage."""
        now = perf_counter()
        self.laps[stage] = now - self._last
        self._last = now

    def move(self, stage: str, other: str, seconds: float) -> None:
        """Book some of a stage's seconds to another."""
        self.laps[stage] -= seconds
        self.laps[other] = seconds
