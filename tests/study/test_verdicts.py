"""Verdicts on paired differences."""

from __future__ import annotations

import pytest

from fedmerit.study.metrics import Better
from fedmerit.study.statistics import Paired
from fedmerit.study.verdicts import judge


@pytest.mark.parametrize(
    ("low", "high", "p", "better", "verdict"),
    [
        (-1, 2, 0.01, "higher", "inside the noise"),
        (0, 2, 0.01, "higher", "inside the noise"),
        (1, 3, 0.2, "higher", "leans better"),
        (1, 3, 0.05, "higher", "better"),
        (1, 3, 0.05, "lower", "worse"),
        (-3, -1, 0.01, "lower", "better"),
        (-3, -1, 0.2, "higher", "leans worse"),
    ],
)
def test_verdicts(low: float, high: float, p: float, better: Better, verdict: str):
    test = Paired(seeds=8, difference=(low + high) / 2, low=low, high=high, p=p / 2, sd=1.0)
    assert judge(test, p, better) == verdict


def test_no_difference_and_too_few_seeds_are_not_noise():
    assert judge(Paired(5, 0.0, 0.0, 0.0, 1.0, 0.0), 1.0, "higher") == "the same"
    assert judge(Paired(1, 0.3, float("nan"), float("nan"), 1.0, float("nan")), 1.0, "higher") == "too few seeds"
    assert judge(Paired(4, 0.3, 0.2, 0.4, 0.125, 0.1), 0.125, "higher") == "too few seeds"
    assert judge(Paired(2, 0.0, 0.0, 0.0, 1.0, 0.0), 1.0, "higher") == "the same"
