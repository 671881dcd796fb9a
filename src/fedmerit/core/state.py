"""State and record: what a round starts from, what it leaves to the next, and what it writes down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TypeAlias

from fedmerit.core.facts import CLAIMED, LARGEST, LOSS
from fedmerit.core.models.grouping import Groups, PairDistances
from fedmerit.core.models.rewards import SentRewards
from fedmerit.core.observations import Observations
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.search import SearchState
from fedmerit.core.server.aggregation import Aggregation
from fedmerit.core.stages.validation import Audit
from fedmerit.core.types import NOTHING, RECENT, ClientId, Cohort, Evaluation, History, Model, Vector
from fedmerit.core.weights.weigh import Note, Weights

OnStage: TypeAlias = Callable[[int, str, Sequence[ClientId]], None]
"""Told when a round comes to another stage: its number, the stage, and the clients that train in it."""


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
    """What one round did; rows of `facts`, `weights` and `groups` belong to `ids`.

    `epsilon` is what the run has cost in privacy so far, where it keeps an account. `validation` is the accuracy on
    all clients' validation rows, where a run may stop by it.
    """

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
    epsilon: float | None = None
    validation: float | None = None


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


def remember(history: History, cohort: Cohort, names: Sequence[str] = ()) -> History:
    """The history after one more round, with the facts of these names."""
    told = [
        (client, {name: float(column[place]) for name, column in cohort.facts.items()})
        for place, client in enumerate(cohort.ids)
    ]
    return replace(remember_facts(history, told, names), rounds=history.rounds + 1)


def remember_facts(
    history: History, told: Iterable[tuple[ClientId, Mapping[str, float]]], names: Sequence[str] = ()
) -> History:
    """The history after clients took part, each with these facts; in the order of the rounds.

    At first sight it is the claim that is remembered, later what counted: a claim that was cut once must not look like
    one that changed.
    """
    counts, losses = dict(history.participations), dict(history.losses)
    first = {name: dict(history.first.get(name, {})) for name in names}
    recent = {name: dict(history.recent.get(name, {})) for name in names}
    for client, facts in told:
        counts[client] = counts.get(client, 0) + 1
        if LOSS in facts:
            losses[client] = min(losses.get(client, 0.0) + facts[LOSS], LARGEST)
        for name in (name for name in names if name in facts):  # some are not measured in every round
            first[name].setdefault(client, facts.get(f"{CLAIMED}{name}", facts[name]))
            recent[name][client] = (*recent[name].get(client, ()), facts[name])[-RECENT:]
    return History(history.rounds, counts, losses, first, recent)


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
