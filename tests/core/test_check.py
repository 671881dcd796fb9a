"""Nothing that came from a client is trusted: a bad reply is left out with a reason, and the round goes on."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import CB, DS, LD, Attribute, Criterion, prioritized
from fedmerit.core.check import check
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.table import criterion
from fedmerit.core.round import play
from fedmerit.core.showing import printable
from fedmerit.core.state import Record, State
from fedmerit.core.types import Cohort, Family, History, Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import TableError
from fedmerit.fleet.local import LocalFleet

NAN, INF = float("nan"), float("inf")
RECIPE = prioritized(CB, DS, Attribute("region"))
GOOD = {"samples": 10, "balance": 0.5, "attribute:region": 1}
MODEL = np.array([1.0, 2.0], dtype=np.float32)


def play_one(fleet: CannedFleet) -> tuple[State, Record]:
    return play(State(MODEL), RECIPE, fleet, selection=Uniform(1.0), seed=0, evaluate=True)


def with_second(facts: Any = GOOD, update: tuple[float, float] = (3.0, 3.0)) -> CannedFleet:
    """Three clients, of which the second answers as given."""
    rows = np.array([[1, 1], update, [1, 1]], dtype=np.float32)
    return CannedFleet(rows, [GOOD, facts, GOOD])


def test_good_replies_all_count():
    state, record = play_one(with_second())
    assert record.ids == (0, 1, 2)
    assert record.left_out == {}
    assert state.model == pytest.approx(MODEL + (1 + 3 + 1) / 3)


@pytest.mark.parametrize("bad", [(NAN, 0.0), (0.0, INF), (-INF, 0.0), (NAN, NAN)])
def test_an_update_that_is_not_finite_is_left_out(bad: tuple[float, float]):
    state, record = play_one(with_second(update=bad))
    assert record.ids == (0, 2)
    assert list(record.left_out) == [1]
    assert record.left_out[1].startswith("update holds NaN")
    assert state.model == pytest.approx(MODEL + 1)
    assert state.history.participations == {0: 1, 2: 1}


def test_an_update_that_is_large_counts():
    state, record = play_one(with_second(update=(3e18, -3e18)))
    assert record.left_out == {}
    assert state.model == pytest.approx([1e18, -1e18])


def test_an_update_that_is_too_large_to_square_is_left_out_without_a_warning():
    state, record = play_one(with_second(update=(3e20, -3e20)))
    assert "too large" in record.left_out[1]
    assert state.model == pytest.approx(MODEL + 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples": None}, "fact samples is missing or not a number: None"),
        ({"samples": "10"}, "fact samples is missing or not a number: '10'"),
        ({"samples": True}, "fact samples is missing or not a number: True"),
        ({"samples": [10]}, r"fact samples is missing or not a number: \[10\]"),
        ({"samples": 10 + 0j}, "fact samples is missing or not a number"),
        ({"samples": NAN}, "fact samples must be finite and >= 0: nan"),
        ({"samples": INF}, "fact samples must be finite and >= 0: inf"),
        ({"samples": -1}, "fact samples must be finite and >= 0: -1"),
        ({"samples": 0}, "no training samples"),
        ({"samples": 0.0}, "no training samples"),
        ({"balance": 1.01}, r"fact balance lies in 0..1: 1.01"),
        ({"balance": -0.1}, "fact balance must be finite and >= 0: -0.1"),
        ({"attribute:region": 2}, r"fact attribute:region lies in 0..1: 2"),
        ({"attribute:region": False}, "fact attribute:region is missing or not a number: False"),
    ],
)
def test_a_fact_that_cannot_be_leaves_the_client_out(change: dict[str, Any], reason: str):
    state, record = play_one(with_second(GOOD | change))
    assert record.ids == (0, 2)
    assert list(record.left_out) == [1]
    assert re.match(reason, record.left_out[1])
    assert state.model == pytest.approx(MODEL + 1)


def test_a_missing_fact_leaves_the_client_out():
    _, record = play_one(with_second({"samples": 10, "balance": 0.5}))
    assert record.left_out == {1: "fact attribute:region is missing or not a number: None"}


def test_a_long_lie_is_told_shortly():
    _, record = play_one(with_second(GOOD | {"samples": "x" * 10_000}))
    assert len(record.left_out[1]) < 200


def test_a_number_beyond_all_floats_leaves_the_client_out():
    _, record = play_one(with_second(GOOD | {"samples": 10**400}))
    assert list(record.left_out) == [1]


def test_facts_nobody_asked_for_do_not_matter():
    _, record = play_one(with_second(GOOD | {"mood": "bad", "weight": NAN}))
    assert record.left_out == {}
    assert set(record.facts) == {"samples", "balance", "attribute:region"}


def test_an_update_of_another_length_is_left_out():
    state, record = play_one(CannedFleet(np.ones((2, 3), dtype=np.float32), [GOOD, GOOD]))
    assert record.left_out == dict.fromkeys((0, 1), "update has 3 values, the model 2")
    assert (state.model == MODEL).all()


def test_clients_that_failed_are_named_and_the_others_count():
    fleet = CannedFleet(np.ones((2, 2), dtype=np.float32), [GOOD, GOOD], {1: "out of battery"})
    state, record = play_one(fleet)
    assert record.ids == (0, 2)
    assert record.left_out == {1: "out of battery"}
    assert state.model == pytest.approx(MODEL + 1)


@pytest.mark.parametrize(
    "fleet",
    [
        CannedFleet(np.full((2, 2), NAN, dtype=np.float32), [GOOD, GOOD]),
        CannedFleet(np.ones((2, 2), dtype=np.float32), [GOOD | {"samples": 0}] * 2),
        CannedFleet(np.empty((0, 2), dtype=np.float32), [], {0: "gone", 1: "gone"}),
    ],
    ids=["updates", "facts", "failed"],
)
def test_the_model_is_kept_where_nobody_can_be_weighed(fleet: CannedFleet):
    state, record = play_one(fleet)
    assert (state.model == MODEL).all()
    assert record.ids == ()
    assert record.weights is None
    assert set(record.left_out) == {0, 1}
    assert record.evaluation is not None
    assert (state.history.rounds, state.history.participations) == (1, {})


def test_zero_scores_may_keep_the_model():
    facts = GOOD | {"balance": 0.0}
    fleet = CannedFleet(np.ones((2, 2), dtype=np.float32), [facts, facts])
    recipe = prioritized(CB, normalise="none", when_zero="keep")
    state, record = play(State(MODEL), recipe, fleet, selection=Uniform(1.0), seed=0, evaluate=False)
    assert record.ids == (0, 1)
    assert (state.model == MODEL).all()


def test_a_claim_beyond_what_the_federation_knows_is_left_out_with_its_reason():
    facts = [{"samples": 10, "labels": labels} for labels in (3, 1e6, 10)]
    fleet = CannedFleet(np.ones((3, 2), np.float32), facts, limits={"labels": 10, "samples": 500})
    _, record = play(State(MODEL), prioritized(LD, DS), fleet, selection=Uniform(1.0), seed=0, evaluate=False)
    assert record.ids == (0, 2)
    assert record.left_out == {1: "fact labels lies in 0..10: 1000000.0"}


def test_a_local_federation_knows_its_rows_and_classes():
    with LocalFleet(small_task()) as fleet:
        assert fleet.server.limits == {"samples": 45.0, "labels": 3.0}


@criterion("Grown", Family.DATA, "rows, grown as a user may write it", facts=["samples"])
def grown(cohort: Cohort, history: History) -> Any:
    return np.array([math.exp(samples) for samples in cohort.facts["samples"]])


@criterion("Power", Family.DATA, "rows to a power", facts=["samples"])
def power(cohort: Cohort, history: History) -> Any:
    with np.errstate(over="ignore"):
        return cohort.facts["samples"] ** 99


@pytest.mark.parametrize(("own", "value"), [(grown, "nan"), (power, "inf")])
def test_who_makes_a_criterion_overflow_is_left_out_and_the_others_count(own: Criterion, value: str):
    fleet = CannedFleet(np.ones((3, 2), np.float32), [{"samples": samples} for samples in (3, 10**9, 4)])
    _, record = play(State(MODEL), prioritized(own, DS), fleet, selection=Uniform(1.0), seed=0, evaluate=False)
    assert record.ids == (0, 2)
    assert record.left_out == {1: f"criterion {own.name} has no number >= 0 for it: {value}"}
    assert record.observations is not None
    assert len(record.observations.norms) == 2


def test_one_client_alone_that_overflows_leaves_the_model_as_it_is():
    fleet = CannedFleet(np.ones((1, 2), np.float32), [{"samples": 10**9}])
    state, record = play(State(MODEL), prioritized(power, DS), fleet, selection=Uniform(1.0), seed=0, evaluate=False)
    assert (state.model == MODEL).all()
    assert list(record.left_out) == [0]


def test_a_criterion_that_has_numbers_for_nobody_is_the_users_mistake():
    fleet = CannedFleet(np.ones((2, 2), np.float32), [{"samples": 10**9}] * 2)
    with pytest.raises(TableError, match="Power"):
        play(State(MODEL), prioritized(power, DS), fleet, selection=Uniform(1.0), seed=0, evaluate=False)


@given(st.text(), st.integers(4, 600))
def test_text_of_strangers_is_one_printable_line(text: str, most: int):
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert shown == text or len(text) > most or not text.isprintable()


def test_vectors_beside_the_update_must_be_finite():
    updates = Updates(np.ones((2, 2), np.float32))
    beside = Updates(np.array([[1, 1], [NAN, 1]], np.float32))
    facts = {"samples": 3.0}
    replies = Replies((4, 7), updates, (facts, facts), {}, {}, extras={"control": beside})
    cohort, left_out = check(1, replies, ("samples",), 2)
    assert cohort.ids == (4,)
    assert left_out == {7: "control holds NaN, infinity or values too large to square"}


@criterion("Table", Family.DATA, "a row for each client where a number is due", facts=["samples"])
def table_of(cohort: Cohort, history: History) -> Any:
    return np.full((len(cohort.ids), 2), NAN)


def test_a_criterion_without_a_number_for_each_client_is_the_users_mistake_too():
    fleet = CannedFleet(np.ones((2, 2), np.float32), [{"samples": 3}] * 2)
    with pytest.raises(TableError, match="Table"):
        play(State(MODEL), prioritized(table_of, DS), fleet, selection=Uniform(1.0), seed=0, evaluate=False)


def test_a_value_of_0_is_a_number():
    fleet = CannedFleet(np.ones((3, 2), np.float32), [GOOD, GOOD | {"balance": 0.0}, GOOD])
    _, record = play_one(fleet)
    assert (record.ids, record.left_out) == ((0, 1, 2), {})
    assert record.weights is not None
    assert record.weights.raw[1, 0] == 0
