"""FedVal's weights when each objective is divided by its own sum, by hand [FedVal, eq. 2]."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit import fedval
from fedmerit.core.search.search import earn
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates


def test_both_readings_of_gamma_and_s():
    """gamma = (3, 1); p_k = sum_j gamma_j s_jk / total, or sum_j gamma_j / sum(gamma) * s_jk / sum_k s_jk."""
    scores = np.array([[0.9, 0.2], [0.6, 0.6]])
    facts = {"samples": np.ones(2), "validated:accuracy": scores[:, 0], "validated:f1": scores[:, 1]}
    cohort = Cohort(1, (0, 1), Updates(np.zeros((2, 1), np.float32)), facts)
    total = earn(fedval("accuracy", "f1", gamma=[3, 1]), cohort, History()).weights
    assert total == pytest.approx([2.9 / (2.9 + 2.4), 2.4 / (2.9 + 2.4)])
    each = earn(fedval("accuracy", "f1", gamma=[3, 1], normalise="sum"), cohort, History()).weights
    assert each == pytest.approx([0.75 * 0.6 + 0.25 * 0.25, 0.75 * 0.4 + 0.25 * 0.75])
