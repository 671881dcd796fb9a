"""Objectives, targets and measures: equal to fairlearn's and scikit-learn's, and honest about what rows cannot tell."""

import fairlearn.metrics as fair
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, recall_score, roc_auc_score

from fedmerit import UserError, federate, fedval, load_task
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.measures import percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.objectives import ERRORS, GROUPED, OVERALL, Predictions, find_objective
from fedmerit.core.targets import (
    CLASSES,
    Number,
    count_losses,
    has_losses,
    has_probabilities,
    right_rows,
    row_losses,
)
from fedmerit.errors import ConfigError, DataError

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
    each(f"worst_group:{attribute}", told, lambda y, p: fair.MetricFrame(
        metrics=accuracy_score, y_true=y, y_pred=p, sensitive_features=groups).group_min())  # fmt: skip


@many
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5))
def test_metrics_of_classes_are_scikit_learns(seed: int, classes: int):
    told = answers(seed, rows=80, classes=classes)
    occurring = np.unique(told.y)
    each("f1", told, lambda y, p: f1_score(y, p, labels=occurring, average="macro", zero_division=0))
    each("recall:1", told, lambda y, p: recall_score(y, p, labels=[1], average="macro"))
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


def test_the_worst_recall_by_hand_and_as_a_criterion() -> None:
    y, said = np.array([0, 0, 0, 0, 1, 1, 2]), np.array([[0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 1, 0]])
    assert find_objective("worst_recall")(Predictions(y, 4, {}, said)).tolist() == [0.75, 0]  # class 3 does not occur
    task = load_task("digits", clients=4, server=100, model="digits-linear")
    run = federate(task, fedval("worst_recall"), rounds=1, audit=["worst_recall"], measure="worst_recall")
    assert 0 <= run.ledger.rounds()[-1]["value"] < 1


@many
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5))
def test_plain_objectives_are_sklearns(seed: int, classes: int):
    told = answers(seed, classes=classes)
    each("accuracy", told, accuracy_score)
    each("balanced_accuracy", told, balanced_accuracy_score)
    each("worst_recall", told, lambda y, said: recall_score(y, said, average=None, labels=np.unique(y)).min())
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


def test_a_group_without_positives_leaves_the_objective_unknown():
    told = Predictions(np.array([0, 0, 1, 0]), 2, {"sex": np.array([0, 0, 1, 1])}, np.array([[0, 1, 1, 0]]))
    assert np.isnan(find_objective("opportunity:sex")(told)).all()
    assert find_objective("parity:sex")(told) == pytest.approx([1.0])
    assert np.isnan(find_objective("parity:one")(answers())).all(), "one group has nothing to compare"


@pytest.mark.parametrize("name", ["parity:colour", "parity:sex+colour"])
def test_an_attribute_that_the_rows_lack_is_named(name: str):
    with pytest.raises(DataError, match="no attribute 'colour'"):
        find_objective(name)(answers())


@pytest.mark.parametrize("name", ["parity:sex", "opportunity:sex"])
def test_two_classes_are_needed(name: str):
    with pytest.raises(DataError, match=r"two classes \(got 3\)"):
        find_objective(name)(answers(classes=3))


def test_probabilities_are_needed():
    told = answers()
    with pytest.raises(DataError, match="probabilities"):
        find_objective("loss")(Predictions(told.y, 2, told.attributes, told.predicted))


@pytest.mark.parametrize("name", ["fairness", "parity", "accuracy:sex", "", "parity:"])
def test_unknown_objectives_list_the_known(name: str):
    with pytest.raises(UserError, match="balanced_accuracy"):
        find_objective(name)


def test_of_no_numbers_nothing_is_known():
    nothing = Predictions(np.empty(0), 1, {}, np.empty((2, 0)), target=Number(1))
    assert np.isnan(find_objective("r2")(nothing)).tolist() == [True, True]


def test_losses_by_hand() -> None:
    halves = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    assert CLASSES.losses(halves, np.array([0, 0])) == pytest.approx([np.log(2), 0])
    assert Number(2).losses(np.array([3.0, 7.0]), np.array([3.0, 3.0])) == pytest.approx([0, np.log(5)])


