"""Splits: groups part when they rest and their clients do not, and stay parted."""

from __future__ import annotations

import numpy as np

from fedmerit.core.history import PairDistances
from fedmerit.core.models.splits import Splits
from fedmerit.core.updates import Updates

OPPOSED = np.array([[1, 0.1], [-1, 0.1], [1, -0.1], [-1, -0.1], [1, 0], [-1, 0]], dtype=np.float32)
ALIKE = np.abs(OPPOSED)


def split(
    rows: np.ndarray, pairs: PairDistances | None = None, ids: list[int] | None = None, threshold: float = 0.25
) -> list[int]:
    groups = Splits(threshold)(Updates(rows), ids or range(len(rows)), pairs or PairDistances())
    return groups.labels.tolist()


def separated(rows: np.ndarray) -> PairDistances:
    """What is remembered of a first round with these updates."""
    groups = Splits()(Updates(rows), range(len(rows)), PairDistances())
    assert groups.distances is not None
    return PairDistances().after(range(len(rows)), groups.distances, groups.labels)


def test_clients_that_pull_against_each_other_part_and_others_do_not():
    assert split(OPPOSED) == [0, 1, 0, 1, 0, 1]
    assert split(ALIKE) == [0] * 6
    assert split(OPPOSED, threshold=0.0) == [0] * 6


def test_a_split_is_permanent():
    before = separated(OPPOSED)
    assert split(ALIKE, before) == [0, 1, 0, 1, 0, 1]


def test_a_group_is_split_again():
    first = separated(OPPOSED)
    rows = np.array([[1, 0], [-1, 0], [-1, 0.1], [-1, 0], [-0.1, 0.1], [-1, 0.1]], dtype=np.float32)
    assert split(rows, first, threshold=0.5) == [0, 1, 2, 1, 2, 1]


def test_a_client_that_missed_the_split_joins_the_first_group_that_it_may():
    before = separated(OPPOSED[:4])
    assert split(ALIKE, before) == [0, 1, 0, 1, 0, 0]
    assert split(ALIKE[:3], before, ids=[1, 2, 7]) == [0, 1, 0]


def test_two_clients_stay_together():
    assert split(OPPOSED[:2]) == [0, 0]


def test_a_mean_of_just_the_bound_is_not_short():
    """Two to the right, one to the left: the mean is a third of the longest."""
    rows = np.array([[3, 0], [3, 0], [-3, 0]], dtype=np.float32)
    assert split(rows, threshold=1 / 3 - 1e-3) == [0, 0, 0]
    assert split(rows, threshold=1 / 3 + 1e-3) == [0, 0, 1]
    half = np.array([[4, 0], [4, 0], [-4, 0], [4, 0]], dtype=np.float32)
    assert split(half, threshold=0.5) == [0] * 4, "half is not below half"


def test_three_clients_can_part_and_nobody_is_no_group():
    assert split(np.array([[1, 0], [-1, 0.1], [-1, -0.1]], dtype=np.float32), threshold=0.5) == [0, 1, 1]
    assert split(np.empty((0, 2), dtype=np.float32)) == []


def test_a_group_parts_beside_others_that_are_alone():
    """0, 1 and 2 were parted from everybody; 3, 4 and 5 come to rest now."""
    labels = np.array([0, 1, 2, 3, 3, 3])
    alone = PairDistances().after(range(6), np.zeros((6, 6)), labels)
    rows = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [-1, 0.1], [-1, -0.1]], dtype=np.float32)
    assert split(rows, alone, threshold=0.5) == [0, 1, 2, 3, 4, 4]
