"""One round of every algorithm: select, train, check, score, weigh, aggregate, evaluate, record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from fedmerit.check import check
from fedmerit.fleet.base import Fleet
from fedmerit.recipes import Recipe
from fedmerit.seeds import generator
from fedmerit.types import ClientId, Evaluation, History, Matrix, Model, Parcel, Round, Vector
from fedmerit.weights import Weights, weigh

NOTHING_YET = History()


@dataclass(frozen=True, slots=True)
class State:
    """What one round hands to the next."""

    model: Model
    history: History = NOTHING_YET


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
    weights = earn(recipe, round, state.history) if round.ids else None
    clock.lap("weigh")

    model = state.model if weights is None else state.model + round.updates.combine(weights.weights)
    clock.lap("aggregate")

    evaluation = fleet.evaluate([model])[0] if evaluate else None
    clock.lap("evaluate")

    record = Record(
        index,
        recipe.priority,
        round.ids,
        round.facts,
        weights,
        left_out,
        evaluation,
        bytes_down=sum(parcel.size for parcel in parcels.values()),
        bytes_up=replies.bytes_up,
        seconds=clock.laps,
    )
    return replace(state, model=model, history=remember(state.history, round.ids)), record


def select(clients: int, fraction: float, seed: int, index: int) -> tuple[ClientId, ...]:
    """max(round(C * K), 1) clients, uniformly without replacement (SPEC A0), in id order."""
    number = max(round(fraction * clients), 1)
    drawn = generator(seed, "select", index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def table(recipe: Recipe, round: Round, history: History) -> Matrix:
    """The criteria side by side, one row per client, most important criterion first."""
    return np.column_stack([criterion(round, history) for criterion in recipe.criteria])


def earn(recipe: Recipe, round: Round, history: History) -> Weights:
    """Criteria -> normalised table -> scores -> weights."""
    samples = round.facts["samples"]
    fallback = samples if recipe.when_zero == "samples" else np.zeros(len(samples))
    return weigh(table(recipe, round, history), recipe.priority, recipe.score, recipe.normalise, fallback)


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