@given(arrays(np.float64, 5), arrays(np.float64, 5, elements=st.floats(-1e300, 1e300)), st.floats(1e-9, 1e9))
def test_losses_of_numbers_are_bounded_and_grow_with_the_error(
    said: np.ndarray, y: np.ndarray, tolerance: float
) -> None:
    target = Number(tolerance)
    with np.errstate(all="ignore"):
        losses, errors = target.losses(said, y), np.abs(said - y)
        right = target.right(said, y)
    assert ((losses >= 0) & (losses <= MOST_LOSS)).all()
    known = np.flatnonzero(~np.isnan(errors))
    order = known[np.argsort(errors[known], kind="stable")]
    assert (np.diff(losses[order]) >= -1e-12).all()
    assert not right[np.isnan(errors)].any()
    assert (losses[right] <= np.log(2) + 1e-9).all()


def test_the_tolerance_itself_is_right() -> None:
    assert Number(2).right(np.array([10.0, 6.0, 10.1]), np.array([8.0, 8.0, 8.0])).tolist() == [True, True, False]
    assert CLASSES.decide(np.array([[0.2, 0.8], [0.6, 0.4]])).tolist() == [1, 0]


def test_what_a_number_learns_is_said_where_it_is_not_the_number_itself() -> None:
    plain = "accuracy is the share of rows predicted to within 2; mae and r2 are recorded too"
    assert Number(2).about == plain
    assert Number(2, centre=5.0).about == f"{plain}; the module learns (y - 5) / 1"
    assert Number(2, scale=3.0).about == f"{plain}; the module learns (y - 0) / 3"
    assert Number(2, centre=1.0, scale=2.0).about == f"{plain}; the module learns (y - 1) / 2"


def test_no_probability_is_too_small_for_a_loss() -> None:
    sure = np.array([[1.0, 0.0]], np.float32)
    assert CLASSES.losses(sure, np.array([1])) == pytest.approx([-np.log(1e-12)])
    assert Number(1).losses(np.array([np.nan]), np.array([0.0])).tolist() == [MOST_LOSS]


class Guess:
    """A learner whose outputs are known: numbers, or probabilities of two classes."""

    def __init__(self, target: object, outputs: np.ndarray, *, known: bool = True) -> None:
        self.target, self._outputs = target, outputs
        if known:
            self.predict_proba = lambda model, x: outputs

    def predict(self, model: object, x: object) -> np.ndarray:
        return self.target.decide(self._outputs)  # type: ignore[attr-defined, no-any-return]

    def start(self, seed: int) -> np.ndarray:
        return np.zeros(1, np.float32)

    def train(self, *asked: object) -> np.ndarray:
        return np.zeros(1, np.float32)


