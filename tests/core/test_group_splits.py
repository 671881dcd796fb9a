"""Splits: groups part when they rest and their clients do not, and stay parted."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit.core.models.grouping import PairDistances
from fedmerit.core.models.splits import Splits
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, UserError

OPPOSED = np.array([[1, 0.1], [-1, 0.1], [1, -0.1], [-1, -0.1], [1, 0], [-1, 0]], dtype=np.float32)
ALIKE = np.abs(OPPOSED)


def split(rows: np.ndarray, pairs: PairDistances | None = None, ids: list[int] | None = None, at: float = 0.25):
    return Splits(at)(Updates(rows), ids or range(len(rows)), pairs or PairDistances())


def test_clients_that_pull_against_each_other_part_and_others_do_not():
    assert split(OPPOSED).labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert split(ALIKE).labels.tolist() == [0] * 6
    assert split(OPPOSED, at=0.0).labels.tolist() == [0] * 6


def test_who_was_parted_stays_so():
    parted = split(OPPOSED).pairs
    assert split(ALIKE, parted).labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_group_parts_again():
    first = split(OPPOSED).pairs
    rows = np.array([[1, 0], [-1, 0], [-1, 0.1], [-1, 0], [-0.1, 0.1], [-1, 0.1]], dtype=np.float32)
    assert split(rows, first, at=0.5).labels.tolist() == [0, 1, 2, 1, 2, 1]


def test_a_client_that_missed_the_split_joins_the_first_group_that_it_may():
    parted = split(OPPOSED[:4]).pairs
    assert split(ALIKE, parted).labels.tolist() == [0, 1, 0, 1, 0, 0]
    assert split(ALIKE[:3], parted, ids=[1, 2, 7]).labels.tolist() == [0, 1, 0]


def test_two_clients_stay_together():
    assert split(OPPOSED[:2]).labels.tolist() == [0, 0]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="mean update"):
        Splits(1.5)
    with pytest.raises(UserError, match="linkage"):
        Splits(linkage="centroid")


def test_a_mean_of_just_the_bound_is_not_short():
    """Two to the right, one to the left: the mean is a third of the longest."""
    rows = np.array([[3, 0], [3, 0], [-3, 0]], dtype=np.float32)
    assert split(rows, at=1 / 3 - 1e-3).labels.tolist() == [0, 0, 0]
    assert split(rows, at=1 / 3 + 1e-3).labels.tolist() == [0, 0, 1]
    half = np.array([[4, 0], [4, 0], [-4, 0], [4, 0]], dtype=np.float32)
    assert split(half, at=0.5).labels.tolist() == [0] * 4, "half is not below half"
    assert Splits(0.0).at == 0
    assert Splits(1.0).at == 1
    with pytest.raises(ConfigError, match="mean update"):
        Splits(-1e-9)


def test_three_clients_can_part_and_nobody_is_no_group():
    assert split(np.array([[1, 0], [-1, 0.1], [-1, -0.1]], dtype=np.float32), at=0.5).labels.tolist() == [0, 1, 1]
    assert split(np.empty((0, 2), dtype=np.float32)).labels.tolist() == []


def test_a_group_parts_beside_others_that_are_alone():
    """0, 1 and 2 were parted from everybody; 3, 4 and 5 come to rest now."""
    labels = np.array([0, 1, 2, 3, 3, 3])
    alone = PairDistances().after(range(6), np.zeros((6, 6)), labels)
    rows = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [-1, 0.1], [-1, -0.1]], dtype=np.float32)
    assert split(rows, alone, at=0.5).labels.tolist() == [0, 1, 2, 3, 4, 4]
