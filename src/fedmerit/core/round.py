"""One round of every algorithm: select, train, check, measure, weigh, search, aggregate, reward, test.

`run_round` collects what the clients trained and `aggregate_round` does the server's part. A Flower strategy, which
collects differently, calls the same `aggregate_round`. A feature is a part in a slot: a part that a recipe does not
have is not called, and no line here belongs to a single feature.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedmerit.core.check import check, check_criteria, many_excluded, nobody_trained
from fedmerit.core.collect.collect import Collect
from fedmerit.core.collect.facts_first import receive_uploads
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment, Job
from fedmerit.core.objectives import Objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.search import make_candidates
from fedmerit.core.seeds import Draws
from fedmerit.core.stages.stages import Stage
from fedmerit.core.state import (
    NOT_TESTED,
    Clock,
    OnStage,
    Record,
    RoundResult,
    State,
    View,
    make_record,
    remember_round,
)
from fedmerit.core.types import Cohort, Download, Model, Note, Own, Replies
from fedmerit.core.updates import diagnose


def run_round(
    state: State,
    recipe: Recipe,
    host: Host,
    collect: Collect,
    seed: int,
    evaluate: bool = True,
    objectives: Sequence[Objective] = (),
    on_stage: OnStage = lambda index, stage, clients: None,
) -> tuple[State, Record]:
    """Run one round: select clients, train, aggregate, reward, test.

    state       the state after the previous round
    collect     which clients take part, and which answers count
    evaluate    whether clients test the model after the round; then `objectives` are audited too
    on_stage    called when clients train, when the server aggregates, and when the model is evaluated
    """
    clock, view = Clock(), View.of(state, host, seed)
    selected = collect.select(view)
    assignment = recipe.models.assign(tuple(selected), view)
    training, lr = recipe.models.training_mode(view.index), host.client_lr(view.index)
    downloads = {
        client: Download(
            assignment.models[number], selected.get(client), lr, training, recipe.server.vectors(client, view)
        )
        for client, number in assignment.model_of.items()
    }
    on_stage(view.index, "train", tuple(selected))
    replies = collect.collect(downloads, recipe.required_facts, view)
    clock.lap("train")

    on_stage(view.index, "aggregate", ())
    result = aggregate_round(state, recipe, replies, host, assignment, seed, clock)
    tested = NOT_TESTED
    if evaluate:
        on_stage(view.index, "evaluate", ())
        tested = recipe.models.test(result, host, objectives)
    clock.lap("evaluate")
    down = assignment.bytes_down + replies.bytes_down + result.rewards.nbytes + result.moved.search.bytes_down
    down, up = down + result.summed.bytes_down, replies.bytes_up + result.summed.bytes_up
    return result.state, make_record(recipe.priority, result, tested, down, up, clock)


def aggregate_round(
    state: State, recipe: Recipe, replies: Replies, host: Host, assignment: Assignment, seed: int, clock: Clock
) -> RoundResult:
    """Turn the replies of a round into weights, the next model and rewards; without valid replies the model stays."""
    view = View.of(state, host, seed)
    cohort, dropped = check(replies, recipe.required_facts, view, assignment.failed)
    cohort, last_answers = recipe.memory.recall(cohort, dropped, view)
    cohort, measured = run_stages(recipe.measuring, cohort, view)
    # Criteria are checked after measuring stages, which add facts, and before clipping, which changes the norms.
    cohort, unmeasured = check_criteria(recipe.criteria, cohort, state.history)
    diagnostics = diagnose(cohort.updates)
    cohort, bounded = run_stages(recipe.bounding, cohort, view)
    clock.lap("check")

    groups = recipe.models.group(cohort, assignment, view)
    clock.lap("group")
    job = Job(recipe, cohort, groups, make_candidates(recipe, cohort, groups, view), view)
    clock.lap("weigh")
    job = receive_uploads(job)
    moved = recipe.models.move(job, assignment)
    clock.lap("aggregate", search=moved.search.seconds, upload=job.summed.seconds)
    rewards = recipe.models.send_rewards(job, moved)
    clock.lap("reward")

    own = {**state.own, "memory": last_answers, **measured.own, **bounded.own, **moved.own}
    cohort = job.cohort
    history, groups = remember_round(state.history, cohort, job.groups, recipe.remembers)
    dropped |= {**unmeasured, **job.summed.failed}
    reply_notes = tuple(note for note in replies.notes if note.client in cohort.ids)
    about = (*nobody_trained(cohort, dropped, host.names), *many_excluded(cohort))
    notes = (*measured.notes, *about, *bounded.notes, *job.summed.notes, *moved.notes, *reply_notes)
    after = State(moved.model, history, {name: part_state for name, part_state in own.items() if part_state})
    return RoundResult(after, cohort, dropped, groups, moved, rewards, notes, diagnostics, job.summed)


def initial_state(recipe: Recipe, host: Host, model: Model, seed: int) -> tuple[State, tuple[Note, ...]]:
    """State before round 1 from the learner's first model: M2F's initial phase, IFCA's further models."""
    started, own, notes = recipe.models.start(model, host, Draws(seed, 0))
    return State(started, own={"models": own} if own else {}), notes


class Ran(NamedTuple):
    """Notes of the stages of a phase, and their states by the key of `State.own`."""

    notes: tuple[Note, ...]
    own: Mapping[str, Own]


def run_stages(stages: Sequence[Stage], cohort: Cohort, view: View) -> tuple[Cohort, Ran]:
    """Run the stages in order and return the cohort with the facts that they measure."""

    notes, own = list[Note](), dict[str, Own]()
    for stage in stages if cohort.ids else ():
        measured = stage.measure(cohort, view)
        cohort = cohort.with_facts(measured.facts)
        notes += measured.notes
        own |= {f"stage:{stage.name}": measured.own} if measured.own else {}
    return cohort, Ran(tuple(notes), own)
