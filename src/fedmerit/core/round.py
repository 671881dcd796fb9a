"""One round of every algorithm: select, train, check, group, weigh, search, aggregate, reward, evaluate, record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from fedmerit.core.aggregation import Aggregation, decide, make_candidates
from fedmerit.core.check import check
from fedmerit.core.facts import CLOCK, EPOCHS, LOSS
from fedmerit.core.fleet import Fleet
from fedmerit.core.groups import Groups, PairDistances
from fedmerit.core.handout import SentRewards, send_rewards, tested
from fedmerit.core.objectives import Objective
from fedmerit.core.recipes import Recipe
from fedmerit.core.search import SearchState
from fedmerit.core.seeds import generator
from fedmerit.core.selection import Chosen, Selection, draw
from fedmerit.core.types import ClientId, Cohort, Download, Evaluation, History, Model, Replies, Vector
from fedmerit.core.validation import Audit, audit, validate
from fedmerit.core.weights import Note, Weights

NOTHING_YET = History()
NOTHING_TRIED = SearchState()
NOTHING_GIVEN = SentRewards()
NOBODY_MET = PairDistances()


@dataclass(frozen=True, slots=True)
class State:
    """What one round hands to the next."""

    model: Model
    history: History = NOTHING_YET
    standing: SearchState = NOTHING_TRIED
    met: PairDistances = NOBODY_MET


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
    decision: Aggregation | None = None
    groups: Groups | None = None
    handout: SentRewards = NOTHING_GIVEN
    notes: tuple[Note, ...] = ()
    audit: Audit = field(default_factory=dict)


def play(
    state: State,
    recipe: Recipe,
    fleet: Fleet,
    *,
    selection: Selection,
    seed: int,
    evaluate: bool,
    objectives: Sequence[Objective] = (),
) -> tuple[State, Record]:
    """One round; the model stays as it is where nobody can be weighed. `objectives` are audited when it evaluates."""
    clock, index = Clock(), state.history.rounds + 1
    chosen = selection(index, len(fleet.names()), seed)
    parcels = {client: Download(state.model, recipe.own, epochs) for client, epochs in chosen.items()}
    replies = fleet.train(index, parcels, recipe.asks, seed)
    clock.lap("train")

    round, left_out = check(index, replies, recipe.needs, len(state.model), _known(recipe, chosen, replies))
    round, notes = validate(recipe, round, state.model, fleet)
    clock.lap("check")

    groups = recipe.grouping(round.updates, round.ids, state.met)
    clock.lap("group")

    random = generator(seed, "search", index)
    options = make_candidates(recipe, state.standing, round, state.history, groups, random) if round.ids else []
    clock.lap("weigh")

    found = decide(recipe, groups, options, state.standing, state.model, round.updates, fleet, random)
    clock.lap("aggregate")
    if found.exchanges:
        clock.move("aggregate", "search", found.seconds)

    handout = send_rewards(recipe, round, groups, found, fleet)
    clock.lap("reward")

    evaluation = (found.evaluation or tested(recipe, found.model, fleet)) if evaluate else None
    audited = audit(objectives, recipe, found.model, fleet) if evaluate else {}
    clock.lap("evaluate")

    record = Record(
        index,
        found.option.way.priority if found.option else recipe.priority,
        round.ids,
        round.facts,
        found.option.weights if found.option else None,
        left_out,
        evaluation,
        bytes_down=replies.bytes_down + handout.size,
        bytes_up=replies.bytes_up,
        seconds=clock.laps,
        decision=found,
        groups=groups,
        handout=handout,
        notes=notes,
        audit=audited,
    )
    return State(found.model, remember(state.history, round), found.standing, groups.met or state.met), record


def begin(recipe: Recipe, fleet: Fleet, model: Model, seed: int) -> tuple[Model, tuple[ClientId, ...]]:
    """M2F's initial phase (SPEC A3): a fraction lambda of the clients train, their models are averaged; and who did."""
    if not recipe.initial:
        return model, ()
    chosen = draw(recipe.initial, len(fleet.names()), seed, "initial", 0)
    replies = fleet.train(0, {client: Download(model) for client in chosen}, ("samples",), seed)
    round, _ = check(0, replies, ("samples",), len(model))
    if not round.ids:
        return model, ()
    return model + round.updates.combine(np.full(len(round.ids), 1 / len(round.ids))), round.ids


def _known(recipe: Recipe, chosen: Chosen, replies: Replies) -> dict[str, Mapping[ClientId, float]]:
    """Facts of the server's own: the epochs it asked for, the time by its clock where that counts."""
    known: dict[str, Mapping[ClientId, float]] = {}
    if any(chosen.values()):
        known[EPOCHS] = {client: float(epochs or 1) for client, epochs in chosen.items()}
    if CLOCK in recipe.needs:
        known[CLOCK] = replies.seconds
    return known


def remember(history: History, round: Cohort) -> History:
    """The history after one more round."""
    counts, losses = dict(history.participations), dict(history.losses)
    for place, client in enumerate(round.ids):
        counts[client] = counts.get(client, 0) + 1
        if LOSS in round.facts:
            losses[client] = losses.get(client, 0.0) + float(round.facts[LOSS][place])
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
