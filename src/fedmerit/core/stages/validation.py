"""Validation: clients' models scored on the server's own rows, and audits of the model [FedVal]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fedmerit.core.criteria.consistency import SUSPECT, said
from fedmerit.core.criteria.contribution import Worths
from fedmerit.core.criteria.similarity import Company, met_in
from fedmerit.core.criteria.table import VALIDATED_ACCURACY
from fedmerit.core.facts import ALIGNMENT, LENGTH, LOSS, RESULTS, SAMPLES
from fedmerit.core.host import Fleet, Predict, Train
from fedmerit.core.learner import Learner
from fedmerit.core.models.grouping import PairDistances
from fedmerit.core.objectives import AND, ByGroup, Objective, Predictions, accuracy
from fedmerit.core.recipe import Recipe
from fedmerit.core.results import Reports, agreement, own_results, report, result_notes
from fedmerit.core.targets import has_probabilities, target_of
from fedmerit.core.types import ClientId, Cohort, Evaluation, History, Model, Samples
from fedmerit.core.weights.weigh import Note
from fedmerit.errors import ConfigError, DataError

SERVER: ClientId = -1
"""Stands for the server where clients are listed."""

NO_ROWS = "Alignment compares updates with the server's own, and it has no rows to train on; set task.server = 1000"

Audit: TypeAlias = Mapping[ClientId, Mapping[str, float]]
"""Objectives by name: of the model on the server's rows (SERVER) and on each client's test rows; NaN where unknown."""


def validate(recipe: Recipe, cohort: Cohort, model: Model, predict: Predict | None) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the server's facts: objectives of v = (1 - rho) * model + rho * client's model, for each client.

    Facts are what was measured: a gate is the criterion's own affair, and the accuracy that it asks for comes along.
    For criteria by gain, also what the model has by itself. An objective that the server's rows cannot tell is 0 for
    everybody, which is no information; and that is said.
    """
    if not recipe.validated or not cohort.ids:
        return cohort, ()
    rho = np.float32(1 / len(cohort.ids) if recipe.rho == "1/K" else recipe.rho)
    if predict is None:
        raise ConfigError("the server has no rows to score models on; set task.server = 1000")
    predictions = predict(model + rho * cohort.updates.row(place) for place in range(len(cohort.ids)))
    facts, notes = dict(cohort.facts), []
    marginal = any(criterion.marginal for criterion in recipe.validated)
    before = predict([model]) if marginal else None
    for criterion in recipe.validated:
        if criterion.marginal and before is not None:
            without = np.maximum(np.nan_to_num(criterion.objective(before)), 0.0)
            facts[criterion.without] = np.repeat(without, len(cohort.ids))
        gate = criterion.gate
        if gate is not None:
            facts[VALIDATED_ACCURACY] = accuracy(predictions)
        values = (gate.objective if gate is not None else criterion.objective)(predictions)
        if np.isnan(values).any():
            values = np.zeros(len(values))
            text = f"{criterion.name} is left out: a group of the server's rows has nothing to measure it on"
            notes.append(Note("undefined-objective", criterion.name, text))
        facts[criterion.name] = np.maximum(values, 0.0)
    return replace(cohort, facts=facts), tuple(notes)


def contribute(
    recipe: Recipe, cohort: Cohort, model: Model, predict: Predict | None, seed: int
) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with what each client's update added to the round's model, by every method that the recipe names."""
    notes: list[Note] = []
    asked = Worths(cohort, model, predict)
    for contribution in recipe.measured if cohort.ids else ():
        values, told = contribution.measure(cohort, asked, seed)
        cohort, notes = replace(cohort, facts={**cohort.facts, contribution.name: values}), [*notes, *told]
    return cohort, tuple(notes)


def align(recipe: Recipe, cohort: Cohort, model: Model, train: Train | None, seed: int) -> Cohort:
    """The cohort with the fact `alignment`: the server trains `model` on its own rows, and compares updates with its.

    That is the cosine, 0 where it is negative [FLTrust].
    """
    if ALIGNMENT not in recipe.required_facts or not cohort.ids:
        return cohort
    if train is None:
        raise ConfigError(NO_ROWS)
    own = train(model, seed) - model
    return replace(cohort, facts={**cohort.facts, ALIGNMENT: np.maximum(cohort.updates.cosines_to(own), 0.0)})


def hold_losses(recipe: Recipe, cohort: Cohort, model: Model, predict: Predict | None) -> Cohort:
    """The cohort with the fact `results`: the losses that clients report of the model against the server's rows.

    Nothing where the recipe holds nobody to them, or where there is no such report or no such row.
    """
    if not (recipe.checks_results and LOSS in cohort.facts and cohort.ids) or predict is None:
        return cohort
    predictions = predict([model])
    if predictions.target.kind != "classes" or predictions.probabilities is None:
        return cohort
    own = own_results([predictions], "loss")
    losses, rows = said(cohort, LOSS), said(cohort, SAMPLES)
    values = agreement(Reports(cohort.ids, losses[:, np.newaxis], rows, own, predictions.y, "loss"))
    return replace(cohort, facts={**cohort.facts, RESULTS: values})


def hold_answers(cohort: Cohort, reports: Reports | None) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the fact `results` after its search, for later rounds; and a note of who stands out by it."""
    if reports is None or not cohort.ids:
        return cohort, ()
    values = agreement(reports)
    earlier = cohort.facts.get(RESULTS, np.ones(len(cohort.ids)))
    by_client = dict(zip(reports.clients, values.tolist(), strict=True))
    answered = np.array([by_client.get(client, 1.0) for client in cohort.ids])
    facts = {**cohort.facts, RESULTS: np.minimum(earlier, answered)}
    return replace(cohort, facts=facts), result_notes(reports, values, cohort.ids, SUSPECT)


def hold_evaluation(recipe: Recipe, model: Model, evaluation: Evaluation, predict: Predict | None) -> tuple[Note, ...]:
    """A note of each client whose test result of the shared model does not fit the server's rows."""
    if not recipe.checks_results or predict is None:
        return ()
    reports = report([evaluation], [predict([model])], ())
    return () if reports is None else result_notes(reports, agreement(reports), (), SUSPECT)


def observe(recipe: Recipe, cohort: Cohort, history: History, pairs: PairDistances) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the values of criteria that are kept as facts of the round: consistency, reputations, company.

    `pairs` are how near each two clients were in earlier rounds.
    """
    notes: list[Note] = []
    if recipe.meets and cohort.ids:
        cohort = replace(cohort, facts={**cohort.facts, LENGTH: cohort.updates.norms})
    for criterion in recipe.observed if cohort.ids else ():
        if isinstance(criterion, Company):
            values, told = criterion.observe(cohort, history, met_in(pairs, cohort))
        else:
            values, told = criterion.observe(cohort, history)
        cohort, notes = replace(cohort, facts={**cohort.facts, criterion.name: values}), [*notes, *told]
    return cohort, tuple(notes)


def audit(objectives: Sequence[Objective], model: Model, fleet: Fleet, *, personal: bool) -> Audit:
    """What every objective says of the model: on the server's rows where it has any, and at each client."""
    if not objectives:
        return {}
    values = dict(fleet.audit(model, objectives, personal=personal))
    if not personal and fleet.server.predict is not None:
        predictions = fleet.server.predict([model])
        values[SERVER] = {objective.name: float(objective(predictions)[0]) for objective in objectives}
    return values


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
