"""Validated criteria: clients' models scored on the server's own rows [FedVal]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import VALIDATED, WITHOUT
from fedmerit.core.objectives import Objective, accuracy, check_rising
from fedmerit.core.parts import ACCOUNTED, NO_WORDS, Doc, Words, part
from fedmerit.core.recipe import Recipe
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, Rho, View
from fedmerit.core.types import Cohort, Family, Note, Vector

VALIDATED_ACCURACY = f"{VALIDATED}accuracy"
"""The fact that `min_accuracy` reads: the accuracy of the client's model on the server's rows."""
NO_GAIN = 1e-6
"""A score that is higher by no more is the same score, rounded differently."""


@part("criterion", "validated")
class Validated:
    """An objective of the model v = (1 - rho) * model + rho * client's model on the server's rows [FedVal].

    The fact of its name is what was measured; `min_accuracy` is applied when the criterion is read, so the ledger keeps
    both. With `marginal` only the gain counts: max(0, s(v) - s(model)), and 0 where that is rounding. An objective that
    the server's rows cannot measure is 0 for everybody, and a note says so.

    >>> from fedmerit.core.objectives import find_objective
    >>> Validated(find_objective("parity:sex")).name
    'validated:parity:sex'
    """

    objective: Annotated[Objective, Doc("what is measured, `fedmerit objectives`")]
    rho: Annotated[
        Rho, Interval(gt=0, le=1), Doc("the client's part in the merged model; 1: its model, `1/K`: as one of K")
    ] = 0.5
    min_accuracy: Annotated[
        float, Interval(ge=0, le=1), Doc("models below this accuracy score 0: a constant model looks fair")
    ] = 0.0
    marginal: Annotated[bool, Doc("count only the gain over the global model, so that a zero update earns 0")] = False

    family: ClassVar[Family] = Family.TARGET
    degree: ClassVar[bool] = True
    phase: ClassVar[Phase] = "measure"
    needs: ClassVar[Words] = frozenset({"server rows", "shared model"})
    why: ClassVar[Mapping[str, str]] = {
        "server rows": "set task.server = 1000, or give Merit a function `server_evaluate`",
        "accounted": 'rho = "1/K" depends on how many clients came; set a number, rho = 0.5',
    }

    def __post_init__(self) -> None:
        check_rising(self.objective)

    @property
    def gives(self) -> Words:
        """A client's value depends on no other client, unless rho does."""
        return NO_WORDS if self.rho == "1/K" else ACCOUNTED

    @property
    def name(self) -> str:
        """`validated:parity:sex` for the objective `parity:sex`."""
        return f"{VALIDATED}{self.objective.name}"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The fact of the same name; with `marginal` that of the model before; with `min_accuracy` the accuracy."""
        gain = (self.without,) if self.marginal else ()
        gate = (VALIDATED_ACCURACY,) if self.min_accuracy else ()
        return tuple(dict.fromkeys((self.name, *gain, *gate)))

    @property
    def without(self) -> str:
        """The fact that says what the model has without the client."""
        return f"{self.name}{WITHOUT}"

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        objective = self.objective.name
        return f"{objective} at the server: of the client's model, merged with the global one, on the server's rows"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """0..1, higher is better."""
        values = cohort.facts[self.name]
        if self.min_accuracy:
            values = np.where(cohort.facts[VALIDATED_ACCURACY] >= self.min_accuracy, values, 0.0)
        if not self.marginal:
            return values
        gain = values - cohort.facts[self.without]
        return np.asarray(np.where(gain > NO_GAIN, gain, 0.0))

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The objective of every client's merged model, and what else the criterion reads."""
        predictions = view.predictions_merged(cohort, self.rho)
        facts, notes = dict[str, Vector](), list[Note]()
        if self.marginal:
            without = np.maximum(np.nan_to_num(self.objective(view.predictions_before())), 0.0)
            facts[self.without] = np.repeat(without, len(cohort.ids))
        if self.min_accuracy:
            facts[VALIDATED_ACCURACY] = accuracy(predictions)
        values = self.objective(predictions)
        if np.isnan(values).any():
            values = np.zeros(len(values))
            text = f"{self.name} has no effect: a group of the server's rows has nothing to measure it on"
            notes.append(Note("undefined-objective", self.name, text))
        facts[self.name] = np.maximum(values, 0.0)
        return Measured(facts, tuple(notes))


def validated_of(recipe: Recipe) -> tuple[Validated, ...]:
    """The criteria that a recipe measures on the server's rows, also within reputations."""
    return tuple(stage for stage in recipe.all_stages if isinstance(stage, Validated))
