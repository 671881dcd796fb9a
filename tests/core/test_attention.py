"""Attention: an aggregate per client, between FedAvg's and being alone; by hand and by laws."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit.core.models.attention import ByAttention
from fedmerit.core.recipes import fedamp, m2f
from fedmerit.core.state import PairDistances
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

ROWS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 2]], dtype=np.float32)
WEIGHTS = np.array([0.2, 0.3, 0.5])


def spread(sharpness: float, rows: np.ndarray = ROWS, weights: np.ndarray = WEIGHTS) -> np.ndarray:
    return ByAttention(sharpness)(Updates(rows), range(len(rows)), PairDistances()).spread(weights)


def test_attention_by_hand():
    one, near, none = np.exp(0.0), np.exp(-2 * (1 - 1 / np.sqrt(2))), np.exp(-2.0)
    first = np.array([0.2 * one, 0.3 * near, 0.5 * none])
    assert spread(2.0)[0] == pytest.approx(first / first.sum(), rel=1e-6)


def test_without_sharpness_all_get_the_weights_and_with_much_each_is_alone():
    assert spread(0.0) == pytest.approx(np.tile(WEIGHTS, (3, 1)))
    assert spread(1e4) == pytest.approx(np.eye(3))


def test_every_aggregate_is_for_one_client_and_all_are_one_group():
    groups = ByAttention()(Updates(ROWS), range(3), PairDistances())
    assert [places.tolist() for places in groups.recipients] == [[0], [1], [2]]
    assert len(groups.members) == 1


def test_rows_without_weight_are_empty():
    rows = spread(5.0, weights=np.array([0.0, 0.5, 0.5]))
    assert rows[0, 0] == 0
    assert rows[0, 1] > 0.9, "who has no weight itself gets what those near it have"
    assert spread(2.0, weights=np.zeros(3)).tolist() == np.zeros((3, 3)).tolist()


def test_attention_over_all_rounds_is_that_of_the_mean_cosine():
    turned = Updates(np.array([[1, 0, 0], [0, 1, 0], [0, 0, 2]], dtype=np.float32))
    past = PairDistances().after(range(3), Updates(ROWS).cosine_distances())
    mean = (1 - 1 / np.sqrt(2) + 1) / 2
    for grouping, distance in ((ByAttention(), mean), (ByAttention(over="round"), 1.0)):
        attention = grouping(turned, range(3), past).attention
        assert attention[0, 1] == pytest.approx(np.exp(-10 * distance), rel=1e-5)


def test_a_part_of_an_aggregate_per_client_is_refused():
    with pytest.raises(ConfigError, match="attention needs the reward `whole`"):
        m2f(grouping=fedamp().models.grouping)
