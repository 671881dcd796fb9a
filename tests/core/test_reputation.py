"""Reputation: a criterion's running mean per client, kept through rounds, absences and resumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import stopped_and_resumed

from fedmerit import CB, DS, MW, Recipe, Validated, load_config, prioritized, run_config
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.host import Host
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import run_stages
from fedmerit.core.seeds import Draws
from fedmerit.core.state import History, View, remember
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import UnknownName

HOST = Host(None, ())  # type: ignore[arg-type]  # a reputation asks nobody


def measured(recipe: Recipe, balances: dict[int, float], history: History) -> Cohort:
    """The cohort of a round in which these clients claimed these balances, with what the stages measure."""
    number, index = len(balances), history.rounds + 1
    facts = {"samples": np.ones(number), "balance": np.array([*balances.values()])}
    cohort = Cohort(index, tuple(balances), Updates(np.zeros((number, 2), np.float32)), facts)
    view = View(index, np.zeros(2, np.float32), history, HOST, Draws(0, index))
    return run_stages(recipe.measuring, cohort, view)[0]


def reputations(recipe: Recipe, rounds: list[dict[int, float]]) -> tuple[list[dict[int, float]], History]:
    """The reputation of balance after each round in which these clients claimed these balances."""
    history, found = History(), []
    for balances in rounds:
        cohort = measured(recipe, balances, history)
        assert recipe.criteria[0](cohort, history).tolist() == cohort.facts["reputation:CB"].tolist()
        found.append(dict(zip(balances, cohort.facts["reputation:CB"].tolist(), strict=True)))
        history = remember(history, cohort, recipe.remembers)
    return found, history


def test_it_is_the_mean_of_the_start_and_the_values_and_newcomers_start_in_the_middle():
    recipe = prioritized(Reputation(CB, half_life=1), normalise="max")
    found, history = reputations(recipe, [{0: 0.2, 1: 0.4, 2: 0.9}, {0: 1.0, 5: 0.0}, {1: 0.0, 5: 0.0}])
    # the start counts half as much as the first value, which counts half as much as the second
    first = (0.4 + 2 * 0.2) / 3
    assert found[0] == pytest.approx({0: first, 1: 0.4, 2: (0.4 + 2 * 0.9) / 3})
    assert found[1] == pytest.approx({0: (0.4 + 2 * 0.2 + 4 * 1.0) / 7, 5: first / 3})  # 0 is the only one known
    assert found[2] == pytest.approx({1: (0.4 + 2 * 0.4) / 7, 5: first / 7})
    assert history.recent["reputation:CB"][2][-1] == pytest.approx((0.4 + 2 * 0.9) / 3)


def test_a_long_half_life_is_the_plain_mean():
    rounds = [{0: 0.2, 1: 0.4, 2: 0.9}, {0: 0.5, 1: 0.4, 2: 0.9}, {0: 0.6, 1: 0.4, 2: 0.9}]
    found, _ = reputations(prioritized(Reputation(CB, half_life=1e9), normalise="max"), rounds)
    assert found[-1][0] == pytest.approx((0.4 + 0.2 + 0.5 + 0.6) / 4, rel=1e-6)


def test_after_many_rounds_it_is_the_value():
    recipe = prioritized(Reputation(CB, half_life=2), normalise="max")
    found, _ = reputations(recipe, [{0: 0.0, 1: 1.0}] + [{0: 0.8, 1: 0.2}] * 40)
    assert found[-1] == pytest.approx({0: 0.8, 1: 0.2}, abs=1e-4)


def test_by_name_and_of_any_criterion():
    made = find_criterion("reputation:CB")
    assert made == Reputation(CB)
    assert (made.degree, made.required_facts) == (True, ("balance",))
    recipe = prioritized(Reputation(Validated(find_objective("accuracy"))), Reputation(MW), DS)
    assert [one.name for one in recipe.measuring] == [
        "validated:accuracy",
        "reputation:validated:accuracy",
        "reputation:MW",
    ]
    with pytest.raises(UnknownName, match="unknown criterion 'nothing'"):
        find_criterion("reputation:nothing")


def test_a_resumed_run_has_the_reputations_of_one_that_was_not_stopped(tmp_path: Path):
    changes = ["task.partition=dirichlet", "task.clients=6", "run.workers=1", "run.fraction=0.5", "run.rounds=4"]
    changes += ["recipe.name=prioritized", "recipe.criteria=reputation:MW,reputation:validated:accuracy,DS"]
    config = load_config(None, [*changes, "task.server=50", "recipe.normalise=max"])
    whole, again = run_config(config, tmp_path / "whole"), stopped_and_resumed(config, tmp_path / "part")
    assert again.model.tobytes() == whole.model.tobytes()
    assert [c.facts for c in again.explain(4)] == [c.facts for c in whole.explain(4)]
    assert {"reputation:MW", "reputation:validated:accuracy"} <= set(again.explain(4)[0].facts)
