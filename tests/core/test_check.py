"""Nothing that came from a client is trusted: a bad reply is dropped with a reason, and the round goes on."""

import math
import re
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, run_canned
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import CB, DS, LD, Attribute, Criterion, criterion, fedavg, prioritized
from fedmerit.core.check import check
from fedmerit.core.host import Host
from fedmerit.core.showing import printable
from fedmerit.core.state import History, Record, State, View
from fedmerit.core.types import Cohort, Family, Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import TableError

NAN, INF = float("nan"), float("inf")
RECIPE = prioritized(CB, DS, Attribute("region"))
GOOD = {"samples": 10, "balance": 0.5, "attribute:region": 1}
MODEL = np.array([1.0, 2.0], dtype=np.float32)


def one_round(fleet: CannedFleet) -> tuple[State, Record]:
    return run_canned(RECIPE, fleet, State(MODEL), evaluate=True)


def with_second(facts: Any = GOOD, update: tuple[float, float] = (3.0, 3.0)) -> CannedFleet:
    """Three clients, of which the second answers as given."""
    rows = np.array([[1, 1], update, [1, 1]], dtype=np.float32)
    return CannedFleet(rows, [GOOD, facts, GOOD])


@pytest.mark.parametrize("bad", [(NAN, 0.0), (0.0, INF), (-INF, 0.0), (3e20, -3e20)])
def test_an_update_that_is_not_finite_or_too_large_to_square_is_dropped(bad: tuple[float, float]):
    state, record = one_round(with_second(update=bad))
    assert record.ids == (0, 2)
    assert record.dropped == {1: "update contains NaN, infinity or values too large to square"}
    assert state.model == pytest.approx(MODEL + 1)
    assert state.history.participations == {0: 1, 2: 1}


def test_an_update_that_is_large_counts():
    state, record = one_round(with_second(update=(3e18, -3e18)))
    assert record.dropped == {}
    assert state.model == pytest.approx([1e18, -1e18])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples": None}, r"fact samples is missing or not a number \(got None\)"),
        ({"samples": "10"}, r"fact samples is missing or not a number \(got '10'\)"),
        ({"samples": True}, r"fact samples is missing or not a number \(got True\)"),
        ({"samples": [10]}, r"fact samples is missing or not a number \(got \[10\]\)"),
        ({"samples": 10 + 0j}, "fact samples is missing or not a number"),
        ({"samples": NAN}, r"fact samples must be finite and >= 0 \(got nan\)"),
        ({"samples": INF}, r"fact samples must be finite and >= 0 \(got inf\)"),
        ({"samples": -1}, r"fact samples must be finite and >= 0 \(got -1\)"),
        ({"samples": 10**400}, "fact samples"),
        ({"samples": "x" * 10_000}, r"fact samples is missing or not a number \(got 'xxx"),
        ({"samples": 0}, "no training samples"),
        ({"samples": 0.0}, "no training samples"),
        ({"balance": 1.01}, r"fact balance must be in 0..1 \(got 1.01\)"),
        ({"balance": -0.1}, r"fact balance must be finite and >= 0 \(got -0.1\)"),
        ({"attribute:region": 2}, r"fact attribute:region must be in 0..1 \(got 2\)"),
        ({"attribute:region": False}, r"fact attribute:region is missing or not a number \(got False\)"),
    ],
)
def test_a_fact_that_cannot_be_drops_the_client(change: dict[str, Any], reason: str):
    state, record = one_round(with_second(GOOD | change))
    assert (record.ids, list(record.dropped)) == ((0, 2), [1])
    assert re.match(reason, record.dropped[1])
    assert len(record.dropped[1]) < 200
    assert state.model == pytest.approx(MODEL + 1)


def test_a_missing_fact_drops_the_client_and_facts_nobody_asked_for_do_not_matter():
    assert one_round(with_second({"samples": 10, "balance": 0.5}))[1].dropped == {
        1: "fact attribute:region is missing or not a number (got None)"
    }
    _, record = one_round(with_second(GOOD | {"mood": "bad", "weight": NAN}))
    assert record.dropped == {}
    assert set(record.facts) == {"samples", "balance", "attribute:region"}


