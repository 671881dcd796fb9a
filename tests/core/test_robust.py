"""The recipe robust: what attackers hold under it, what it reads, and how it is configured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet, run_canned
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import CB, Recipe, robust
from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import make_config
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.state import Record, State
from fedmerit.core.weights.limits import Cap

ROBUST = robust()
HONEST = (1 + np.random.default_rng(2).normal(scale=0.6, size=(10, 20))).astype(np.float32)
ATTACKS = {
    "sign-flip": lambda rows: -rows,
    "noise": lambda rows: 100 * np.random.default_rng(3).normal(size=rows.shape),
    "copies against the mean": lambda rows: np.tile(-0.5 * HONEST.mean(axis=0), (len(rows), 1)),
    "zeros": np.zeros_like,
}


def one_round(
    updates: np.ndarray, samples: list[float] | None = None, recipe: Recipe = ROBUST
) -> tuple[np.ndarray, Record]:
    facts = [{"samples": claim} for claim in samples or [10.0] * len(updates)]
    state, record = run_canned(recipe, CannedFleet(updates.astype(np.float32), facts))
    return state.model, record


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("number", [2, 4])
def test_attackers_hold_nothing_and_the_model_goes_where_the_others_go(attack: str, number: int) -> None:
    updates = HONEST.copy()
    updates[-number:] = ATTACKS[attack](HONEST[-number:])
    model, record = one_round(updates)
    assert record.weights.weights[-number:].sum() < 0.02
    mean = HONEST[:-number].mean(axis=0)
    assert float(model @ mean) / np.linalg.norm(model) / np.linalg.norm(mean) > 0.95
    assert np.linalg.norm(model) < 2 * np.linalg.norm(mean)


@given(st.integers(2, 14), st.integers(0, 2**32 - 1))
def test_no_weight_is_above_two_equal_shares(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    _, record = one_round(random.normal(size=(number, 6)) + random.random())
    assert record.weights.weights.max() <= 2 / number + 1e-9
    assert record.weights.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("claim", [30.0, 1e3, 1e6, 1e9])
def test_a_claim_of_size_earns_no_more_than_the_bound_of_claims(claim: float) -> None:
    """Three medians are what counts: 30 of 120 rows, of which the cap leaves two equal shares."""
    lied = one_round(HONEST, [claim] + [10.0] * 9)[1].weights
    assert lied.weights[0] == pytest.approx(0.2)


def test_an_attacker_is_remembered_and_its_reputation_recovers() -> None:
    flipped = HONEST.copy()
    flipped[-1] *= -1
    state, held = State(np.zeros(20, np.float32)), []
    for updates in (flipped, flipped, HONEST, HONEST, HONEST, HONEST):
        state, record = run_canned(ROBUST, CannedFleet(updates, [{"samples": 10.0}] * 10), state)
        held.append(float(record.weights.weights[-1]))
    assert held[:3] == [0, 0, 0], "one good round is not enough"
    assert held[-1] == pytest.approx(0.1)


def test_where_nobody_stands_out_it_is_the_capped_mean_by_size() -> None:
    sizes = [10.0, 20.0, 10.0, 10.0, 15.0, 10.0, 12.0, 10.0, 10.0, 13.0]
    model, record = one_round(HONEST, sizes)
    assert record.weights.weights.tolist() == pytest.approx((np.array(sizes) / sum(sizes)).tolist())
    assert model == pytest.approx(np.array(sizes) @ HONEST / sum(sizes), abs=1e-5)


def test_weight_that_the_cap_leaves_to_excluded_clients_moves_nothing() -> None:
    updates = HONEST.copy()
    updates[6:] = np.random.default_rng(4).normal(size=(1, 20))  # four copies
    model, record = one_round(updates, recipe=replace(ROBUST, limits=(Cap(1.2),)))
    assert record.weights.weights.tolist() == pytest.approx([0.12] * 6 + [0.07] * 4)
    assert model == pytest.approx(0.12 * HONEST[:6].sum(axis=0), abs=1e-5)


def test_by_name() -> None:
    assert make_recipe(make_config({"recipe": {"name": "robust"}}).recipe) == ROBUST
    table = {"name": "robust", "criteria": ["DS", "SimilarityFilter", "CB"], "limits": [{"name": "cap", "times": 3.0}]}
    assert make_recipe(make_config({"recipe": table}).recipe) == replace(robust(CB), limits=(Cap(3.0),))
    assert part_from_json(part_to_json(ROBUST)) == ROBUST
