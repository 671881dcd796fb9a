"""Rounds to target and percentiles over devices [PMCFL, sec. 5.3] [LEAF]."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit import UserError
from fedmerit.core.measures import SHARES, TARGETS, percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.types import Evaluation

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


def test_accuracy_is_weighted_by_test_size():
    evaluation = Evaluation(np.array([1, 0, 9]), np.array([2, 0, 18]))
    assert evaluation.accuracy == 0.5
    np.testing.assert_equal(evaluation.local, [0.5, NAN, 0.5])
    assert np.isnan(Evaluation(np.array([0]), np.array([0])).accuracy)


def test_columns_and_targets_are_those_of_the_papers_tables() -> None:
    assert [f"{share:.0%}" for share in SHARES] == [f"{tens}0%" for tens in range(1, 10)]
    assert [f"{target:.0%}" for target in TARGETS] == ["70%", "80%", "90%", "95%"]


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