def test_an_update_of_another_length_is_dropped():
    fleet = CannedFleet(np.ones((2, 3), dtype=np.float32), [GOOD, GOOD])
    state, record = one_round(fleet)
    assert record.dropped == dict.fromkeys((0, 1), "update has 3 values, but the model has 2")
    assert (state.model == MODEL).all()


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
    state, record = one_round(fleet)
    assert (state.model == MODEL).all()
    assert record.ids == ()
    assert record.weights is None
    assert set(record.dropped) == {0, 1}
    assert record.evaluation is not None
    assert (state.history.rounds, state.history.participations) == (1, {})


def test_zero_scores_may_keep_the_model():
    facts = GOOD | {"balance": 0.0}
    fleet = CannedFleet(np.ones((2, 2), dtype=np.float32), [facts, facts])
    recipe = prioritized(CB, normalise="none", when_zero="keep")
    state, record = run_canned(recipe, fleet, State(MODEL))
    assert record.ids == (0, 1)
    assert (state.model == MODEL).all()


def test_a_claim_beyond_what_the_federation_knows_is_dropped_with_its_reason():
    facts = [{"samples": 10, "labels": labels} for labels in (3, 1e6, 10)]
    fleet = CannedFleet(np.ones((3, 2), np.float32), facts, limits={"labels": 10, "samples": 500})
    _, record = run_canned(prioritized(LD, DS), fleet)
    assert record.ids == (0, 2)
    assert record.dropped == {1: "fact labels must be in 0..10 (got 1000000.0)"}


@criterion("Grown", Family.DATA, "rows, grown as a user may write it", facts=["samples"])
def grown(cohort: Cohort, history: History) -> Any:
    return np.array([math.exp(samples) for samples in cohort.facts["samples"]])


@criterion("Power", Family.DATA, "rows to a power", facts=["samples"])
def power(cohort: Cohort, history: History) -> Any:
    with np.errstate(over="ignore"):
        return cohort.facts["samples"] ** 99


@pytest.mark.parametrize(("own", "value"), [(grown, "nan"), (power, "inf")])
def test_a_client_that_makes_a_criterion_overflow_is_dropped_and_the_others_count(own: Criterion, value: str):
    fleet = CannedFleet(np.ones((3, 2), np.float32), [{"samples": samples} for samples in (3, 10**9, 4)])
    _, record = run_canned(prioritized(own, DS), fleet)
    assert record.ids == (0, 2)
    assert record.dropped == {1: f"criterion {own.name} must be a number >= 0 (got {value})"}
    assert len(record.diagnostics.norms) == 2


def test_one_client_alone_that_overflows_leaves_the_model_as_it_is():
    fleet = CannedFleet(np.ones((1, 2), np.float32), [{"samples": 10**9}])
    state, record = run_canned(prioritized(power, DS), fleet, State(MODEL))
    assert (state.model == MODEL).all()
    assert list(record.dropped) == [0]


@criterion("Table", Family.DATA, "a row for each client where a number is due", facts=["samples"])
def two_columns(cohort: Cohort, history: History) -> Any:
    return np.full((len(cohort.ids), 2), NAN)


@pytest.mark.parametrize("own", [power, two_columns], ids=repr)
def test_a_criterion_without_a_number_for_any_client_is_the_users_mistake(own: Criterion):
    fleet = CannedFleet(np.ones((2, 2), np.float32), [{"samples": 10**9}] * 2)
    with pytest.raises(TableError, match=own.name):
        run_canned(prioritized(own, DS), fleet)


@given(st.text(), st.integers(4, 600))
def test_text_of_strangers_is_one_printable_line(text: str, most: int):
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert shown == text or len(text) > most or not text.isprintable()


def test_vectors_sent_with_the_update_must_be_finite():
    control = Updates(np.array([[1, 1], [NAN, 1]], np.float32))
    replies = Replies(
        (4, 7), Updates(np.ones((2, 2), np.float32)), ({"samples": 3.0},) * 2, vectors={"control": control}
    )
    view = View.of(State(MODEL), Host.of(with_second()), 0)
    cohort, dropped = check(replies, fedavg().required_facts, view)
    assert cohort.ids == (4,)
    assert cohort.vectors["control"].row(0).tolist() == [1, 1]
    assert dropped == {7: "control contains NaN, infinity or values too large to square"}


def test_a_value_of_0_is_a_number():
    fleet = CannedFleet(np.ones((3, 2), np.float32), [GOOD, GOOD | {"balance": 0.0}, GOOD])
    _, record = one_round(fleet)
    assert (record.ids, record.dropped) == ((0, 1, 2), {})
    assert record.weights.raw[1, 0] == 0
