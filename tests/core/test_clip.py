"""Clip: which updates are shortened, by how much, and where that is reported."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet, run_canned
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import DS, MW, Clip, Recipe, Server, fedavg, prioritized
from fedmerit.core.server.aggregators import CoordinateMedian
from fedmerit.core.stages.arc import Arc
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.stages.stages import median_norm
from fedmerit.core.state import History, Record
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates

UPDATES = np.array([[3, 4], [0, 1], [0, 0], [600, 800], [0, 5]], dtype=np.float32)


def one_round(recipe: Recipe, *clips: Clip) -> tuple[np.ndarray, Record]:
    state, record = run_canned(replace(recipe, stages=clips), CannedFleet(UPDATES, [{"samples": 10}] * 5))
    return state.model, record


def test_long_updates_are_clipped_to_the_median_norm_of_those_that_are_not_zero() -> None:
    model, record = one_round(fedavg(), Clip())
    np.testing.assert_allclose(record.facts["clip"], [1, 1, 1, 5 / 1000, 1])
    np.testing.assert_allclose(model, np.array([3 + 3, 4 + 1 + 4 + 5]) / 5, rtol=1e-6)
    (note,) = record.notes
    assert note.kind == "clipped"
    assert note.text == (
        "1 of 5 updates are clipped to a norm of 5, the median norm; the longest, of client 3, to 0.50% of its norm"
    )


def test_the_median_is_that_of_the_clipped_updates() -> None:
    model, _ = one_round(replace(fedavg(), server=Server(CoordinateMedian())), Clip(0.4))
    np.testing.assert_allclose(model, [0, 1.6], rtol=1e-6)


def test_criteria_see_the_updates_as_they_came() -> None:
    whole, cut = (one_round(prioritized(MW, DS), *clips)[1] for clips in ((), (Clip(1e-3),)))
    assert whole.weights.raw.tolist() == cut.weights.raw.tolist()


@pytest.mark.parametrize("times", [200.0, 1e9])
def test_a_limit_that_nobody_reaches_changes_no_bit_and_says_nothing(times: float) -> None:
    model, record = one_round(fedavg(), Clip(times))
    assert model.tobytes() == one_round(fedavg())[0].tobytes()
    assert record.notes == ()


@given(st.lists(st.floats(0, 1e18), min_size=1, max_size=20), st.floats(0, 1e18))
def test_no_update_is_longer_than_the_limit_and_short_ones_stay(values: list[float], limit: float) -> None:
    norms = np.array(values)
    left = clip_factors(norms, limit)
    assert ((left >= 0) & (left <= 1)).all()
    assert (norms * left <= limit * (1 + 1e-9)).all()
    assert (left[norms <= limit] == 1).all()


def test_updates_of_zeros_do_not_count_for_the_median_norm() -> None:
    def median(norms: list[float], past: dict[int, float]) -> float:
        updates = Updates(np.array(norms, np.float32)[:, np.newaxis])
        kept = {"norm": {client: (9.0, norm) for client, norm in past.items()}}
        return median_norm(Cohort(2, tuple(range(len(norms))), updates, {}), History(1, recent=kept))

    assert median([0.0, 0.0, 0.25, 0.75], {}) == 0.5
    assert median([0.0, 0.0], {}) == 0
    assert median([0.0, 0.25], {0: 7.0, 5: 0.0, 6: 0.75}) == 0.5, "what client 0 sent last counts, and zeros never"


def test_two_stages_that_bound_multiply_their_factors():
    """The longest update is cut by both."""
    rows = np.diag([1.0, 4.0, 16.0]).astype(np.float32)
    facts = [{"samples": 1}] * 3
    recipe = replace(fedavg(), stages=(Clip(2.0), Arc(0.4)))
    _, record = run_canned(recipe, CannedFleet(rows, facts))
    alone = [run_canned(replace(fedavg(), stages=(one,)), CannedFleet(rows, facts))[1] for one in recipe.stages]
    product = alone[0].facts["clip"] * alone[1].facts["clip"]
    assert record.facts["clip"] == pytest.approx(product)
    assert (product < np.minimum(alone[0].facts["clip"], alone[1].facts["clip"])).any()
