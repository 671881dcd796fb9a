"""What holds of control variates whoever takes part, and of schedules in every round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.lr_schedules import cosine_factor
from fedmerit.core.server.controls import CORRECTION, SLOPE, Control, FedDyn, Scaffold
from fedmerit.core.types import EMPTY, Cohort, Model, Own
from fedmerit.core.updates import Updates

CLIENTS, LENGTH = 5, 3
cohorts = st.lists(st.sets(st.integers(0, CLIENTS - 1), min_size=1), min_size=1, max_size=6)


def cohort(ids: set[int], random: np.random.Generator) -> Cohort:
    rows, slopes = random.normal(size=(2, len(ids), LENGTH)).astype(np.float32)
    return Cohort(1, tuple(sorted(ids)), Updates(rows), {}, {SLOPE: Updates(slopes)})


def after(control: Control, came: list[set[int]], seed: int) -> Own:
    """The controls after these rounds with equal weights."""
    random, model, own = np.random.default_rng(seed), np.zeros(LENGTH, np.float32), EMPTY
    for ids in came:
        model, own = control.after(model, cohort(ids, random), np.full(len(ids), 1 / len(ids)), CLIENTS, own)
    return own


def mean_of(own: Own) -> Model:
    return sum(own["clients"].get(str(client), np.zeros(LENGTH, np.float32)) for client in range(CLIENTS)) / CLIENTS


@given(cohorts, st.integers(0, 2**32 - 1))
def test_with_equal_weights_scaffolds_shared_control_is_the_mean_of_all(came: list[set[int]], seed: int):
    own = after(Scaffold(), came, seed)
    np.testing.assert_allclose(own["shared"], mean_of(own), atol=1e-5)
    corrections = [Scaffold().vectors(client, own)[CORRECTION] for client in range(CLIENTS)]
    np.testing.assert_allclose(np.sum(corrections, axis=0), 0, atol=1e-4)


@given(cohorts, st.integers(0, 2**32 - 1))
def test_with_equal_weights_feddyns_shared_control_is_minus_the_mean_of_all(came: list[set[int]], seed: int):
    own = after(FedDyn(0.3), came, seed)
    np.testing.assert_allclose(own["shared"], -mean_of(own), atol=1e-5)
    assert set(own["clients"]) == {str(client) for ids in came for client in ids}


@pytest.mark.parametrize("control", [Scaffold(), FedDyn(0.3)], ids=lambda control: control.name)
@given(st.integers(0, 2**32 - 1))
def test_a_client_without_weight_moves_nobody_else(control: Control, seed: int):
    random = np.random.default_rng(seed)
    both, model = cohort({0, 1}, random), np.zeros(LENGTH, np.float32)
    loud = Updates(np.stack([both.updates.row(0), 1e6 * both.updates.row(1)]))
    slopes = Updates(np.stack([both.vectors[SLOPE].row(0), 1e6 * both.vectors[SLOPE].row(1)]))
    weights = np.array([1.0, 0.0])
    quiet_model, quiet = control.after(model, both, weights, CLIENTS, EMPTY)
    loud_model, found = control.after(model, Cohort(1, (0, 1), loud, {}, {SLOPE: slopes}), weights, CLIENTS, EMPTY)
    assert loud_model.tobytes() == quiet_model.tobytes()
    assert found["shared"].tobytes() == quiet["shared"].tobytes()


@given(st.integers(1, 300))
def test_every_round_has_a_learning_rate(rounds: int):
    factors = [cosine_factor(index, rounds) for index in range(1, rounds + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 1.0
