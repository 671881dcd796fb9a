"""What holds of control variates whoever takes part, and of schedules in every round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.lr_schedules import Constant, Cosine, LrSchedule, StepDecay, WarmUp
from fedmerit.core.server.controls import CONTROL, CORRECTION, SLOPE, Control, FedDyn, Scaffold
from fedmerit.core.types import Cohort, Model
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

CLIENTS, LENGTH = 5, 3
cohorts = st.lists(st.sets(st.integers(0, CLIENTS - 1), min_size=1), min_size=1, max_size=6)


def cohort(ids: set[int], random: np.random.Generator) -> Cohort:
    rows, slopes = random.normal(size=(2, len(ids), LENGTH)).astype(np.float32)
    return Cohort(1, tuple(sorted(ids)), Updates(rows), {}, {SLOPE: Updates(slopes)})


def after(control: Control, came: list[set[int]], seed: int) -> dict[str, Model]:
    """The controls after these rounds with equal weights."""
    random, model, parts = np.random.default_rng(seed), np.zeros(LENGTH, np.float32), dict[str, Model]()
    for ids in came:
        weights = np.full(len(ids), 1 / len(ids))
        model, found = control.after(model, parts, cohort(ids, random), weights, CLIENTS)
        parts = dict(found)
    return parts


def mean_of(parts: dict[str, Model]) -> Model:
    return sum(parts.get(f"{CONTROL}:{client}", np.zeros(LENGTH, np.float32)) for client in range(CLIENTS)) / CLIENTS


@given(cohorts, st.integers(0, 2**32 - 1))
def test_with_equal_weights_scaffolds_shared_control_is_the_mean_of_all(came: list[set[int]], seed: int):
    parts = after(Scaffold(), came, seed)
    np.testing.assert_allclose(parts[CONTROL], mean_of(parts), atol=1e-5)
    corrections = [Scaffold().extras(parts, client)[CORRECTION] for client in range(CLIENTS)]
    np.testing.assert_allclose(np.sum(corrections, axis=0), 0, atol=1e-4)


@given(cohorts, st.integers(0, 2**32 - 1))
def test_with_equal_weights_feddyns_shared_control_is_minus_the_mean_of_all(came: list[set[int]], seed: int):
    parts = after(FedDyn(0.3), came, seed)
    np.testing.assert_allclose(parts[CONTROL], -mean_of(parts), atol=1e-5)
    assert {name for name in parts if ":" in name} == {f"{CONTROL}:{client}" for ids in came for client in ids}


@pytest.mark.parametrize("control", [Scaffold(), FedDyn(0.3)], ids=lambda control: control.name)
@given(st.integers(0, 2**32 - 1))
def test_a_client_without_weight_moves_nobody_else(control: Control, seed: int):
    random = np.random.default_rng(seed)
    both, model = cohort({0, 1}, random), np.zeros(LENGTH, np.float32)
    loud = Updates(np.stack([both.updates.row(0), 1e6 * both.updates.row(1)]))
    slopes = Updates(np.stack([both.extras[SLOPE].row(0), 1e6 * both.extras[SLOPE].row(1)]))
    weights = np.array([1.0, 0.0])
    quiet_model, quiet = control.after(model, {}, both, weights, CLIENTS)
    loud_model, found = control.after(model, {}, Cohort(1, (0, 1), loud, {}, {SLOPE: slopes}), weights, CLIENTS)
    assert loud_model.tobytes() == quiet_model.tobytes()
    assert found[CONTROL].tobytes() == quiet[CONTROL].tobytes()


SCHEDULES = [Constant(), StepDecay(3, 0.5), Cosine(), Cosine(0.2), WarmUp(4)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@given(st.integers(1, 300))
def test_every_round_has_a_learning_rate(schedule: LrSchedule, rounds: int):
    factors = [schedule(index, rounds) for index in range(1, rounds + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    rising = isinstance(schedule, WarmUp)
    assert factors == sorted(factors, reverse=not rising)
    assert factors[0] == (0.25 if rising else 1.0)


def test_schedules_by_hand():
    assert [StepDecay(2, 0.1)(index) for index in range(1, 6)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert [Cosine(0.5)(index, 4) for index in range(1, 5)] == pytest.approx([1, 0.9267767, 0.75, 0.5732233])
    assert [WarmUp(2)(index) for index in range(1, 4)] == [0.5, 1, 1]


def test_a_cosine_needs_to_know_its_end():
    with pytest.raises(ConfigError, match="number of rounds"):
        Cosine()(1)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_an_alpha_that_cannot_be(alpha: float):
    with pytest.raises(ConfigError, match=r"train\.alpha"):
        FedDyn(alpha)
