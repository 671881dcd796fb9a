"""One round of every algorithm: the only file that names every stage.

    select -> download -> train -> check -> validate -> group -> weigh -> search -> aggregate -> step
           -> reward -> evaluate

`play` collects what the clients trained and `settle` is all that the server makes of it. A Flower strategy, which
collects in its own way, calls the same `settle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedmerit.core.aggregation import aggregate, make_candidates
from fedmerit.core.check import Known, Limits, check
from fedmerit.core.clip import clip_cohort
from fedmerit.core.facts import CLOCK, EPOCHS, SAMPLES
from fedmerit.core.fleet import Fleet, Judges, PersonalClients, Predict, Train
from fedmerit.core.objectives import Objective
from fedmerit.core.recipes import Recipe
from fedmerit.core.rewards import SentRewards, send_rewards
from fedmerit.core.seeds import derive, generator
from fedmerit.core.selection import Chosen, Selection, draw
from fedmerit.core.state import Clock, Record, Settled, State, make_record, remember
from fedmerit.core.types import NOTHING, ClientId, Download, Evaluation, Model, Replies
from fedmerit.core.validation import Audit, align, audit, validate


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
    """One round: the state after it, and what it did. `objectives` are audited where it evaluates."""
    clock, index, server = Clock(), state.history.rounds + 1, fleet.server
    chosen = selection(index, len(server.names), seed)
    downloads = {client: Download(state.model, recipe.personal, epochs) for client, epochs in chosen.items()}
    replies = fleet.train(index, downloads, recipe.client_facts, seed)
    clock.lap("train")

    settled = settle(
        state,
        recipe,
        replies,
        judges=fleet,
        predict=server.predict,
        train=server.train,
        limits=server.limits,
        known=server_facts(recipe, chosen, replies),
        personal=fleet,
        layers=server.layers() if recipe.personal else (),
        seed=seed,
        clock=clock,
    )

    evaluation: Evaluation | None = None
    audited: Audit = NOTHING
    if evaluate:
        model = settled.state.model
        evaluation = settled.aggregation.evaluation or (
            fleet.evaluate_personal(model) if recipe.personal else fleet.evaluate([model])[0]
        )
        audited = audit(objectives, model, fleet, personal=recipe.personal is not None)
    clock.lap("evaluate")
    down = replies.bytes_down + settled.rewards.nbytes + settled.aggregation.bytes_down
    return settled.state, make_record(recipe, settled, evaluation, down, replies.bytes_up, clock, audited)


def settle(
    state: State,
    recipe: Recipe,
    replies: Replies,
    *,
    judges: Judges,
    predict: Predict | None = None,
    train: Train | None = None,
    limits: Limits = NOTHING,
    known: Known = NOTHING,
    personal: PersonalClients | None = None,
    layers: Sequence[int] = (),
    seed: int,
    clock: Clock,
) -> Settled:
    """All that the server makes of the replies of a round; the model stays as it is where nobody can be weighed.

    judges     the clients that a search asks
    predict    how models are scored on the server's own rows, for `validated:` criteria
    train      how a model is trained on them, for the criterion Alignment
    limits     the most that a client may claim, by fact
    known      facts of the server's own
    personal   the clients with personal models, where the recipe has such; `layers` are the lengths of the model's
    """
    index = state.history.rounds + 1
    cohort, left_out = check(index, replies, recipe.required_facts, len(state.model), known=known, limits=limits)
    cohort, notes = validate(recipe, cohort, state.model, predict)
    cohort = align(recipe, cohort, state.model, train, derive(seed, "server", index))
    cohort, cut = clip_cohort(recipe.clip, cohort)
    clock.lap("check")

    groups = recipe.grouping(cohort.updates, cohort.ids, state.distances)
    clock.lap("group")

    random = generator(seed, "search", index)
    moved = "move" in state.parts
    candidates = make_candidates(recipe, cohort, state.history, groups, state.search, random, moved)
    clock.lap("weigh")

    drawn = derive(seed, "aggregate", index)
    aggregation = aggregate(
        recipe, cohort, groups, candidates, state.model, state.parts, state.search, judges, random, drawn
    )
    clock.lap("aggregate")
    if aggregation.exchanges:
        clock.move("aggregate", "search", aggregation.seconds)

    rewards = SentRewards()
    if personal is not None and aggregation.candidate is not None and aggregation.aggregates is not None:
        weights, rows = aggregation.candidate.weights.weights, aggregation.aggregates
        rewards = send_rewards(recipe.reward, recipe.acceptance, cohort, groups, weights, rows, personal, layers)
    clock.lap("reward")

    history = remember(state.history, cohort)
    after = State(aggregation.model, aggregation.parts, history, aggregation.search, groups.pairs or state.distances)
    return Settled(after, cohort, left_out, groups, aggregation, rewards, (*notes, *cut))


def begin(recipe: Recipe, fleet: Fleet, model: Model, seed: int) -> tuple[Model, tuple[ClientId, ...]]:
    """The initial phase: a share of the clients train, their models are averaged [M2F, Alg. 2]; and who did."""
    if not recipe.initial:
        return model, ()
    chosen = draw(recipe.initial, len(fleet.server.names), seed, "initial", 0)
    replies = fleet.train(0, {client: Download(model) for client in chosen}, (SAMPLES,), seed)
    cohort, _ = check(0, replies, (SAMPLES,), len(model), limits=fleet.server.limits)
    if not cohort.ids:
        return model, ()
    return model + cohort.updates.combine(np.full(len(cohort.ids), 1 / len(cohort.ids))), cohort.ids


def server_facts(recipe: Recipe, chosen: Chosen, replies: Replies) -> Known:
    """Facts of the server's own: the epochs that it asked for, the time by its clock where that counts."""
    known: dict[str, Mapping[ClientId, float]] = {}
    if any(chosen.values()):
        known[EPOCHS] = {client: float(epochs or 1) for client, epochs in chosen.items()}
    if CLOCK in recipe.required_facts:
        known[CLOCK] = replies.seconds
    return known
