"""Caps in a recipe: in each group, in ledger and explanation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import CannedFleet, CommandLine, run_canned

from fedmerit import Cap, Prioritized, Product, load_config, m2f, run_config, weigh
from fedmerit.config.recipe import make_recipe
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION
from fedmerit.core.recipes import RECIPES


def test_each_group_has_its_own_cap():
    updates = np.array([[1, 0]] * 3 + [[0, 1]] * 3, dtype=np.float32)
    fleet = CannedFleet(updates, [{"samples": n} for n in (1e6, 1, 1, 1, 1, 1e6)])
    recipe = replace(m2f(PARTICIPATION, DATA_RATIO), limits=(Cap(1.5),))
    earned = run_canned(recipe, fleet)[1].weights
    assert earned.weights == pytest.approx([1 / 2, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 2])
    assert [note.text[:12] for note in earned.notes if note.kind == "cap"] == ["group 1 of 2", "group 2 of 2"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_accepts_limits_by_name(name: str):
    limits = 'recipe.limits=[{name="cap", times=1.5}]'
    made = make_recipe(load_config(None, [f"recipe.name={name}", limits]).recipe)
    assert made.limits == (Cap(1.5),)


def test_ledger_and_explain_tell_what_was_cut(cli: CommandLine, tmp_path: Path):
    changes = ["task.partition=dirichlet", "task.alpha=0.1", "task.clients=5", "run.rounds=1", "run.workers=1"]
    run = run_config(
        load_config(None, [*changes, "run.fraction=1.0", "recipe.limits=[{name='cap', times=1.2}]"]), tmp_path / "run"
    )
    largest = max(run.explain(1), key=lambda client: client.uncapped or 0)
    assert largest.earned > largest.weight == pytest.approx(1.2 / 5)
    told = cli("explain", tmp_path / "run", "--round", "1", "--json").json
    assert {client["id"]: client["uncapped"] for client in told["clients"]}[largest.id] == largest.earned
    assert any(note.startswith("the cap cut") for note in told["notes"])
    assert "uncapped" in cli("explain", tmp_path / "run", "--round", "1").out
    assert (
        "the cap reduced it to 24.00%"
        in cli("explain", tmp_path / "run", "--round", "1", "--client", str(largest.id)).out
    )
    assert run.frame("weights")["uncapped"].max() == largest.earned


def test_the_note_counts_what_was_cut_and_zeros_that_stay():
    """Ten clients, cap 2: of the shares 8, 1, 1, 0 ... the first is cut to 0.2."""
    earned = weigh(np.array([[8.0], [1.0], [1.0], *[[0.0]] * 7]), ["DS"], Prioritized())
    capped = Cap(2.0)(earned, {})
    note = next(note for note in capped.notes if note.kind == "cap")
    assert note.text.startswith("the cap cut 1 of 10 weights, the largest from 80.00% to 20.00%")
    assert any(note.kind == "zero-weights" for note in earned.notes)
    assert any(note.kind == "zero-weights" for note in capped.notes) == bool((capped.weights == 0).any())


def test_weights_at_the_cap_are_not_touched():
    earned = weigh(np.array([[2.0], [1.0], [1.0]]), ["DS"], Prioritized())
    assert Cap(1.5)(earned, {}).weights is earned.weights


def test_a_cap_keeps_the_notes_that_stay_true():
    """That some weigh nothing is not so where the cap gave them weight; what separates nobody stays so."""
    flat = weigh(np.array([[8.0, 1.0], [1.0, 1.0], [0.0, 1.0]]), ["DS", "LD"], Product(), "max")
    assert [note.kind for note in flat.notes] == ["zero-weights", "flat-criterion"]
    for times, last, kinds in (
        (1.0, 1 / 3, ["flat-criterion", "cap"]),
        (2.0, 0, [*(n.kind for n in flat.notes), "cap"]),
    ):
        capped = Cap(times)(flat, {})
        assert capped.weights[2] == pytest.approx(last)
        assert [note.kind for note in capped.notes] == kinds