def test_rows_are_judged_by_what_the_learner_predicts() -> None:
    model, x = np.zeros(1, np.float32), np.zeros((2, 1))
    classes = Guess(CLASSES, np.array([[0.25, 0.75], [0.5, 0.5]]))
    number = Guess(Number(2), np.array([3.0, 7.0]), known=False)
    for learner, y, right, losses in (
        (classes, np.array([1, 1]), [True, False], [-np.log(0.75), np.log(2)]),
        (number, np.array([3.0, 3.0]), [True, False], [0, np.log(5)]),
    ):
        assert right_rows(learner, model, x, y).tolist() == right  # type: ignore[arg-type]
        assert row_losses(learner, model, x, y) == pytest.approx(losses)  # type: ignore[arg-type]
        found, units = count_losses(learner, model, x, y)  # type: ignore[arg-type]
        assert found.tolist() == right
        assert units / 2**20 == pytest.approx(losses, abs=1e-6)
        assert has_losses(learner)  # type: ignore[arg-type]
    assert has_probabilities(classes)  # type: ignore[arg-type]
    assert not has_probabilities(number)  # type: ignore[arg-type]
    mute = Guess(CLASSES, np.array([[0.25, 0.75]]), known=False)
    assert not has_losses(mute)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="predict_proba"):
        row_losses(mute, model, x, np.array([0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [(0.0,), (np.inf,), (1.0, 0.0, 0.0), (1.0, 0.0, np.inf), (1.0, np.inf)])
def test_a_number_has_a_finite_tolerance_and_scale_above_0(settings: tuple[float, ...]):
    with pytest.raises(ConfigError, match="above 0 and a finite centre"):
        Number(*settings)


NAN = np.nan
ROUNDS = [2, 4, 6]
LOCAL = np.array([[0.5, 0.6, 0.7, 0.8], [0.8, 0.8, 0.8, 0.9], [0.9, 0.9, 0.9, 0.7]])


@pytest.mark.parametrize(
    ("target", "share", "strict", "or_equal"),
    [
        (0.8, 0.25, 4, 2),
        (0.8, 0.5, 6, 4),
        (0.8, 0.75, 6, 4),
        (0.8, 1.0, None, 4),
        (0.79, 1.0, 4, 4),
        (0.9, 0.25, None, 4),
        (1.0, 0.25, None, None),
        (0.0, 1.0, 2, 2),
    ],
)
def test_first_round_with_enough_devices_above_the_target(target, share, strict, or_equal):
    assert rounds_to_target(ROUNDS, LOCAL, target, share) == strict
    assert rounds_to_target(ROUNDS, LOCAL, target, share, or_equal=True) == or_equal


def test_reaching_the_target_need_not_last():
    assert rounds_to_target([1, 2], np.array([[0.9], [0.1]]), 0.8, 1.0) == 1


@pytest.mark.parametrize(
    ("share", "devices", "needed"),
    [
        (0.2, 371, 75),
        (0.1, 10, 1),
        (0.7, 10, 7),
        (0.3, 10, 3),
        (0.1, 30, 3),
        (0.01, 10, 1),
        (0.9, 4168, 3752),
        (0.07, 100, 7),
        (0.55, 100, 55),
    ],
)
def test_a_share_of_devices_is_rounded_up(share: float, devices: int, needed: int):
    local = np.zeros((2, devices))
    local[0, : needed - 1] = local[1, :needed] = 1
    assert rounds_to_target([1, 2], local, 0.5, share) == 2


def test_clients_without_test_rows_are_no_devices():
    local = np.array([[0.9, 0.1, NAN, NAN], [0.9, 0.9, NAN, NAN]])
    assert rounds_to_target([1, 2], local, 0.8, 0.5) == 1
    assert rounds_to_target([1, 2], local, 0.8, 1.0) == 2
    assert rounds_to_target([1], np.full((1, 3), NAN), 0.0, 0.1) is None


def test_a_run_without_evaluations_reaches_nothing():
    assert rounds_to_target([], np.empty((0, 3)), 0.5, 0.5) is None


@pytest.mark.parametrize(("target", "share"), [(-0.1, 0.5), (1.1, 0.5), (NAN, 0.5), (0.5, 0), (0.5, 1.1), (0.5, NAN)])
def test_targets_and_shares_lie_in_0_to_1(target: float, share: float):
    with pytest.raises(UserError, match=r"target lies in 0\.\.1"):
        rounds_to_target(ROUNDS, LOCAL, target, share)


def test_percentiles_are_over_devices():
    assert percentiles(np.array([NAN, *np.arange(0, 1.01, 0.1)])) == pytest.approx((0.1, 0.5, 0.9))
    assert percentiles(np.array([0.25, NAN])) == (0.25, 0.25, 0.25)
    assert np.isnan(percentiles(np.array([NAN]))).all()


def test_the_worst_share_has_at_least_one_and_is_rounded_up():
    local = np.array([0.9, 0.1, NAN, 0.5, 0.3])
    assert worst_mean(local) == pytest.approx(0.1)
    assert worst_mean(local, 0.5) == pytest.approx(0.2)
    assert worst_mean(local, 0.51) == pytest.approx(0.3)
    assert worst_mean(np.arange(30.0), 0.1) == pytest.approx(1), "a tenth of 30 are 3"
    assert np.isnan(worst_mean(np.array([NAN])))


def test_the_spread_is_the_deviation_over_devices():
    assert spread(np.array([0.2, NAN, 0.6])) == pytest.approx(0.2)
    assert spread(np.array([0.2])) == 0
    assert np.isnan(spread(np.array([NAN])))
