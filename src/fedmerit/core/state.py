"""State and record: what a round starts from, what it passes to the next, and what it records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import CLAIMED
from fedmerit.core.host import Host
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import PAIRS
from fedmerit.core.seeds import Draws
from fedmerit.core.types import (
    ACCURACY,
    EMPTY,
    NOT_SUMMED,
    REMEMBERED,
    ClientId,
    Cohort,
    Evaluation,
    Groups,
    Matrix,
    Model,
    Note,
    Own,
    SentRewards,
    Summed,
    Vector,
    mean_by_rows,
)
from fedmerit.core.updates import Diagnostics, cosines_of, distances_of
from fedmerit.core.weights.weigh import Weights

if TYPE_CHECKING:
    from fedmerit.core.criteria.contribution import CoalitionValues
    from fedmerit.core.models.shared import Moved
    from fedmerit.core.search.search import SearchReport, Weighting


RECENT = 9
"""The number of a client's latest facts that the server remembers."""


@dataclass(frozen=True, slots=True)
class PairDistances:
    """Summed cosine distances of each pair of clients over the rounds in which both took part.

    Rows and columns belong to `ids`, all clients so far. `sums` holds the sums of the distances, `counts` the number of
    rounds. In `recent` a sum is halved before each further round of the pair, so that the last one counts most.
    """

    ids: tuple[ClientId, ...] = ()
    sums: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    counts: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    recent: Matrix = field(default_factory=lambda: np.zeros((0, 0)))

    def after(self, ids: Sequence[ClientId], distances: Matrix) -> PairDistances:
        """Add one round."""
        # Distances are rounded to the float32 that the ledger stores, so that a resumed run has the same sums.
        all_ids = tuple(sorted({*self.ids, *ids}))
        sums, counts, recent = np.zeros((3, len(all_ids), len(all_ids)))
        earlier, rounded = (self.ids, self.sums, self.counts, self.recent), distances.astype(np.float32)
        for clients, more_distance, more_rounds, more_recent in (earlier, (ids, rounded, 1.0, rounded)):
            places = np.searchsorted(all_ids, clients)
            pairs = np.ix_(places, places)
            sums[pairs] += more_distance
            counts[pairs] += more_rounds
            recent[pairs] = recent[pairs] / 2 + more_recent
        return PairDistances(all_ids, sums, counts, recent)

    def cosines(self, places: NDArray[np.intp], *, recent: bool = False) -> Matrix:
        """Mean cosine of each pair of the clients at these places, or its recent mean; 0 where they never met."""
        sums, counts = (one[np.ix_(places, places)] for one in (self.recent if recent else self.sums, self.counts))
        counts = 2 - 2 * 0.5**counts if recent else counts  # 1 + 1/2 + 1/4 + ..., a term per round
        return np.asarray(1.0 - np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0))

    def mean(self, ids: Sequence[ClientId]) -> Matrix:
        """Mean distance of each pair of these clients; every pair needs a shared round."""
        places = np.searchsorted(self.ids, ids)
        return np.asarray(self.sums[np.ix_(places, places)] / self.counts[np.ix_(places, places)])


@dataclass(frozen=True, slots=True)
class History:
    """What the server remembers: participations of each client, and the facts that parts need.

    For each remembered fact, by fact and client: `first` is the client's first claim, `recent` the values that counted
    in the last `RECENT` rounds with the client, newest last. `pairs` is filled for parts that remember PAIRS.
    """

    rounds: int = 0
    participations: Mapping[ClientId, int] = field(default_factory=dict)
    first: Mapping[str, Mapping[ClientId, float]] = field(default_factory=dict)
    recent: Mapping[str, Mapping[ClientId, tuple[float, ...]]] = field(default_factory=dict)
    pairs: PairDistances = field(default_factory=PairDistances)


def remember(history: History, cohort: Cohort, names: Sequence[str] = ()) -> History:
    """Return the history after one more round, with the facts of these names."""
    reported = [
        (client, {name: float(column[place]) for name, column in cohort.facts.items()})
        for place, client in enumerate(cohort.ids)
    ]
    return replace(remember_facts(history, reported, names), rounds=history.rounds + 1)


def remember_facts(
    history: History, reported: Iterable[tuple[ClientId, Mapping[str, float]]], names: Sequence[str] = ()
) -> History:
    """Return the history after clients took part, each with these facts; in the order of the rounds.

    The first remembered value is the claim, later ones are what counted: a claim that was cut once must not look like
    one that changed.
    """
    counts = dict(history.participations)
    first = {name: dict(history.first.get(name, {})) for name in names}
    recent = {name: dict(history.recent.get(name, {})) for name in names}
    for client, facts in reported:
        if facts.get(REMEMBERED):  # it was counted in the round of its answer
            continue
        counts[client] = counts.get(client, 0) + 1
        for name in (name for name in names if name in facts):  # not every fact is measured in every round
            first[name].setdefault(client, facts.get(f"{CLAIMED}{name}", facts[name]))
            recent[name][client] = (*recent[name].get(client, ()), facts[name])[-RECENT:]
    return History(history.rounds, counts, first, recent, history.pairs)


T = TypeVar("T")

OnStage: TypeAlias = Callable[[int, str, Sequence[ClientId]], None]
"""Called when a round enters a stage: round number, stage, and the clients that train in it."""
Rho: TypeAlias = float | Literal["1/K"]
"""Share of a client in a merged model; `1/K`: 1 / the number of clients in the round."""
Audit: TypeAlias = Mapping[ClientId, Mapping[str, float]]
"""Objectives by name: of the model on the server's rows (SERVER) and on each client's test rows; NaN if unknown."""
SERVER: ClientId = -1
"""Stands for the server where clients are listed."""


