"""Preflight: whether the data has what a recipe asks for, told before a run starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.core.facts import EPOCHS, LOSS, measure
from fedmerit.core.learner import ProbabilisticLearner
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.recipes import Recipe
from fedmerit.core.search import Search
from fedmerit.core.selection import Schedule, Selection, Uniform
from fedmerit.core.types import Samples
from fedmerit.core.validation import check_objectives, try_objectives
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task


def check_task(task: Task, recipe: Recipe, selection: Selection, audits: Sequence[str] = ()) -> None:
    """The data has what the recipe asks for; otherwise every client would be left out, or could not answer."""
    probabilities = isinstance(task.learner, ProbabilisticLearner)
    server = task.federation.server
    check_objectives([criterion.objective for criterion in recipe.validated], server, probabilities=probabilities)
    _check_audits(task.federation, [find_objective(name) for name in audits], probabilities)
    if LOSS in recipe.required_facts and not probabilities:
        raise ConfigError(
            "the fact `loss` needs a learner with a method `predict_proba`, which this task's learner does not have"
        )
    clients = np.flatnonzero(task.federation.train.sizes)
    if not len(clients):
        raise DataError("no client has a training row")
    measure(task.federation.samples(int(clients[0])), recipe.client_facts)
    if EPOCHS in recipe.required_facts and not _gives_epochs(selection):
        raise ConfigError(
            "SimulatedComputation goes by the epochs that each client is given, and here none is; set "
            "run.schedule.epochs = [1, 3], or use Computation, which goes by the clock"
        )
    if recipe.personal and not len(task.federation.validation.y):
        raise ConfigError(
            "clients test their rewards on their validation rows, and none has any; set task.validation = 0.1"
        )
    _check_search(task.federation, recipe.search)


def _check_audits(federation: Federation, objectives: Sequence[Objective], probabilities: bool) -> None:
    """Audits are measured on the server's rows where there are any, and on clients' test rows in any case."""
    check_objectives(objectives if federation.server else (), federation.server, probabilities=probabilities)
    test, client = federation.test, int(federation.test.sizes.argmax())
    rows = test.rows(client)
    attributes = {name: column[rows] for name, column in test.attributes.items()}
    try_objectives(
        objectives, Samples(test.x[rows], test.y[rows], federation.classes, attributes), probabilities=probabilities
    )


def _gives_epochs(selection: Selection) -> bool:
    """Whether each client has a number of epochs of its own; a user's selection is believed."""
    return selection.epochs is not None if isinstance(selection, Schedule) else not isinstance(selection, Uniform)


def _check_search(federation: Federation, search: Search) -> None:
    number = len(federation.names)
    if search.asks == "validation" and not len(federation.validation.y):
        raise ConfigError(
            "the search asks clients about their validation rows, and none has any; set task.validation = 0.1, "
            'or recipe.search.adjust_on = "test" to choose on the test rows as in the paper'
        )
    if search.asks == "test" and not len(federation.test.y):
        raise DataError("the search asks clients about their test rows, and no client has any")
    if search.judges is not None and search.judges > number:
        raise ConfigError(f"recipe.search.judges is at most the number of clients, {number}; got {search.judges}")
