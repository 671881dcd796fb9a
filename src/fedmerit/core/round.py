"""One round of every algorithm: the only file that names every stage.

    select -> choose -> download -> train -> check -> claims -> validate -> contribute -> observe -> clip -> group
           -> weigh -> search -> aggregate -> step -> control -> reward -> evaluate

`play` collects what the clients trained and `settle` is all that the server makes of it. A Flower strategy, which
collects in its own way, calls the same `settle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmerit.core.check import Known, Limits, check, check_criteria, measure_links, nobody_trained
from fedmerit.core.collect.late import Delays
from fedmerit.core.collect.pending import as_parts, from_parts, rounds_late, stale_notes, train_in_time
from fedmerit.core.collect.selection import Chosen, Selection, draw
from fedmerit.core.criteria.similarity import distances_in
from fedmerit.core.facts import CLOCK, EPOCHS, LINK, SAMPLES, SITE, STALENESS
from fedmerit.core.host import Fleet, Judges, PersonalClients, Predict, Server, Train
from fedmerit.core.models.choices import Choices, choose_or_deal, evaluate_chosen, move, with_hypotheses
from fedmerit.core.models.rewards import SentRewards, send_rewards
from fedmerit.core.objectives import Objective
from fedmerit.core.observations import observe_updates
from fedmerit.core.recipe import Recipe
from fedmerit.core.seeds import derive, generator
from fedmerit.core.server.aggregation import make_candidates
from fedmerit.core.server.controls import Control, apply_control
from fedmerit.core.server.private_sum import privacy_notes
from fedmerit.core.stages.claims import bound_claims
from fedmerit.core.stages.clip import clip_cohort
from fedmerit.core.stages.validation import (
    Audit,
    align,
    audit,
    contribute,
    hold_answers,
    hold_evaluation,
    hold_losses,
    observe,
    validate,
)
from fedmerit.core.state import Clock, OnStage, Record, Settled, State, make_record, remember
from fedmerit.core.types import NOTHING, ClientId, Download, Evaluation, Model, Replies


def play(
    state: State,
    recipe: Recipe,
    fleet: Fleet,
    *,
    selection: Selection,
    seed: int,
    evaluate: bool,
    objectives: Sequence[Objective] = (),
    rounds: int | None = None,
    budget: float | None = None,
    delays: Delays | None = None,
    on_stage: OnStage = lambda index, stage, clients: None,
) -> tuple[State, Record]:
    """One round, of `rounds`: the state after it, and what it did. `objectives` are audited where it evaluates.

    With a `budget`, in seconds, clients train as many epochs as they can. With `delays` some clients are late, in a
    simulation, and the round goes on without them; what they answer later is dropped, or counts in the round then.
    `on_stage` hears when clients train, when the server settles what came of it, and when the model is evaluated.
    """
    parts, under_way = from_parts(state.parts)
    clock, index, server = Clock(), state.history.rounds + 1, fleet.server
    state = with_hypotheses(recipe, replace(state, parts=parts), server, seed)
    recipe = recipe.in_round(index)
    drawn_from = seed if recipe.privacy is None else recipe.privacy.selection_seed(seed)
    chosen = selection(index, len(server.names), drawn_from)
    choices = choose_or_deal(recipe, state, fleet, tuple(chosen), seed)
    control, lr = server.control, server.rate(index, rounds)
    extras = {client: control.extras(state.parts, client) if control else NOTHING for client in chosen}
    pull = recipe.beside.pull if recipe.beside else None
    downloads = {
        client: Download(choices.models[place], recipe.personal, chosen[client], extras[client], lr, budget, pull)
        for client, place in choices.places.items()
    }
    on_stage(index, "train", tuple(chosen))
    replies, under_way = train_in_time(fleet, index, downloads, recipe.client_facts, seed, delays, under_way)
    replies = choices.without_mute(replies, tuple(chosen))
    asked = dict(chosen)
    if replies.started and any(chosen.values()):  # those who answer an earlier round trained that round's epochs
        of_round = {number: selection(number, len(server.names), drawn_from) for number in replies.started.values()}
        asked |= {client: of_round[number].get(client) for client, number in replies.started.items()}
    clock.lap("train")

    on_stage(index, "settle", ())
    settled = settle(
        state,
        recipe,
        replies,
        judges=fleet,
        predict=server.predict,
        predict_many=server.predict_many if recipe.measured else None,
        train=server.train,
        limits=server.limits,
        known=server_facts(recipe, index, asked, replies, server),
        personal=fleet,
        layers=server.layers(len(state.model)) if recipe.personal else (),
        control=control,
        choices=choices,
        clients=len(server.names),
        seed=seed,
        clock=clock,
    )

    parts = {**settled.state.parts, **as_parts(under_way)}
    notes = (*settled.notes, *stale_notes(settled.cohort, replies.started))
    settled = replace(settled, state=replace(settled.state, parts=parts), notes=notes)
    evaluation: Evaluation | None = None
    audited: Audit = NOTHING
    if evaluate:
        on_stage(index, "evaluate", ())
        model = settled.state.model
        if len(choices.models) > 1:
            evaluation, audited = evaluate_chosen(settled.state, fleet, objectives)
        elif recipe.keeps_models:
            evaluation = fleet.evaluate_personal(model)
        else:
            evaluation = settled.aggregation.evaluation if model is settled.aggregation.model else None
            evaluation = evaluation or fleet.evaluate([model])[0]
            doubts = hold_evaluation(recipe, model, evaluation, server.predict)
            settled = replace(settled, notes=(*settled.notes, *doubts))
        audited = audited or audit(objectives, model, fleet, personal=recipe.keeps_models)
    clock.lap("evaluate")
    down = choices.bytes_down + replies.bytes_down + settled.rewards.nbytes + settled.aggregation.bytes_down
    return settled.state, make_record(recipe, settled, evaluation, down, replies.bytes_up, clock, audited)


def settle(
    state: State,
    recipe: Recipe,
    replies: Replies,
    *,
    judges: Judges,
    predict: Predict | None = None,
    predict_many: Predict | None = None,
    train: Train | None = None,
    limits: Limits = NOTHING,
    known: Known = NOTHING,
    personal: PersonalClients | None = None,
    layers: Sequence[int] = (),
    control: Control | None = None,
    choices: Choices | None = None,
    clients: int = 0,
    seed: int,
    clock: Clock,
) -> Settled:
    """All that the server makes of the replies of a round; the model stays as it is where nobody can be weighed.

    judges     the clients that a search asks
    predict    how models are scored on the server's own rows, for `validated:` criteria; `predict_many` is a quicker
               way for the many models that contributions ask about
    train      how a model is trained on them, for the criterion Alignment
    limits     the most that a client may claim, by fact
    known      facts of the server's own
    personal   the clients with personal models, where the recipe has such; `layers` are the lengths of the model's
    choices    which of the server's models each client took, where the recipe has several
    control    what clients are sent beside the model, of so many `clients`, where their learner corrects its gradients
    """
    index = state.history.rounds + 1
    recipe = recipe.in_round(index)
    cohort, left_out = check(index, replies, recipe.required_facts, len(state.model), known=known, limits=limits)
    cohort, bounded = bound_claims(recipe.claims, cohort, state.history, capped=recipe.cap is not None)
    cohort, notes = validate(recipe, cohort, state.model, predict)
    drawn = derive(seed, "contribution", index)
    cohort, worth = contribute(recipe, cohort, state.model, predict_many or predict, drawn)
    cohort = align(recipe, cohort, state.model, train, derive(seed, "server", index))
    cohort = hold_losses(recipe, cohort, state.model, predict)
    cohort, seen = observe(recipe, cohort, state.history, state.distances)
    cohort, immeasurable = check_criteria(recipe.criteria, cohort, state.history)
    left_out |= immeasurable
    notes += worth + nobody_trained(cohort, left_out)
    observations = observe_updates(cohort.updates)
    cohort, cut = clip_cohort(recipe.clip, cohort, state.history)
    clock.lap("check")

    groups = recipe.grouping(cohort.updates, cohort.ids, state.distances)
    if choices is not None and recipe.hypotheses is not None:
        groups = choices.groups(cohort.ids)
    if recipe.meets:
        apart = distances_in(cohort) if groups.distances is None else groups.distances
        groups = replace(groups, distances=apart, pairs=state.distances.after(cohort.ids, apart, groups.labels))
    clock.lap("group")

    random = generator(seed, "search", index)
    moved = "move" in state.parts
    candidates = make_candidates(recipe, cohort, state.history, groups, state.search, random, moved)
    clock.lap("weigh")

    drawn = derive(seed, "aggregate", index)
    aggregation = move(choices, recipe, cohort, groups, candidates, state, judges, random, drawn, clients, predict)
    cohort, doubts = hold_answers(cohort, aggregation.reports)
    notes += doubts
    notes += privacy_notes(recipe.privacy, cohort, aggregation.clip)
    weights = aggregation.candidate.weights.weights if aggregation.candidate else None
    model, controls = apply_control(control, aggregation.model, state.parts, cohort, weights, clients)
    clock.lap("aggregate")
    if aggregation.exchanges:
        clock.move("aggregate", "search", aggregation.seconds)

    rewards = SentRewards()
    if personal is not None and weights is not None and aggregation.aggregates is not None:
        rows = aggregation.aggregates
        rewards = send_rewards(recipe.reward, recipe.acceptance, cohort, groups, weights, rows, personal, layers)
    clock.lap("reward")

    history = remember(state.history, cohort, recipe.remembered_facts)
    parts = {**aggregation.parts, **controls}
    after = State(model, parts, history, aggregation.search, groups.pairs or state.distances)
    return Settled(after, cohort, left_out, groups, aggregation, rewards, (*bounded, *notes, *seen, *cut), observations)


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


def server_facts(recipe: Recipe, index: int, chosen: Chosen, replies: Replies, server: Server) -> Known:
    """Facts of the server's own: the epochs that it asked for, the time by its clock and the site where they count.

    So is how many rounds old an update is, where that counts or some are.
    """
    known: dict[str, Mapping[ClientId, float]] = {}
    if any(chosen.values()):
        known[EPOCHS] = {client: float(epochs or 1) for client, epochs in chosen.items()}
    if replies.started or STALENESS in recipe.required_facts:
        known[STALENESS] = rounds_late(replies.ids, index, replies.started)
    if CLOCK in recipe.required_facts:
        known[CLOCK] = replies.seconds
    if SITE in recipe.required_facts:
        known[SITE] = server.site_numbers()
    if LINK in recipe.required_facts:
        known[LINK] = dict(enumerate(server.links)) if server.links else measure_links(replies)
    return known
