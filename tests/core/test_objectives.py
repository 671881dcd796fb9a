"""Objectives: equal to fairlearn's group metrics on random data, and honest about what the rows cannot tell."""

from __future__ import annotations

import fairlearn.metrics as fair
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, recall_score, roc_auc_score

from fedmerit.core.criteria.validated import VALIDATED_ACCURACY, Validated
from fedmerit.core.objectives import ERRORS, GROUPED, OVERALL, Predictions, find_objective
from fedmerit.core.state import History
from fedmerit.core.targets import Number
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import DataError, UserError

many = settings(max_examples=40, deadline=None)


def answers(seed: int = 0, rows: int = 60, models: int = 3, classes: int = 2) -> Predictions:
    random = np.random.default_rng(seed)
    chances = random.dirichlet([1.0] * classes, size=(models, rows)).astype(np.float32)
    attributes = {"sex": random.integers(0, 2, rows), "race": random.integers(0, 3, rows), "one": np.zeros(rows, int)}
    return Predictions(random.integers(0, classes, rows), classes, attributes, chances.argmax(axis=2), chances)


def each(name: str, given: Predictions, oracle: object) -> None:
    """Our objective of each model against a function of (y, predicted)."""
    found = find_objective(name)(given)
    assert found == pytest.approx([oracle(given.y, predicted) for predicted in given.predicted], abs=1e-6)  # type: ignore[operator]


@many
@given(seed=st.integers(0, 10**6), attribute=st.sampled_from(["sex", "race", "sex+race"]))
def test_group_metrics_are_fairlearns(seed: int, attribute: str):
    told = answers(seed, rows=200)
    columns = [told.attributes[name] for name in attribute.split("+")]
    groups = ["/".join(map(str, row)) for row in zip(*columns, strict=True)]
    each(
        f"parity:{attribute}",
        told,
        lambda y, p: 1 - fair.demographic_parity_difference(y, p, sensitive_features=groups),
    )
    each(
        f"opportunity:{attribute}",
        told,
        lambda y, p: 1 - fair.equal_opportunity_difference(y, p, sensitive_features=groups),
    )

    def mean_odds(y: np.ndarray, p: np.ndarray) -> float:
        rates = {"tpr": fair.true_positive_rate, "fpr": fair.false_positive_rate}
        spread = fair.MetricFrame(metrics=rates, y_true=y, y_pred=p, sensitive_features=groups).difference()
        return 1 - float(spread.mean())

    each(f"odds:{attribute}", told, mean_odds)
    each(f"worst_group:{attribute}", told, lambda y, p: fair.MetricFrame(
        metrics=accuracy_score, y_true=y, y_pred=p, sensitive_features=groups).group_min())  # fmt: skip


@many
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5))
def test_metrics_of_classes_are_scikit_learns(seed: int, classes: int):
    told = answers(seed, rows=80, classes=classes)
    occurring = np.unique(told.y)
    each("f1", told, lambda y, p: f1_score(y, p, labels=occurring, average="macro", zero_division=0))
    each("recall:1", told, lambda y, p: recall_score(y, p, labels=[1], average="macro"))
    assert told.probabilities is not None
    areas = [
        np.mean([roc_auc_score(told.y == label, chances[:, label]) for label in occurring])
        for chances in told.probabilities
    ]
    assert find_objective("auc")(told) == pytest.approx(areas, abs=1e-6)


def test_metrics_of_classes_say_what_they_cannot_tell():
    one = Predictions(np.zeros(3, np.int64), 2, {}, np.zeros((1, 3), np.int64), np.full((1, 3, 2), 0.5, np.float32))
    assert np.isnan(find_objective("auc")(one)).all()
    assert np.isnan(find_objective("recall:1")(one)).all()
    with pytest.raises(DataError, match="recall:2 needs a class below 2"):
        find_objective("recall:2")(one)
    with pytest.raises(UserError, match="recall:CLASS"):
        find_objective("recall:sex")
    with pytest.raises(DataError, match="auc needs probabilities"):
        find_objective("auc")(Predictions(one.y, 2, {}, one.predicted))


def _exact(chances: np.ndarray) -> np.ndarray:
    """Rows that sum to 1 in double precision."""
    return chances.astype(np.float64) / chances.astype(np.float64).sum(axis=1, keepdims=True)


@many
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5))
def test_plain_objectives_are_sklearns(seed: int, classes: int):
    told = answers(seed, classes=classes)
    each("accuracy", told, accuracy_score)
    each("balanced_accuracy", told, balanced_accuracy_score)
    assert told.probabilities is not None
    losses = [log_loss(told.y, _exact(chances), labels=range(classes)) for chances in told.probabilities]
    assert find_objective("loss")(told) == pytest.approx(
        np.maximum(1 - np.array(losses) / np.log(classes), 0), abs=1e-5
    )


@many
@given(seed=st.integers(0, 10**6))
def test_every_objective_lies_in_0_to_1(seed: int):
    told = answers(seed, rows=100)
    of_classes = [name for name in OVERALL if name not in ("r2", *ERRORS)]
    for name in [*of_classes, *(f"{name}:sex" for name in GROUPED)]:
        values = find_objective(name)(told)
        assert values.shape == (3,)
        assert ((values >= 0) & (values <= 1)).all(), name


