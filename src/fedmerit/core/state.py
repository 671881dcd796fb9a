"""State and record: what a round starts from, what it leaves to the next, and what it writes down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from fedmerit.core.facts import CLAIMED, LARGEST, LOSS
from fedmerit.core.host import Host
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import PAIRS
from fedmerit.core.seeds import Draws
from fedmerit.core.types import (
    EMPTY,
    ClientId,
    Cohort,
    Evaluation,
    Groups,
    Matrix,
    Model,
    Note,
    Own,
    SentRewards,
    Vector,
)
from fedmerit.core.updates import Diagnostics, cosines_of, distances_of
from fedmerit.core.weights.weigh import Weights

if TYPE_CHECKING:
    from fedmerit.core.criteria.contribution import CoalitionValues
    from fedmerit.core.models.shared import Moved
    from fedmerit.core.search.search import SearchReport, Weighting


RECENT = 9
"""How many of a client's latest facts the server remembers."""


@dataclass(frozen=True, slots=True)
class PairDistances:
    """How near the updates of each two clients were in the rounds in which both took part.

    Rows and columns belong to `ids`, all clients so far. `sums` has the sum of their distances, `counts` the number of
    rounds.
    """

    ids: tuple[ClientId, ...] = ()
    sums: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    counts: Matrix = field(default_factory=lambda: np.zeros((0, 0)))

    def after(self, ids: Sequence[ClientId], distances: Matrix) -> PairDistances:
        """With one more round; distances count as the float32 numbers that a ledger keeps."""
        known = tuple(sorted({*self.ids, *ids}))
        sums, counts = np.zeros((2, len(known), len(known)))
        earlier, this_round = (self.ids, self.sums, self.counts), (ids, distances.astype(np.float32), 1.0)
        for clients, more_distance, more_rounds in (earlier, this_round):
            places = np.searchsorted(known, clients)
            sums[np.ix_(places, places)] += more_distance
            counts[np.ix_(places, places)] += more_rounds
        return PairDistances(known, sums, counts)

    def mean(self, ids: Sequence[ClientId]) -> Matrix:
        """The mean distance of each two of these clients, who have all met."""
        places = np.searchsorted(self.ids, ids)
        return np.asarray(self.sums[np.ix_(places, places)] / self.counts[np.ix_(places, places)])


@dataclass(frozen=True, slots=True)
class History:
    """What the server remembers: how often each client took part, the losses it reported, and facts that parts ask for.

    Of the facts that a recipe remembers: `first` is what the client claimed at first, `recent` what counted in the last
    `RECENT` rounds that it took part in, the newest last; both by fact and client. `pairs` is kept for parts that
    remember PAIRS.
    """

    rounds: int = 0
    participations: Mapping[ClientId, int] = field(default_factory=dict)
    losses: Mapping[ClientId, float] = field(default_factory=dict)
    first: Mapping[str, Mapping[ClientId, float]] = field(default_factory=dict)
    recent: Mapping[str, Mapping[ClientId, tuple[float, ...]]] = field(default_factory=dict)
    pairs: PairDistances = field(default_factory=PairDistances)


def remember(history: History, cohort: Cohort, names: Sequence[str] = ()) -> History:
    """The history after one more round, with the facts of these names."""
    reported = [
        (client, {name: float(column[place]) for name, column in cohort.facts.items()})
        for place, client in enumerate(cohort.ids)
    ]
    return replace(remember_facts(history, reported, names), rounds=history.rounds + 1)


def remember_facts(
    history: History, reported: Iterable[tuple[ClientId, Mapping[str, float]]], names: Sequence[str] = ()
) -> History:
    """The history after clients took part, each with these facts; in the order of the rounds.

    The first value that is remembered is the claim, later ones are what counted: a claim that was cut once must not
    look like one that changed.
    """
    counts, losses = dict(history.participations), dict(history.losses)
    first = {name: dict(history.first.get(name, {})) for name in names}
    recent = {name: dict(history.recent.get(name, {})) for name in names}
    for client, facts in reported:
        counts[client] = counts.get(client, 0) + 1
        if LOSS in facts:
            losses[client] = min(losses.get(client, 0.0) + facts[LOSS], LARGEST)
        for name in (name for name in names if name in facts):  # some are not measured in every round
            first[name].setdefault(client, facts.get(f"{CLAIMED}{name}", facts[name]))
            recent[name][client] = (*recent[name].get(client, ()), facts[name])[-RECENT:]
    return History(history.rounds, counts, losses, first, recent, history.pairs)


T = TypeVar("T")

OnStage: TypeAlias = Callable[[int, str, Sequence[ClientId]], None]
"""Called when a round comes to another stage: its number, the stage, and the clients that train in it."""
Rho: TypeAlias = float | Literal["1/K"]
"""A client's part in a merged model; `1/K`: as one of the K clients of the round."""
Audit: TypeAlias = Mapping[ClientId, Mapping[str, float]]
"""Objectives by name: of the model on the server's rows (SERVER) and on each client's test rows; NaN where unknown."""
SERVER: ClientId = -1
"""Stands for the server where clients are listed."""


