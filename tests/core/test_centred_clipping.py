"""Centred clipping: updates count up to a radius around the last aggregate [CC]."""

from __future__ import annotations

import numpy as np
from helpers import small_task

from fedmerit import DS, Recipe, Server, federate
from fedmerit.core.server.centred_clipping import CentredClipping
from fedmerit.core.server.server import Batch, Mean
from fedmerit.core.updates import Updates

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [60.0, 80.0]], dtype=np.float32)


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
