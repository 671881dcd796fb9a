"""The measure of a run: which objective fits the labels, and whether the final model is worth anything by it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmerit.core.host import Host
from fedmerit.core.learner import Learner
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.objectives import ROWS, ByClass, Predictions, direction, find_objective, measure_label, row_mean
from fedmerit.core.parts import declared
from fedmerit.core.recipe import Recipe
from fedmerit.core.state import Record, State
from fedmerit.core.targets import has_losses, has_probabilities, target_of
from fedmerit.core.types import ACCURACY, AskedRows, Note, Vector
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation

UNEQUAL = 0.4
"""Two classes are unequal if fewer than this share of the training rows have the rarer one."""


def default_measure(learner: Learner, data: Federation | None = None) -> str:
    """The measure where `run.measure` is not set.

    - `mae` for numbers
    - `auc` for two classes of which the rarer has fewer than 40 % of the training rows; `balanced_accuracy` if the
      learner has no probabilities
    - `accuracy` for everything else, where no client has test rows of both classes, and where nobody knows the
      training rows (Flower)
    """
    kind = target_of(learner).kind
    if kind == "number":
        return "mae"
    if data is None or kind != "classes" or data.classes != 2 or not len(data.train.y):
        return ACCURACY
    positive = float(np.mean(data.train.y == 1))
    tested = (data.test.y[data.test.rows(client)] for client in range(len(data.names)))
    if min(positive, 1 - positive) >= UNEQUAL or not any(len(np.unique(labels)) == 2 for labels in tested):
        return ACCURACY
    return "auc" if has_probabilities(learner) else "balanced_accuracy"


def tests_one_model(recipe: Recipe) -> bool:
    """Whether all clients are tested on one model."""
    return "shared test" in declared(recipe.models, "gives")


def on_rows(host: Host, state: State, name: str, on: AskedRows, *, personal: bool = False) -> float:
    """The measure of the model on all clients' rows of one kind, averaged by rows; NaN if it is defined nowhere."""
    return row_mean(host.clients.audit(state.model, [find_objective(name), ROWS], personal=personal, on=on), name)


def final_losses(host: Host, state: State, recipe: Recipe, learner: Learner, *, personal: bool) -> dict[str, float]:
    """Mean loss of the final model on the clients' training and validation rows, where they have any."""
    if isinstance(recipe.models, ClusterModels) or not has_losses(learner):
        return {}
    kinds: tuple[AskedRows, ...] = ("training", "validation")
    losses = {f"{on}_loss": on_rows(host, state, "log_loss", on, personal=personal) for on in kinds}
    return {name: loss for name, loss in losses.items() if not np.isnan(loss)}


def constant_note(
    record: Record, host: Host, state: State, learner: Learner, names: Sequence[str], *, personal: bool
) -> tuple[Note, ...]:
    """A note if the final model predicts one class, or is not better than always answering the commonest class.

    names   of the classes, if known
    """
    classes, value = int(host.limits.get("labels", 0)), record.value
    if target_of(learner).kind != "classes" or not classes or value is None:
        return ()
    kinds = [ByClass(what, label) for what in ("label", "predicted") for label in range(classes)]
    audited = host.clients.audit(state.model, [*kinds, ROWS], personal=personal)
    labels, predicted = ([row_mean(audited, f"{what}:{i}") for i in range(classes)] for what in ("label", "predicted"))
    if np.isnan(labels).any() or max(labels) == 1:
        return ()  # no test rows, or all of one class
    called = [repr(str(name)) for name in names] or [f"class {label}" for label in range(classes)]
    commonest, rows = int(np.argmax(labels)), int(sum(of_client[ROWS.name] for of_client in audited.values()))
    parts = []
    if max(predicted) == 1:
        parts.append(f"the model predicts {called[int(np.argmax(predicted))]} for all {rows:,} test rows")
    elif personal and (one := sum(_is_constant(of_client, classes) for of_client in audited.values())):
        parts.append(f"{one} of {len(audited)} clients have a model that predicts one class")
    constant = _always(audited, commonest, np.array(labels), record.measure)
    sign = direction(record.measure)
    if sign * value <= sign * constant + 1e-9:
        known = f"{measure_label(record.measure)} {value:.4f}"
        parts.append(f"{known} is not better than always answering {called[commonest]} ({constant:.4f})")
    if not parts:
        return ()
    return (Note("constant", "model", f"{'; '.join(parts)}. Try more rounds or another train.lr."),)


def _is_constant(of_client: Mapping[str, float], classes: int) -> bool:
    """Whether a client's model predicts one class for rows of several."""
    shares = ([of_client[f"{what}:{label}"] for label in range(classes)] for what in ("predicted", "label"))
    predicted, labels = map(max, shares)
    return predicted == 1 > labels


def _always(audited: Mapping[int, Mapping[str, float]], answer: int, prior: Vector, measure: str) -> float:
    """The measure of one answer for every row, averaged as that of a model; NaN where it needs more than labels."""
    objective, constant = find_objective(measure), dict[int, dict[str, float]]()
    for client, of_client in audited.items():
        counts = [round(of_client[f"label:{label}"] * of_client[ROWS.name]) for label in range(len(prior))]
        y = np.repeat(np.arange(len(prior)), counts)
        chances = np.tile(prior.astype(np.float32), (1, len(y), 1))
        predictions = Predictions(y, len(prior), {}, np.full((1, len(y)), answer), chances)
        try:
            constant[client] = {measure: float(objective(predictions)[0]), ROWS.name: float(len(y))}
        except DataError:  # it compares groups, whose attributes are not asked for
            return float("nan")
    return row_mean(constant, measure)


def with_final_numbers(
    record: Record, host: Host, state: State, recipe: Recipe, learner: Learner, names: Sequence[str], *, private: bool
) -> Record:
    """The record of the last round with losses and, if it is needed, the note that the model is useless.

    A private run has no losses: they would be asked without noise.
    """
    personal = not tests_one_model(recipe)
    losses = {} if private else final_losses(host, state, recipe, learner, personal=personal)
    clusters = isinstance(recipe.models, ClusterModels)
    notes = () if clusters else constant_note(record, host, state, learner, names, personal=personal)
    return replace(record, numbers={**record.numbers, **losses}, notes=(*record.notes, *notes))