@dataclass(frozen=True, slots=True)
class State:
    """What one round hands to the next; a checkpoint keeps all of it but the history, to the bit.

    own     each part's own state, by slot: collect, models, search, server, `stage:NAME`
    """

    model: Model
    history: History = field(default_factory=History)
    own: Mapping[str, Own] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """What parts see of a round: read only. Predictions on the server's rows are made once and kept."""

    index: int
    model: Model
    history: History
    host: Host
    draws: Draws
    own: Mapping[str, Own] = field(default_factory=dict)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, state: State, host: Host, seed: int) -> View:
        """The view of the round after a state."""
        index = state.history.rounds + 1
        return cls(index, state.model, state.history, host, Draws(seed, index), state.own)

    def own_of(self, name: str) -> Own:
        """The state of a part; EMPTY before its first round."""
        return self.own.get(name, EMPTY)

    def predictions_before(self) -> Predictions:
        """What the model before the round says of the server's rows."""
        return self._once("before", lambda: self._predict([self.model]))

    def predictions_merged(self, cohort: Cohort, rho: Rho) -> Predictions:
        """What the models (1 - rho) * model + rho * client's model say of the server's rows, one per client."""
        share = np.float32(1 / len(cohort.ids) if rho == "1/K" else rho)
        rows = cohort.updates
        return self._once(
            (cohort.ids, share), lambda: self._predict(self.model + share * rows.row(i) for i in range(len(rows)))
        )

    def coalition_values(self, cohort: Cohort) -> CoalitionValues:
        """The values of the round's coalitions; no coalition is asked about twice."""
        from fedmerit.core.criteria.contribution import CoalitionValues

        predict = self.host.predict_many or self.host.predict
        return self._once("coalitions", lambda: CoalitionValues(cohort, self.model, predict))

    def _predict(self, models: Any) -> Predictions:
        assert self.host.predict is not None  # the word "server rows" was checked
        return self.host.predict(models)

    def _once(self, key: Any, work: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = work()
        kept: T = self._kept[key]
        return kept


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What the server made of one round's replies, and the state that follows."""

    state: State
    cohort: Cohort
    dropped: Mapping[ClientId, str]
    groups: Groups
    moved: Moved
    rewards: SentRewards
    notes: tuple[Note, ...]
    diagnostics: Diagnostics

    def with_own(self, name: str, own: Own) -> RoundResult:
        """The result with the state of one more part; an empty state is not kept."""
        others = {key: value for key, value in self.state.own.items() if key != name}
        return replace(self, state=replace(self.state, own=others | ({name: own} if own else {})))


@dataclass(frozen=True, slots=True)
class Tested:
    """Clients' tests of the model after a round, and the objectives that are audited."""

    evaluation: Evaluation | None = None
    audit: Audit = field(default_factory=dict)


NOT_TESTED = Tested()


@dataclass(frozen=True, slots=True)
class Record:
    """What one round did; rows of `facts`, `weights` and `groups` belong to `ids`.

    weighting   the weighting that was taken, and its `label`; None where nobody was weighed
    numbers     what else parts want recorded, by name: the `clip` of a private sum
    epsilon     what the run has cost in privacy so far, where it keeps an account
    validation  accuracy on all clients' validation rows, where a run may stop by it
    """

    index: int
    priority: tuple[str, ...]
    ids: tuple[ClientId, ...]
    facts: Mapping[str, Vector]
    weights: Weights | None
    dropped: Mapping[ClientId, str]
    evaluation: Evaluation | None
    bytes_down: int
    bytes_up: int
    seconds: Mapping[str, float]
    weighting: Weighting | None = None
    label: str | None = None
    search: SearchReport | None = None
    groups: Groups | None = None
    rewards: SentRewards = field(default_factory=SentRewards)
    notes: tuple[Note, ...] = ()
    audit: Audit = field(default_factory=dict)
    diagnostics: Diagnostics | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    validation: float | None = None


def make_record(
    priority: tuple[str, ...], result: RoundResult, tested: Tested, bytes_down: int, bytes_up: int, clock: Clock
) -> Record:
    """The record of a round; `priority` is the recipe's, for a round in which nobody was weighed."""
    moved, cohort = result.moved, result.cohort
    chosen = moved.chosen if moved.chosen is not None and moved.chosen.weights is not None else None
    return Record(
        cohort.index,
        chosen.weighting.priority if chosen else priority,
        cohort.ids,
        cohort.facts,
        chosen.weights if chosen else None,
        result.dropped,
        tested.evaluation,
        bytes_down,
        bytes_up,
        clock.laps,
        chosen.weighting if chosen else None,
        chosen.label if chosen else None,
        moved.search,
        result.groups,
        result.rewards,
        result.notes,
        tested.audit,
        result.diagnostics,
        moved.numbers,
    )


class Clock:
    """Seconds per stage of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, stage: str, **within: float) -> None:
        """Book the time since the last lap to a stage; `within` names seconds of it that belong to another stage."""
        now = perf_counter()
        self.laps[stage] = now - self._last - sum(within.values())
        self.laps |= {name: seconds for name, seconds in within.items() if seconds}
        self._last = now


def cosine_distances(cohort: Cohort) -> Matrix:
    """1 - cos of the updates of every pair of the round's clients; 1 where one of them is zero."""
    return distances_of(cosines_of(cohort.updates.products))


def remember_round(history: History, cohort: Cohort, groups: Groups, names: Sequence[str]) -> tuple[History, Groups]:
    """The history after the round, and the groups with the distances that the ledger must keep for a resume."""
    after = remember(history, cohort, [name for name in names if name != PAIRS])
    if PAIRS not in names:
        return after, groups
    distances = cosine_distances(cohort) if groups.distances is None else groups.distances
    pairs = history.pairs.after(cohort.ids, distances)
    return replace(after, pairs=pairs), replace(groups, distances=distances)
