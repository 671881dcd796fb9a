"""Contributions: the laws of the Shapley value, brute force, sampling, and what a run keeps of them.

The oracle is a loop over all orders.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, permutations
from math import factorial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import fedavg, federate, load_config, load_task, m2f, run_config
from fedmerit.core.criteria.contribution import (
    CoalitionValues,
    Contribution,
    Method,
    banzhaf,
    find_contribution,
    leave_one_out,
    sampled_shapley,
    shapley,
)
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.types import Cohort, Note
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.contributions import contributions_dict

Game = tuple[int, np.ndarray]
games = st.integers(1, 5).flatmap(
    lambda number: st.tuples(
        st.just(number),
        st.lists(st.floats(-1, 1), min_size=1 << number, max_size=1 << number).map(np.array),
    )
)


def game_of(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A game by the value of each coalition, which is numbered by its members' bits."""
    return lambda who: values[who @ (1 << np.arange(who.shape[1]))]


def by_orders(number: int, values: np.ndarray) -> np.ndarray:
    """The Shapley value as it is defined: a loop over all orders."""
    found = np.zeros(number)
    for order in permutations(range(number)):
        inside = 0
        for client in order:
            found[client] += values[inside | 1 << client] - values[inside]
            inside |= 1 << client
    return found / factorial(number)


@given(games)
def test_shapley_is_the_mean_over_all_orders(game: Game) -> None:
    number, values = game
    found = shapley(game_of(values), number)
    np.testing.assert_allclose(found, by_orders(number, values), atol=1e-12)
    np.testing.assert_allclose(found.sum(), values[-1] - values[0], atol=1e-12)


@given(games)
def test_banzhaf_is_the_mean_over_all_coalitions_of_the_others(game: Game) -> None:
    number, values = game
    for client, found in enumerate(banzhaf(game_of(values), number)):
        others = [1 << other for other in range(number) if other != client]
        inside = [sum(some) for size in range(number) for some in combinations(others, size)]
        assert found == pytest.approx(np.mean([values[one | 1 << client] - values[one] for one in inside]), abs=1e-12)


@given(games, st.integers(0, 4))
def test_who_adds_nothing_to_any_coalition_is_worth_nothing(game: Game, client: int) -> None:
    number, values = game
    client %= number
    codes = np.arange(1 << number)
    worth = game_of(values[codes & ~(1 << client)])
    for method in (shapley, banzhaf, leave_one_out):
        assert method(worth, number)[client] == pytest.approx(0, abs=1e-12)
    assert sampled_shapley(worth, number, 8, seed=1)[0][client] == 0


