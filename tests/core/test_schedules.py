"""Learning rates by round, by hand."""

from __future__ import annotations

import pytest

from fedmerit.core.lr_schedules import Constant, Cosine, StepDecay, WarmUp
from fedmerit.errors import ConfigError


def test_rates_by_hand():
    assert [Constant()(index) for index in (1, 50)] == [1, 1]
    assert [StepDecay(3, 0.5)(index) for index in (1, 3, 4, 6, 7)] == [1, 1, 0.5, 0.5, 0.25]
    assert [WarmUp(4)(index) for index in (1, 2, 4, 5)] == [0.25, 0.5, 1, 1]
    assert [Cosine(0.2)(index, 4) for index in (1, 3, 5)] == pytest.approx([1, 0.6, 0.2])


def test_a_cosine_goes_by_the_number_of_rounds():
    with pytest.raises(ConfigError, match="not known"):
        Cosine()(1)
