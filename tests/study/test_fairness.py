"""Fairness of rewards: convergence and the accounts of a run."""

import math

import numpy as np
import pytest
from helpers import small_task

from fedmerit import fedavg, federate
from fedmerit.core.collect.schedules import Schedule
from fedmerit.errors import ConfigError, UserError
from fedmerit.study.fairness import Convergence, convergence, fairness_of, rank_correlation


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.5, 0.91, 0.89, 0.92, 0.94], Convergence(2, 4, 0.93)),
        ([0.95, 0.97], Convergence(1, 1, 0.96)),
        ([0.5, 0.9], Convergence(2, 2, 0.9)),
        ([0.95, 0.5], Convergence(1, None, None)),
        ([0.1, 0.2], Convergence(None, None, None)),
        ([math.nan, 0.95], Convergence(2, 2, 0.95)),
        ([0.95, math.nan], Convergence(1, None, None)),
    ],
)
def test_convergence(curve: list[float], expected: Convergence):
    measured = convergence(range(1, len(curve) + 1), np.array(curve), 0.9)
    assert (measured.reached, measured.stays) == (expected.reached, expected.stays)
    assert measured.average == (None if expected.average is None else pytest.approx(expected.average))


@pytest.mark.parametrize("level", [0.0, -1.0, 1.1, math.nan])
def test_a_level_is_an_accuracy(level: float):
    with pytest.raises(ConfigError, match="level"):
        convergence([1], np.array([0.5]), level)


def test_rank_correlation_leaves_out_unknown_pairs():
    assert rank_correlation([1, 2, 3, 4], [1, 4, math.nan, 9]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert math.isnan(rank_correlation([1, 2], [1, 2]))
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


def test_accounts_of_a_run():
    schedule = Schedule(10, ((0.2, 1), (0.5, 1), (1.0, 2)))
    run = federate(small_task(), fedavg(), rounds=10, selection=schedule)
    fairness = fairness_of(run.ledger, level=0.5)
    assert [account.rounds for account in fairness.accounts] == [2, 5, 10, 10]
    assert [account.contribution for account in fairness.accounts] == [10, 60, 200, 80]
    assert {account.rewards for account in fairness.accounts} == {0}
    final = run.local_accuracy[-1]
    assert [account.accuracy for account in fairness.accounts] == final.tolist()
    assert fairness.classes == pytest.approx({2: final[0], 5: final[1], 10: final[2:].mean()})
    assert fairness.gap == pytest.approx(max(fairness.classes.values()) - min(fairness.classes.values()))
    assert fairness.accuracy == pytest.approx(rank_correlation([10, 60, 200, 80], final), nan_ok=True)


def test_many_counts_become_three_classes():
    run = federate(small_task((6,) * 12, (6,) * 12), fedavg(), rounds=30, fraction=0.4, seed=3)
    fairness = fairness_of(run.ledger)
    assert len(fairness.classes) == 3
    assert max(fairness.classes) == max(account.rounds for account in fairness.accounts)


def test_a_run_without_tests_has_no_fairness():
    from fedmerit.store.ledger import Ledger

    with pytest.raises(UserError, match="no evaluated round"):
        fairness_of(Ledger.create(None, ["a"], {}))
