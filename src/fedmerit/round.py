"""One round of every algorithm: select, train, check, score, weigh, search, aggregate, evaluate, record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from fedmerit.check import check
from fedmerit.decision import Decision, decide, weigh_ways
from fedmerit.fleet.base import Fleet
from fedmerit.recipes import Recipe
from fedmerit.search import Standing
from fedmerit.seeds import generator
from fedmerit.types import ClientId, Evaluation, History, Model, Parcel, Vector
from fedmerit.weights import Weights

NOTHING_YET = History()
NOTHING_TRIED = Standing()


@dataclass(frozen=True, slots=True)
class State:
    """What one round hands to the next."""

    model: Model
    history: History = NOTHING_YET
    standing: Standing = NOTHING_TRIED


@dataclass(frozen=True, slots=True)
class Record:
    """What one round did; rows of `facts` and `weights` belong to `ids`."""

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
    decision: Decision | None = None


def play(
    state: State, recipe: Recipe, fleet: Fleet, *, fraction: float, seed: int, evaluate: bool
) -> tuple[State, Record]:
    """One round; the model stays as it is where nobody can be weighed."""
    clock, index = Clock(), state.history.rounds + 1
    chosen = select(len(fleet.names()), fraction, seed, index)
    parcels = {client: Parcel(state.model) for client in chosen}
    replies = fleet.train(index, parcels, recipe.needs, seed)
    clock.lap("train")

    round, left_out = check(index, replies, recipe.needs, len(state.model))
    random = generator(seed, "search", index)
    options = weigh_ways(recipe, state.standing, round, state.history, random) if round.ids else []
    clock.lap("weigh")

    found = decide(recipe.search, options, state.standing, state.model, round.updates, fleet, random)
    clock.lap("aggregate")
    if found.exchanges:
        clock.move("aggregate", "search", found.seconds)

    evaluation = (found.evaluation or fleet.evaluate([found.model])[0]) if evaluate else None
    clock.lap("evaluate")

    record = Record(
        index,
        found.option.way.priority if found.option else recipe.priority,
        round.ids,
        round.facts,
        found.option.weights if found.option else None,
        left_out,
        evaluation,
        bytes_down=sum(parcel.size for parcel in parcels.values()),
        bytes_up=replies.bytes_up,
        seconds=clock.laps,
        decision=found,
    )
    return State(found.model, remember(state.history, round.ids), found.standing), record


def select(clients: int, fraction: float, seed: int, index: int) -> tuple[ClientId, ...]:
    """max(round(C * K), 1) clients, uniformly without replacement (SPEC A0), in id order."""
    number = max(round(fraction * clients), 1)
    drawn = generator(seed, "select", index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def remember(history: History, ids: tuple[ClientId, ...]) -> History:
    """The history after one more round."""
    counts = dict(history.participations)
    for client in ids:
        counts[client] = counts.get(client, 0) + 1
    return History(history.rounds + 1, counts)


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
