"""State and record: what a round starts from, what it leaves to the next, and what it writes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from fedmerit.core.history import History
from fedmerit.core.models.rewards import SentRewards
from fedmerit.core.seeds import Draws
from fedmerit.core.types import EMPTY, ClientId, Cohort, Evaluation, Model, Note, Own, Vector
from fedmerit.core.updates import Diagnostics
from fedmerit.core.weights.weigh import Weights

if TYPE_CHECKING:
    from fedmerit.core.criteria.contribution import CoalitionValues
    from fedmerit.core.host import Host
    from fedmerit.core.models.grouping import Groups
    from fedmerit.core.models.shared import Moved
    from fedmerit.core.objectives import Predictions
    from fedmerit.core.search.search import SearchReport, Weighting

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