@dataclass(frozen=True, slots=True)
class State:
    """What one round passes to the next; a checkpoint stores all of it except the history, to the bit.

    own     each part's own state, by slot: collect, memory, models, search, server, `stage:NAME`
    """

    model: Model
    history: History = field(default_factory=History)
    own: Mapping[str, Own] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Read-only view of a round for its parts. What is computed on the server's rows is cached."""

    index: int
    model: Model
    history: History
    host: Host
    draws: Draws
    own: Mapping[str, Own] = field(default_factory=dict)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, state: State, host: Host, seed: int) -> View:
        """Return the view of the round after a state."""
        index = state.history.rounds + 1
        return cls(index, state.model, state.history, host, Draws(seed, index), state.own)

    def own_of(self, name: str) -> Own:
        """Return the state of a part; EMPTY before its first round."""
        return self.own.get(name, EMPTY)

    def predictions_before(self) -> Predictions:
        """Predictions of the model before the round on the server's rows."""
        return self._once("before", lambda: self._predict([self.model]))

    def predictions_merged(self, cohort: Cohort, rho: Rho) -> Predictions:
        """Predictions of (1 - rho) * model + rho * client's model on the server's rows, one per client."""
        share = np.float32(1 / len(cohort.ids) if rho == "1/K" else rho)
        rows = cohort.updates
        return self._once(
            (cohort.ids, share), lambda: self._predict(self.model + share * rows.row(i) for i in range(len(rows)))
        )

    def server_update(self) -> Model:
        """The update that the server trains on its own rows."""
        assert self.host.train is not None  # `check_words` requires "server training" of the host
        train, seed = self.host.train, self.draws.seed("server")
        return self._once("server update", lambda: train(self.model, seed) - self.model)

    def coalition_values(self, cohort: Cohort) -> CoalitionValues:
        """Values of the round's coalitions, each computed once."""
        from fedmerit.core.criteria.contribution import CoalitionValues

        predict = self.host.predict_many or self.host.predict
        return self._once("coalitions", lambda: CoalitionValues(cohort, self.model, predict))

    def _predict(self, models: Any) -> Predictions:
        assert self.host.predict is not None  # `check_words` requires "server rows" of the host
        return self.host.predict(models)

    def _once(self, key: Any, work: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = work()
        value: T = self._kept[key]
        return value


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Result of aggregating one round's replies, and the state that follows."""

    state: State
    cohort: Cohort
    dropped: Mapping[ClientId, str]
    groups: Groups
    moved: Moved
    rewards: SentRewards
    notes: tuple[Note, ...]
    diagnostics: Diagnostics | None
    summed: Summed = NOT_SUMMED


@dataclass(frozen=True, slots=True)
class Tested:
    """Clients' test results of the model after a round, and the audited objectives."""

    evaluation: Evaluation | None = None
    audit: Audit = field(default_factory=dict)


NOT_TESTED = Tested()


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one round; rows of `facts`, `weights` and `groups` belong to `ids`.

    weighting   the chosen weighting, and its `label`; None if no client was weighed
    numbers     further numbers of parts, by name: the `clip` of a private sum
    epsilon     privacy cost of the run so far, if it keeps an account
    validation  the measure on all clients' validation rows, for early stopping
    measure     what the run is judged by: an objective, see `core.objectives`

    `numbers` of the last round has the `training_loss` and the `validation_loss` of the final model.
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
    measure: str = ACCURACY

    @property
    def local(self) -> Vector | None:
        """The measure on each client's test rows; NaN where it is not defined, None if the round was not evaluated."""
        if self.evaluation is None or self.measure == ACCURACY:
            return None if self.evaluation is None else self.evaluation.local
        clients = range(len(self.evaluation.sizes))
        return np.array([self.audit.get(client, EMPTY).get(self.measure, np.nan) for client in clients])

    @property
    def value(self) -> float | None:
        """The measure, averaged over the clients' test rows; on the server's rows if it is defined at no client."""
        if self.evaluation is None or self.measure == ACCURACY:
            return None if self.evaluation is None else self.evaluation.accuracy
        assert self.local is not None  # it was evaluated
        value = mean_by_rows(self.local, self.evaluation.sizes)
        return self.audit.get(SERVER, EMPTY).get(self.measure, np.nan) if np.isnan(value) else value


def make_record(
    priority: tuple[str, ...], result: RoundResult, tested: Tested, bytes_down: int, bytes_up: int, clock: Clock
) -> Record:
    """Build the record of a round; `priority` is the recipe's, for a round without weighed clients."""
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
        {**result.summed.numbers, **moved.numbers},
    )


class Clock:
    """Measure the seconds per stage of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, stage: str, **within: float) -> None:
        """Assign the time since the last lap to a stage; `within` names seconds of it that belong to other stages."""
        now = perf_counter()
        self.laps[stage] = now - self._last - sum(within.values())
        self.laps |= {name: seconds for name, seconds in within.items() if seconds}
        self._last = now


def cosine_distances(cohort: Cohort) -> Matrix:
    """1 - cos of the updates of every pair of clients in the round; 1 if one of them is zero."""
    return distances_of(cosines_of(cohort.updates.products))


def remember_round(history: History, cohort: Cohort, groups: Groups, names: Sequence[str]) -> tuple[History, Groups]:
    """Return the history after the round, and the groups with the distances that the ledger needs for a resume."""
    after = remember(history, cohort, [name for name in names if name != PAIRS])
    if PAIRS not in names:
        return after, groups
    fresh = cohort.fresh()
    distances = cosine_distances(fresh) if groups.distances is None else groups.distances
    pairs = history.pairs.after(fresh.ids, distances)
    return replace(after, pairs=pairs), replace(groups, distances=distances)