def test_a_model_that_runs_away_spoils_no_other(recwarn: pytest.WarningsRecorder):
    y = np.array([1.0, 2.0, 4.0])
    said = np.array([y, [np.nan, 2.0, 4.0], [1e300, -1e300, 1e300], [np.inf, 0.0, 0.0], [7 / 3] * 3])
    told = Predictions(y, 1, {}, said, target=Number(1))
    assert find_objective("r2")(told) == pytest.approx([1, -1e6, -1e6, -1e6, 0])
    assert find_objective("mae")(told)[[0, 4]] == pytest.approx([0, 10 / 9])
    assert np.isnan(find_objective("mae")(told)[[1, 3]]).all()
    alike = Predictions(np.ones(3), 1, {}, said, target=Number(1))
    assert np.isnan(find_objective("r2")(alike)).all()
    assert not recwarn.list


def test_calibration_compares_what_groups_are_promised():
    chances = np.array([[0.6, 0.4], [0.6, 0.4], [0.2, 0.8], [0.2, 0.8]], np.float32)[np.newaxis]
    told = Predictions(np.array([0, 1, 0, 1]), 2, {"sex": np.array([0, 0, 1, 1])}, chances.argmax(axis=2), chances)
    assert find_objective("calibration:sex")(told) == pytest.approx([1 - 0.4])


def test_a_group_without_positives_leaves_the_objective_unknown():
    told = Predictions(np.array([0, 0, 1, 0]), 2, {"sex": np.array([0, 0, 1, 1])}, np.array([[0, 1, 1, 0]]))
    assert np.isnan(find_objective("opportunity:sex")(told)).all()
    assert np.isnan(find_objective("odds:sex")(told)).all()
    assert find_objective("parity:sex")(told) == pytest.approx([1.0])


def test_a_constant_model_looks_fair_and_the_least_accuracy_sees_it():
    told = Predictions(
        np.array([0, 1, 0, 1]), 2, {"sex": np.array([0, 0, 1, 1])}, np.array([[1, 1, 1, 1], [0, 1, 0, 1]])
    )
    parity = Validated(find_objective("parity:sex"), min_accuracy=0.6)
    fair, accuracy = (find_objective(name)(told) for name in ("parity:sex", "accuracy"))
    assert (fair.tolist(), accuracy.tolist()) == ([1, 1], [0.5, 1])
    facts = {parity.name: fair, VALIDATED_ACCURACY: accuracy}
    assert parity.required_facts == tuple(facts)
    assert parity(Cohort(1, (0, 1), Updates(np.zeros((2, 1), np.float32)), facts), History()).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["parity:colour", "parity:sex+colour"])
def test_an_attribute_that_the_rows_lack_is_named(name: str):
    with pytest.raises(DataError, match="no attribute 'colour'"):
        find_objective(name)(answers())


def test_one_group_has_nothing_to_compare():
    assert np.isnan(find_objective("parity:one")(answers())).all()


@pytest.mark.parametrize("name", ["parity:sex", "opportunity:sex", "odds:sex", "calibration:sex"])
def test_two_classes_are_needed(name: str):
    with pytest.raises(DataError, match=r"two classes \(got 3\)"):
        find_objective(name)(answers(classes=3))


@pytest.mark.parametrize("name", ["loss", "calibration:sex"])
def test_probabilities_are_needed(name: str):
    told = answers()
    with pytest.raises(DataError, match="probabilities"):
        find_objective(name)(Predictions(told.y, 2, told.attributes, told.predicted))


@pytest.mark.parametrize("name", ["fairness", "parity", "accuracy:sex", "", "parity:"])
def test_unknown_objectives_list_the_known(name: str):
    with pytest.raises(UserError, match="balanced_accuracy"):
        find_objective(name)


def test_calibration_holds_a_promise_against_what_came_true():
    """Both groups are promised 0.5; of the first a quarter is of class 1, of the second three quarters."""
    chances = np.full((1, 8, 2), 0.5, np.float32)
    sex, y = np.repeat([0, 1], 4), np.array([1, 0, 0, 0, 1, 1, 1, 0])
    told = Predictions(y, 2, {"sex": sex}, chances.argmax(axis=2), chances)
    assert find_objective("calibration:sex")(told) == pytest.approx([0.5])
    chances[0, :4] = [0.25, 0.75]
    assert find_objective("calibration:sex")(told) == pytest.approx([1 - 0.75])
    chances[0, :4], chances[0, 4:] = [0.0, 1.0], [1.0, 0.0]
    assert find_objective("calibration:sex")(told) == pytest.approx([0]), "no further down than 0"


def test_of_no_numbers_nothing_is_known():
    nothing = Predictions(np.empty(0), 1, {}, np.empty((2, 0)), target=Number(1))
    assert np.isnan(find_objective("r2")(nothing)).tolist() == [True, True]
