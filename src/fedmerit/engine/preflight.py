"""Preflight: whether the data has what a recipe asks for, told before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmerit.config.account import require_account
from fedmerit.config.schema import Config
from fedmerit.core.attacks import Attackers, Liar
from fedmerit.core.collect.collect import Collect, Poisson, Uniform
from fedmerit.core.collect.schedules import Available, Schedule
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.validated import validated_of
from fedmerit.core.facts import (
    CLIENT_FACT,
    DONE,
    EPOCHS,
    IS_WORD,
    LOSS,
    SIMULATED,
    SITE,
    SPEED,
    STALENESS,
    is_own_word,
    measure,
)
from fedmerit.core.host import CLIENT_WORDS, ServerSetup, predict_all, server_words
from fedmerit.core.learner import Learner
from fedmerit.core.objectives import AND, ByGroup, Objective, Predictions, find_objective
from fedmerit.core.parts import Words, check_words
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.server.centring import check_centred
from fedmerit.core.server.private_sum import check_selection
from fedmerit.core.targets import Target, TargetKind, has_losses, has_probabilities, target_of
from fedmerit.core.types import Samples
from fedmerit.errors import ConfigError, DataError, did_you_mean
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task


def check_task(
    task: Task,
    recipe: Recipe,
    collect: Collect,
    audits: Sequence[str] = (),
    *,
    one_device: bool = True,
    budget: float | None = None,
) -> None:
    """The server and the clients of a task have what the recipe asks for; `one_device`: all clients share a machine."""
    check_server(task.server(), recipe, collect, audits, client_words(task.federation))
    check_clients(task, recipe, audits)
    if DONE in recipe.required_facts and budget is None:
        raise ConfigError("BudgetComputation reads the epochs done within run.budget_seconds, which is not set")
    if budget is not None and one_device and SPEED not in task.federation.facts:
        raise ConfigError(
            "run.budget_seconds on this machine, where all clients share a device, needs their simulated speeds: a "
            "column speed, rows per second, in [facts]; on Flower clients use the clock"
        )
    for fact in SIMULATED if one_device else ():
        if fact in recipe.required_facts and fact not in task.federation.facts:
            raise ConfigError(
                f"the fact {fact!r} is one of devices, and on this machine all clients share one; simulate it with a "
                f"column {fact} in [facts], or run on Flower, where it is measured"
            )


BELIEVED: Words = frozenset({"validation rows", "test rows"})
"""What the clients of a fleet are believed to have, where nobody can look."""


def client_words(data: Federation) -> Words:
    """What the clients' rows give."""
    rows = {"validation rows": len(data.validation.y), "test rows": len(data.test.y)}
    return frozenset(word for word, number in rows.items() if number)


