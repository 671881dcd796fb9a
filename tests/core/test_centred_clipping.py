"""Centred clipping: updates count up to a radius around the last aggregate [CC]."""

from __future__ import annotations

import numpy as np
from helpers import small_task

from fedmerit import Recipe, Server, federate
from fedmerit.core.criteria.table import DS
from fedmerit.core.server.centred_clipping import CentredClipping
from fedmerit.core.server.server import Batch, Mean
from fedmerit.core.updates import Updates

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [60.0, 80.0]], dtype=np.float32)
THIRDS = np.full(3, 1 / 3)


def test_one_iteration_by_hand():
    # from 0: distances 1, 1 and 100; with radius 1 the third counts 1/100 of itself
    found = CentredClipping(radius=1.0)(Batch(Updates(ROWS)), THIRDS)
    np.testing.assert_allclose(found, [(1 + 0.6) / 3, (1 + 0.8) / 3], rtol=1e-6)


def test_it_starts_from_the_last_aggregate():
    last = np.array([10.0, 0.0], dtype=np.float32)
    found = CentredClipping(radius=9.0)(Batch(Updates(ROWS[:1]), own={"aggregate": last}), np.ones(1))
    np.testing.assert_allclose(found, [1.0, 0.0], atol=1e-6)  # 10 + (1 - 10): within the radius
    near = CentredClipping(radius=3.0)(Batch(Updates(ROWS[:1]), own={"aggregate": last}), np.ones(1))
    np.testing.assert_allclose(near, [7.0, 0.0], atol=1e-6)


def test_a_large_radius_is_the_mean_and_several_weightings_are_rows():
    batch, weightings = Batch(Updates(ROWS)), np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 0.0]])
    found = CentredClipping(radius=1e6)(batch, weightings)
    np.testing.assert_allclose(found, Mean()(batch, weightings), rtol=1e-5)
    assert not found[2].any()


def test_a_run_remembers_the_aggregate():
    aggregator = CentredClipping(radius=0.01)
    run = federate(small_task(), Recipe((DS,), server=Server(aggregator)), rounds=3, fraction=1.0)
    plain = federate(small_task(), Recipe((DS,)), rounds=3, fraction=1.0)
    start = small_task().learner.start(0)
    assert np.linalg.norm(run.model - start) < np.linalg.norm(plain.model - start)