@settings(deadline=None)
@given(games, st.integers(0, 100))
def test_sampled_values_add_up_and_come_within_their_error(game: Game, seed: int) -> None:
    number, values = game
    found, errors = sampled_shapley(game_of(values), number, 400, seed)
    assert found.sum() == pytest.approx(values[-1] - values[0], abs=1e-9)
    assert (np.abs(found - by_orders(number, values)) <= 6 * errors + 1e-9).all()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten clients, two of which send nothing learned."""
    folder = tmp_path_factory.mktemp("worth") / "run"
    changes = ["task.clients=10", "task.server=300", "task.kinds={free_rider=0.2}", "task.partition=iid"]
    changes += ["recipe={stages=['contribution:shapley', 'contribution:cosine']}", "run.rounds=3", "run.fraction=1.0"]
    run_config(load_config(None, [*changes, "run.workers=1", "train.lr=0.1"]), folder)
    return folder


def test_a_run_keeps_an_account_that_does_not_touch_its_weights(measured: Path) -> None:
    with open_ledger(measured) as ledger:
        found, riders = (
            contributions_dict(ledger),
            [place for place, name in enumerate(ledger.names()) if "free" in name],
        )
        weights = [one for number in (1, 2, 3) for one in ledger.weights(number)]
    assert found["methods"] == ["shapley", "cosine"]
    assert len(riders) == 2
    assert {one["client"] for one in found["clients"][-2:]} == set(riders)
    for one in found["clients"]:
        assert one["total"]["shapley"] == pytest.approx(3 * one["mean"]["shapley"])
    assert {tuple(one.criteria) for one in weights} == {("DS",)}


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="shapley"):
        find_contribution("contribution:shaply")
    with pytest.raises(ConfigError, match="with personal models use `cosine`"):
        replace(m2f(), stages=(Contribution(),))
    task = load_task("digits", clients=4, partition="iid")
    with pytest.raises(ConfigError, match=r"set task\.server = 1000, or use `early`"):
        federate(task, replace(fedavg(), stages=(Contribution(),)), rounds=1)
    recipe = replace(fedavg(), stages=(Contribution("cosine"), find_contribution("contribution:cosine:f1")))
    assert part_from_json(part_to_json(recipe)) == recipe
    run = federate(task, recipe, rounds=1, fraction=1.0)
    assert all(-1 <= one.facts["contribution:cosine"] <= 1 for one in run.explain(1))


class Additive:
    """The values of a game in which every client adds one."""

    def by(self, objective: object) -> Callable[[np.ndarray], np.ndarray]:
        return lambda who: who.sum(axis=1).astype(float)


def test_up_to_twelve_clients_are_exact() -> None:
    def value(method: Method, number: int) -> tuple[np.ndarray, tuple[Note, ...]]:
        rows = Updates(np.ones((number, 2), np.float32))
        cohort = Cohort(1, tuple(range(number)), rows, {"samples": np.ones(number)})
        return Contribution(method).values(cohort, Additive(), 1)

    for method, number in (("shapley", 12), ("banzhaf", 12), ("shapley", 13)):
        values, notes = value(method, number)
        assert values == pytest.approx(np.ones(number))
        assert [note.kind for note in notes] == ["sampled"] * (number > 12)
    assert notes[0].text.startswith("contribution:shapley by 64 drawn orders of 13 clients")
    with pytest.raises(ConfigError, match="of 12 clients at most; a round has 13"):
        value("banzhaf", 13)


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8).map(np.array), st.integers(0, 100))
def test_the_error_of_two_pairs_is_half_of_their_difference(values: np.ndarray, seed: int) -> None:
    """Of three clients an order and its reverse put each first and last, or twice in the middle."""
    found, errors = sampled_shapley(game_of(values), 3, 4, seed)

    def pair(order: tuple[int, ...]) -> np.ndarray:
        added = np.zeros(3)
        for one in (order, order[::-1]):
            inside = 0
            for client in one:
                added[client] += (values[inside | 1 << client] - values[inside]) / 2
                inside |= 1 << client
        return added

    pairs = [pair(order) for order in permutations(range(3))]
    for client in range(3):
        for sign in (1, -1):
            told = found[client] + sign * errors[client]
            assert min(abs(told - one[client]) for one in pairs) < 1e-9


def test_a_coalition_that_cannot_be_measured_is_worth_nothing() -> None:
    cohort = Cohort(1, (0, 1), Updates(np.eye(2, dtype=np.float32)), {"samples": np.array([1.0, 3.0])})
    asked: list[np.ndarray] = []

    class Sum:
        name = "sum"

        def __call__(self, models: np.ndarray) -> np.ndarray:
            asked.append(models)
            return np.where(models[:, 0] > 0, models.sum(axis=1), np.nan)

    worth = CoalitionValues(cohort, np.array([0.0, 1.0], np.float32), lambda models: np.array(list(models))).by(Sum())
    who = np.array([[False, False], [True, False], [False, True], [True, True], [True, True]])
    assert worth(who).tolist() == [0, 2, 0, 2, 2]
    assert asked[0].tolist() == [[0, 1], [1, 1], [0, 2], [0.25, 1.75]]
    assert worth(who).tolist() == [0, 2, 0, 2, 2]
    assert len(asked) == 1, "nobody is asked twice"