def check_parts(recipe: Recipe, collect: Collect, host: Words) -> None:
    """The parts of a run go together: what one needs, another part or the host gives."""
    facts = {f"fact {fact}" for fact in (STALENESS, EPOCHS) if fact in recipe.required_facts}
    selection = getattr(collect, "selection", None)
    if selection is not None and not isinstance(selection, Uniform | Poisson | Available | Schedule):
        host = host | {f"fact {EPOCHS}"}  # a user's selection is believed
    parts = (*recipe.parts, collect, selection, _Facts(frozenset(facts)))
    check_words(parts, host, only=lambda word: word not in RECIPE_WORDS)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Stands for the facts that criteria read and only the collector gives."""

    needs: Words
    name: str = "the recipe"
    why: ClassVar[Mapping[str, str]] = {
        f"fact {STALENESS}": 'late answers are dropped; set run.wait.late = "use"',
        f"fact {EPOCHS}": "SimulatedComputation reads the epochs that each client is given; set "
        "run.schedule.epochs = [1, 3], or use Computation, which reads the clock",
    }


def check_waited(config: Config) -> None:
    """On this machine clients are late, and the day passes, in a simulation only."""
    if config.run.availability is not None and config.run.availability.clock == "server":
        raise ConfigError(
            'run.availability.clock = "server" is for clients that are elsewhere; on this machine set "simulated"'
        )
    if config.run.wait is not None and config.run.delays is None:
        raise ConfigError(
            "run.wait has no effect on this machine, where every client answers; set run.delays to simulate some that "
            "are late, or run it on Flower"
        )


def check_server(
    server: ServerSetup, recipe: Recipe, collect: Collect, audits: Sequence[str] = (), clients: Words | None = None
) -> None:
    """The server has the rows, the learner and the selection that the recipe needs; no row of a client is asked for.

    `clients` are the words that the clients' rows give; None: nobody knows them here, and they are believed.
    """
    check_centred(server.learner, server.centre)
    _check_privacy(server, recipe, collect)
    given = BELIEVED if clients is None else clients
    check_parts(recipe, collect, server_words(server) | CLIENT_WORDS | given)
    rows = server.rows
    measured = [one.objective for one in validated_of(recipe)]
    measured += [one.objective for one in recipe.all_stages if isinstance(one, Contribution) and one.method != "cosine"]
    check_objectives(measured, rows, server.learner)
    check_objectives(find_objectives(audits) if rows else (), rows, server.learner)
    if LOSS in recipe.required_facts and not has_losses(server.learner):
        raise ConfigError(
            "the fact `loss` needs a learner with a method `predict_proba`, which this task's learner does not have"
        )
    if SITE in recipe.required_facts:
        server.site_numbers()


def _check_privacy(server: ServerSetup, recipe: Recipe, collect: Collect) -> None:
    """All that a private run reveals about its clients is in the account."""
    privacy = privacy_of(recipe)
    if privacy is None:
        return
    require_account()
    check_selection(privacy, getattr(collect, "selection", Uniform()), len(server.names))
    if server.centre is not None:
        raise ConfigError(
            "task.centre reveals the federation's mean input without noise, which [privacy] does not account for; "
            "remove task.centre"
        )


def _check_words(data: Federation, recipe: Recipe) -> None:
    """Somebody has each word that a criterion asks for: `fact:job is Nurse` may be a slip."""
    for name in recipe.required_facts:
        of, is_word, word = name.removeprefix(CLIENT_FACT).partition(IS_WORD)
        column = data.facts.get(of, ()) if name.startswith(CLIENT_FACT) and is_word else ()
        if column and not any(is_own_word(value, word) for value in column):
            words = list(dict.fromkeys(f"{value:g}" if isinstance(value, float) else value for value in column))
            raise ConfigError(
                f"{name}: no client's {of} is {word!r}{did_you_mean(word, words)}; they have: {', '.join(words[:10])}"
            )


def check_clients(task: Task, recipe: Recipe, audits: Sequence[str] = ()) -> None:
    """The clients have the rows that the recipe needs; otherwise all would be left out, or could not answer."""
    try_model(task)
    data = task.federation
    _check_words(data, recipe)
    largest = data.client(int(data.test.sizes.argmax())).test
    try_objectives(find_objectives(audits), largest, task.learner)
    clients = np.flatnonzero(data.train.sizes)
    if not len(clients):
        raise DataError("no client has a training row")
    measure(data.samples(int(clients[0])), recipe.client_facts)
    _check_lies(task.attackers, recipe)


def _check_lies(attackers: Attackers, recipe: Recipe) -> None:
    """Liars lie about something that the recipe asks."""
    for coalition in attackers.coalitions:
        attack = coalition.attack
        if isinstance(attack, Liar) and not attack.factors.keys() & set(recipe.client_facts):
            raise ConfigError(
                f"task.attack: liars claim {', '.join(attack.factors)}, and the recipe asks clients for "
                f"{', '.join(recipe.client_facts)} alone; let them claim one of these"
            )


def try_model(task: Task) -> None:
    """The first model can read a row of the data and knows all classes; else no client could train it."""
    data, learner = task.federation, task.learner
    _check_target(data.target, target_of(learner))
    row = data.train.x[:1]
    try:
        model = learner.start(0)
    except Exception:  # the run fails at this by itself, and a study goes on with its other rows
        return
    shape = f"a row of {data.train.x.dtype} of shape {row.shape[1:]}"
    try:
        predicted, known = predict_all(learner, model, row)
    except Exception as error:  # whatever a user's module raises
        raise DataError(f"the model cannot read {shape}: {type(error).__name__}: {error}".splitlines()[0]) from error
    if data.target == "labels" and predicted.shape != (1, data.classes):
        raise DataError(f"the model tells {predicted.shape[1]} labels, and the data has {data.classes}")
    if known is not None and known.shape[1] < data.classes:
        raise DataError(f"the model tells {known.shape[1]} classes apart, and the data has {data.classes}")


def _check_target(known: TargetKind, target: Target) -> None:
    """The learner predicts what the labels are."""
    if known == target.kind:
        return
    ways = {"classes": "target=Classes()", "number": "target=Number(tolerance=...)", "labels": "target=Labels()"}
    raise ConfigError(
        f"the data's labels are of target {known!r}, and the learner predicts {target.kind!r}; "
        f"TorchLearner(build, {ways[known]}), from fedmerit.core.targets, or set the federation's target"
    )


def find_objectives(names: Sequence[str]) -> list[Objective]:
    """Objectives by name."""
    return [find_objective(name) for name in names]


def check_objectives(objectives: Sequence[Objective], rows: Samples | None, learner: Learner) -> None:
    """Every objective can be measured on the server's rows; asked before a run starts."""
    if not objectives:
        return
    if rows is None or not len(rows):
        name = objectives[0].name
        raise ConfigError(f"{name} is measured on rows of the server, and it has none; set task.server = 1000")
    predictions = try_objectives(objectives, rows, learner)
    for objective in objectives:
        if isinstance(objective, ByGroup) and len(predictions.groups(objective.attribute)) < 2:
            one = objective.attribute.replace(AND, " and ")
            raise DataError(f"{objective.name} compares groups, and the server's rows are all of one by {one}")


def try_objectives(objectives: Sequence[Objective], rows: Samples, learner: Learner) -> Predictions:
    """Ask every objective about a model that knows nothing; what cannot be measured at all is an error."""
    shape = (1, len(rows), rows.classes)
    guess = np.full(shape, 1 / rows.classes, dtype=np.float32) if has_probabilities(learner) else None
    predictions = Predictions(
        rows.y, rows.classes, rows.attributes, np.zeros_like(rows.y)[np.newaxis], guess, target_of(learner)
    )
    for objective in objectives:
        objective(predictions)
    return predictions
