"""What goes to clients and comes back, what the server remembers of a round, and where its seconds went."""

import math

import numpy as np
import pytest

from fedmerit.core.facts import LOSS
from fedmerit.core.state import RECENT, Clock, History, remember, remember_facts
from fedmerit.core.types import Cohort, Download, Evaluation, Samples, SparseUpdate, read_only
from fedmerit.core.updates import Updates


def cohort(**facts: list[float]) -> Cohort:
    rows = Updates(np.zeros((2, 1), np.float32))
    return Cohort(1, (3, 5), rows, {name: np.array(column) for name, column in facts.items()})


def test_rounds_and_participations_are_counted():
    once = remember(History(), cohort(samples=[10.0, 20.0], **{LOSS: [0.5, 1.0]}), ["samples"])
    twice = remember(once, cohort(samples=[11.0, 20.0], **{LOSS: [0.25, 1.0]}), ["samples"])
    assert (once.rounds, twice.rounds) == (1, 2)
    assert twice.participations == {3: 2, 5: 2}
    assert twice.first["samples"] == {3: 10.0, 5: 20.0}
    assert twice.recent["samples"] == {3: (10.0, 11.0), 5: (20.0, 20.0)}


def test_the_latest_facts_are_kept():
    told = [(3, {"samples": float(number)}) for number in range(RECENT + 2)]
    history = remember_facts(History(rounds=4), told, ["samples"])
    assert history.recent["samples"][3] == tuple(float(number) for number in range(2, RECENT + 2))
    assert (history.rounds, history.participations[3]) == (4, RECENT + 2)


def test_at_first_sight_the_claim_is_remembered():
    history = remember_facts(History(), [(3, {"samples": 10.0, "claimed:samples": 90.0})], ["samples"])
    assert history.first["samples"][3] == 90.0
    assert history.recent["samples"][3] == (10.0,)


def test_seconds_are_booked_to_stages():
    clock = Clock()
    clock.lap("train")
    clock.lap("aggregate", search=2.0)
    assert clock.laps["search"] == 2.0
    assert -2.0 < clock.laps["aggregate"] < 60 - 2.0, "the seconds of the search are not counted twice"
    clock.lap("score", search=0.0)
    assert set(clock.laps) == {"train", "aggregate", "search", "score"}


MODEL = np.arange(4, dtype=np.float32)


def test_bytes_on_the_wire_count_model_and_vectors():
    assert Download(MODEL).nbytes == 16
    assert Download(MODEL, vectors={"control": MODEL, "mean": MODEL[:3]}).nbytes == 16 + 16 + 12


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
