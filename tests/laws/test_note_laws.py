"""When a round's weights are said to depend on nothing but the first criterion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Prioritized, weigh

NAMES = ["DS", "LD", "MW"]


def random_criteria(clients: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(clients, 3))


def moved(clients: int, normalise: str) -> float:
    """Share of the weight that the later criteria move, mean over random rounds."""
    distances = []
    for seed in range(60):
        raw = random_criteria(clients, seed)
        alone, all_three = (weigh(raw[:, :m], NAMES[:m], Prioritized(), normalise).weights for m in (1, 3))
        distances.append(np.abs(all_three - alone).sum() / 2)
    return float(np.mean(distances))


def kinds(raw: np.ndarray, normalise: str) -> dict[str, str]:
    return {note.kind: note.subject for note in weigh(raw, NAMES, Prioritized(), normalise).notes}


@pytest.mark.parametrize(
    ("clients", "expected", "within"), [(10, 0.023, 0.003), (37, 0.007, 0.001), (417, 0.0006, 0.0001)]
)
def test_by_sum_the_later_criteria_hardly_count(clients: int, expected: float, within: float):
    assert moved(clients, "sum") == pytest.approx(expected, abs=within)


@pytest.mark.parametrize("clients", [10, 37, 417])
def test_by_maximum_they_count_for_any_number_of_clients(clients: int):
    assert moved(clients, "max") == pytest.approx(0.11, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_an_idle_priority_is_noted_under_sum_and_not_under_max(seed: int):
    raw = random_criteria(417, seed)
    notes = weigh(raw, NAMES, Prioritized(), "sum").notes
    idle = [note for note in notes if note.kind == "idle-priority"]
    assert [note.subject for note in idle] == ["DS"]
    assert 'normalise = "max"' in idle[0].text
    assert "idle-priority" not in kinds(raw, "max")


def test_a_priority_that_counts_is_not_noted():
    raw = np.array([[1.0, 9.0, 1.0], [1.0, 1.0, 9.0], [1.0, 1.0, 1.0]])
    assert "idle-priority" not in kinds(raw, "sum")


@given(st.floats(1e-3, 1e6), st.integers(2, 20), st.sampled_from(["sum", "max"]))
def test_a_flat_criterion_is_noted(value, clients, normalise):
    raw = np.column_stack([np.arange(1.0, clients + 1), np.full(clients, value), np.arange(clients, 0, -1.0)])
    assert kinds(raw, normalise)["flat-criterion"] == "LD"
