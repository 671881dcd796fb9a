"""Targets: what counts as right, and losses that no number makes infinite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.targets import (
    CLASSES,
    Labels,
    Number,
    count_losses,
    has_losses,
    has_probabilities,
    right_rows,
    row_losses,
)
from fedmerit.errors import ConfigError


def test_losses_by_hand() -> None:
    halves = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    assert CLASSES.losses(halves, np.array([0, 0])) == pytest.approx([np.log(2), 0])
    assert Labels().losses(halves, np.array([[1, 0], [1, 0]])) == pytest.approx([np.log(2), 0])
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


@given(arrays(np.int64, (6, 3), elements=st.integers(0, 1)), arrays(np.int64, (6, 3), elements=st.integers(0, 1)))
def test_labels_are_right_where_all_are(said: np.ndarray, y: np.ndarray) -> None:
    assert Labels().right(said, y).tolist() == [list(a) == list(b) for a, b in zip(said, y, strict=True)]
    assert Labels().right(said[np.newaxis], y).shape == (1, 6)


def test_the_tolerance_itself_is_right_and_a_half_is_no_yes() -> None:
    assert Number(2).right(np.array([10.0, 6.0, 10.1]), np.array([8.0, 8.0, 8.0])).tolist() == [True, True, False]
    assert Labels().decide(np.array([[0.5, 0.51], [1.0, 0.0]])).tolist() == [[0, 1], [1, 0]]
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
    assert Labels().losses(sure, np.array([[0, 0]])) == pytest.approx([-np.log(1e-12) / 2])
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
