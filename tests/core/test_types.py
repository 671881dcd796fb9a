"""What goes to clients and comes back: bytes on the wire, accuracies of nobody."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedmerit.core.types import Cohort, Download, Evaluation, Samples, SparseUpdate, read_only
from fedmerit.core.updates import Updates

MODEL = np.arange(4, dtype=np.float32)


def test_bytes_on_the_wire_count_model_and_vectors():
    assert Download(MODEL).nbytes == 16
    assert Download(MODEL, vectors={"control": MODEL, "mean": MODEL[:3]}).nbytes == 16 + 16 + 12


def test_bytes_of_a_reward_count_its_places():
    assert SparseUpdate(MODEL).nbytes == 16
    assert SparseUpdate(MODEL[:2], np.array([0, 3], np.uint32)).nbytes == 8 + 8


def test_a_reward_is_added_where_it_says():
    assert SparseUpdate(MODEL).added_to(MODEL).tolist() == [0, 2, 4, 6]
    changed = SparseUpdate(np.array([5, 7], np.float32), np.array([0, 3], np.uint32)).added_to(MODEL)
    assert changed.tolist() == [5, 1, 2, 10]
    assert MODEL.tolist() == [0, 1, 2, 3]


def test_rows_that_are_read_only_refuse_to_be_written_to():
    rows = Samples(np.zeros((2, 1)), np.array([0, 1]), 2, {"night": np.array([1, 0])}, {"age": 30})
    for array in (rows.read_only().x, rows.read_only().y, rows.read_only().attributes["night"], read_only(MODEL)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    rows.x[0] = 9
    assert rows.read_only().own == {"age": 30}


def test_accuracy_goes_by_rows_and_is_nan_where_nobody_has_any():
    some = Evaluation(np.array([1, 6, 0]), np.array([2, 8, 0]), np.array([1.0, 4.0, 0.0]))
    assert (some.accuracy, some.loss) == (0.7, 0.5)
    assert some.local.tolist()[:2] == [0.5, 0.75]
    assert math.isnan(some.local[2])
    nobody = Evaluation(np.array([0]), np.array([0]), np.array([0.0]))
    assert math.isnan(nobody.accuracy)
    assert math.isnan(nobody.loss)
    assert math.isnan(Evaluation(np.array([1]), np.array([2])).loss)


def test_clients_are_kept_with_all_that_is_theirs():
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    cohort = Cohort(4, (2, 5, 9), Updates(rows), {"samples": np.array([1.0, 2.0, 3.0])}, {"c": Updates(rows + 1)})
    kept = cohort.keep(np.array([0, 2]))
    assert (kept.index, kept.ids, kept.facts["samples"].tolist()) == (4, (2, 9), [1, 3])
    assert kept.updates.row(1).tolist() == [4, 5]
    assert kept.vectors["c"].row(1).tolist() == [5, 6]
