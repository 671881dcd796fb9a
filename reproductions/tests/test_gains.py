"""Gains over training alone, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reproductions.experiments.gains import Gains


def test_measures_by_hand():
    found = Gains(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.6, 0.7, np.nan]), np.array([0.6, 0.8, 0.6, 0.9]))
    assert found.measures["mean"] == pytest.approx(0.2 / 3)
    assert (found.measures["spread"], found.below) == (pytest.approx(np.std([0.1, 0.2, -0.1])), (2,))
    assert found.measures["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [0.1, 0.2, -0.1])[0, 1])
    assert found.measures["spearman"] == pytest.approx(-0.5)
    assert found.measures["pearson_standalone"] == pytest.approx(0.0, abs=1e-12)
