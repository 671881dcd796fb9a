"""Preflight: whether the data has what a recipe asks for, told before a run starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.config.account import require_account
from fedmerit.config.schema import Config
from fedmerit.core.attacks import Attackers, Liar
from fedmerit.core.collect.selection import Available, Poisson, Schedule, Selection, Uniform
from fedmerit.core.facts import (
    ALIGNMENT,
    DONE,
    EPOCHS,
    IS,
    LOSS,
    OWN,
    SIMULATED,
    SITE,
    SPEED,
    STALENESS,
    is_own_word,
    measure,
)
from fedmerit.core.host import Server, predict_all
from fedmerit.core.learner import PulledLearner
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.recipe import MEAN, Recipe
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.server.centring import check_centred
from fedmerit.core.server.controls import Control
from fedmerit.core.server.optimizers import Plain
from fedmerit.core.server.private_sum import check_selection
from fedmerit.core.stages.validation import NO_ROWS, check_objectives, try_objectives
from fedmerit.core.targets import Target, TargetKind, has_losses, target_of
from fedmerit.errors import ConfigError, DataError, did_you_mean
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task


def check_task(
    task: Task,
    recipe: Recipe,
    selection: Selection,
    audits: Sequence[str] = (),
    *,
    one_device: bool = True,
    budget: float | None = None,
) -> None:
    """The server and the clients of a task have what the recipe asks for; `one_device`: all clients share a machine."""
    check_server(task.server(), recipe, selection, audits)
    check_clients(task, recipe, audits)
    if DONE in recipe.required_facts and budget is None:
        raise ConfigError("BudgetComputation goes by the epochs done within run.budget_seconds, which is not set")
    if budget is not None and one_device and SPEED not in task.federation.facts:
        raise ConfigError(
            "run.budget_seconds on this machine, where all clients share a device, needs their simulated speeds: a "
            "column speed, rows per second, in [facts]; on Flower clients go by the clock"
        )
    for fact in SIMULATED if one_device else ():
        if fact in recipe.required_facts and fact not in task.federation.facts:
            raise ConfigError(
                f"the fact {fact!r} is one of devices, and on this machine all clients share one; simulate it with a "
                f"column {fact} in [facts], or run on Flower, where it is measured"
            )


def check_late(config: Config, recipe: Recipe, server: Server) -> None:
    """Late answers can be used, where they are, and a criterion that goes by them has some."""
    used = config.run.wait is not None and config.run.wait.late == "use"
    if STALENESS in recipe.required_facts and not used:
        raise ConfigError(
            'Staleness goes by answers that come after their round, and these are dropped; set run.wait.late = "use"'
        )
    kept = "clients have personal models" if recipe.keeps_models else "clients keep controls" if server.control else ""
    kept = "clients choose among models in each round" if recipe.hypotheses else kept
    kept = "[privacy] accounts for answers in their round alone" if recipe.privacy else kept
    if used and kept:
        raise ConfigError(f'run.wait.late = "use" does not go with this run: {kept}; set run.wait.late = "drop"')


def check_waited(config: Config) -> None:
    """On this machine clients are late, and the day passes, in a simulation alone."""
    if config.run.availability is not None and config.run.availability.clock == "server":
        raise ConfigError(
            'run.availability.clock = "server" is for clients that are elsewhere; on this machine set "simulated"'
        )
    if config.run.wait is not None and config.run.delays is None:
        raise ConfigError(
            "run.wait has no effect on this machine, where every client answers; set run.delays to simulate some that "
            "are late, or run it on Flower"
        )


def check_server(server: Server, recipe: Recipe, selection: Selection, audits: Sequence[str] = ()) -> None:
    """The server has the rows, the learner and the selection that the recipe needs; no row of a client is asked for."""
    check_centred(server.learner, server.centre)
    _check_control(server.control, recipe)
    _check_beside(server, recipe)
    _check_privacy(server, recipe, selection)
    rows, losses = server.rows, has_losses(server.learner)
    check_objectives([criterion.objective for criterion in recipe.validated], rows, server.learner)
    by_rows = [one.objective for one in recipe.measured if one.method != "cosine"]
    check_objectives(by_rows, rows, server.learner)
    check_objectives(find_objectives(audits) if rows else (), rows, server.learner)
    if LOSS in recipe.required_facts and not losses:
        raise ConfigError(
            "the fact `loss` needs a learner with a method `predict_proba`, which this task's learner does not have"
        )
    if recipe.hypotheses is not None and not losses:
        raise ConfigError(
            "clients choose among hypotheses by loss, which needs a learner with a method `predict_proba`, and this "
            "task's learner does not have it"
        )
    if ALIGNMENT in recipe.required_facts and (rows is None or not len(rows)):
        raise ConfigError(NO_ROWS)
    if isinstance(recipe.search, BoldestFirst) and recipe.search.by == "loss" and not losses:
        raise ConfigError(
            "a search by loss needs a learner with a method `predict_proba`, which this task's learner does not have; "
            'set recipe.search.by = "accuracy"'
        )
    if EPOCHS in recipe.required_facts and not _gives_epochs(selection):
        raise ConfigError(
            "SimulatedComputation goes by the epochs that each client is given, and here none is; set "
            "run.schedule.epochs = [1, 3], or use Computation, which goes by the clock"
        )
    if SITE in recipe.required_facts:
        server.site_numbers()
    judges, clients = recipe.search.judges, len(server.names)
    if isinstance(judges, int) and judges > clients:
        raise ConfigError(f"recipe.search.judges is at most the number of clients, {clients}; got {judges}")


def _check_beside(server: Server, recipe: Recipe) -> None:
    """A model beside the shared one needs a learner that can be pulled."""
    if recipe.beside is not None and not isinstance(server.learner, PulledLearner):
        raise ConfigError(
            f"a personal model beside the shared one needs a learner with a method `train_pulled`, and "
            f"{type(server.learner).__name__} has none; TorchLearner has"
        )


def _check_control(control: Control | None, recipe: Recipe) -> None:
    """A control corrects clients towards one model, and some make that model themselves."""
    if control is None:
        return
    if not recipe.one_model:
        raise ConfigError(
            f"train.algorithm = {control.name!r} corrects clients towards one global model, and this recipe's clients "
            'have personal models, or several to choose from; use train.algorithm = "sgd", or another recipe'
        )
    if recipe.aggregate != MEAN or recipe.clip:
        raise ConfigError(
            f"train.algorithm = {control.name!r} adds up what clients send beside their updates, which neither "
            'recipe.aggregate nor recipe.clip bounds; use train.algorithm = "sgd", or the mean without clip'
        )
    if control.moves_model and (recipe.search.asks is not None or recipe.step != Plain()):
        raise ConfigError(
            f"train.algorithm = {control.name!r} takes a step of its own, which neither a search nor a recipe.step "
            'other than "plain" knows of; use a recipe without them, or train.algorithm = "scaffold"'
        )


def _check_privacy(server: Server, recipe: Recipe, selection: Selection) -> None:
    """All that a private run tells about its clients is in the account."""
    if recipe.privacy is None:
        return
    require_account()
    check_selection(recipe.privacy, selection, len(server.names))
    if server.control is not None:
        raise ConfigError(
            f"[privacy] noises the aggregate, and train.algorithm = {server.control.name!r} sends clients what others "
            'sent, without noise; use train.algorithm = "sgd"'
        )
    noised = recipe.privacy.centre is not None
    if server.centre is not None and not noised:
        raise ConfigError(
            "task.centre takes the federation's mean input from the clients, without noise; set privacy.centre_noise = "
            "4.0, which is in the account, or leave task.centre out"
        )
    if server.centre == "standard":
        raise ConfigError(
            '[privacy] noises the mean input, and task.centre = "standard" also tells deviations; set task.centre = '
            '"mean"'
        )
    if noised and server.centre is None:
        raise ConfigError('privacy.centre_noise has no effect without task.centre = "mean"; set it, or leave it out')


def _check_words(data: Federation, recipe: Recipe) -> None:
    """Somebody has each word that a criterion asks for: `fact:job is Nurse` may be a slip."""
    for name in recipe.required_facts:
        of, is_word, word = name.removeprefix(OWN).partition(IS)
        column = data.facts.get(of, ()) if name.startswith(OWN) and is_word else ()
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
    check_validation(recipe, any_rows=len(data.validation.y) > 0)
    if recipe.search.asks == "test" and not len(data.test.y):
        raise DataError("the search asks clients about their test rows, and no client has any")


def check_validation(recipe: Recipe, *, any_rows: bool) -> None:
    """Some client has validation rows where the recipe asks about them."""
    if recipe.personal and recipe.acceptance.refuses and not any_rows:
        raise ConfigError(
            "clients test their rewards on their validation rows, and none has any; set task.validation = 0.1, or "
            "recipe.reward.sigma = 2 to take every reward"
        )
    if recipe.search.asks == "validation" and not any_rows:
        raise ConfigError(
            "the search asks clients about their validation rows, and none has any; set task.validation = 0.1, "
            'or recipe.search.adjust_on = "test" to choose on the test rows as in the paper'
        )


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


def _gives_epochs(selection: Selection) -> bool:
    """Whether each client has a number of epochs of its own; a user's selection is believed."""
    return (
        selection.epochs is not None
        if isinstance(selection, Schedule)
        else not isinstance(selection, Uniform | Poisson | Available)
    )
