"""Robust criteria, reputations and the recipe robust: values by hand, in range for any updates, what attackers hold."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet, SoftmaxLearner, random_split, run_canned, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import (
    CB,
    DS,
    MW,
    Cap,
    Criterion,
    InTime,
    Recipe,
    Samples,
    Task,
    Uniform,
    Validated,
    fedval,
    prioritized,
    robust,
)
from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import make_config
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import NearestDistance, NormInlier, copies
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.host import Host, Predict
from fedmerit.core.objectives import Predictions, find_objective
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import run_round, run_stages
from fedmerit.core.seeds import Draws, derive
from fedmerit.core.state import History, Record, State, View, remember
from fedmerit.core.types import Cohort, Note
from fedmerit.core.updates import Updates
from fedmerit.errors import UnknownName
from fedmerit.fleet.local import LocalFleet

BY_UPDATES = (NormInlier(), NearestDistance())


def values(criterion: Criterion, rows: np.ndarray) -> np.ndarray:
    cohort = Cohort(1, tuple(range(len(rows))), Updates(np.asarray(rows, dtype=np.float32)), {})
    return criterion(cohort, History())


def test_two_clients_have_each_other() -> None:
    alike, apart = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 0.0], [3.0, 4.0]])
    for rows, number in ((alike, 1), (apart, 0)):
        cohort = Cohort(1, (0, 1), Updates(rows.astype(np.float32)), {})
        assert copies(cohort).tolist() == [number, number]
        assert NormInlier()(cohort, History()).tolist() == [1 - number] * 2


def test_nearest_distance_by_hand() -> None:
    """Eight orthogonal updates and a copy with noise: all but one pair have distance 1, that one 1 - 1 / sqrt(1.09)."""
    rows = np.eye(9, 9)
    rows[8] = [1, 0, 0, 0, 0, 0, 0, 0, 0.3]
    near = (1 - 1 / np.sqrt(1.09)) / 0.2
    assert values(NearestDistance(), rows) == pytest.approx([near, *[1] * 7, near], abs=1e-6)
    assert values(NearestDistance(), np.ones((4, 3))).tolist() == [1] * 4, "similar updates are the normal case"
    assert values(NearestDistance(), np.zeros((4, 3))).tolist() == [1] * 4


@pytest.mark.parametrize("criterion", BY_UPDATES, ids=lambda one: one.name)
@given(number=st.integers(1, 12), seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.0, 1.0, 1e6, 1e17]))
def test_degrees_for_any_updates(criterion: Criterion, number: int, seed: int, size: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 6)) * np.where(random.random(number) < 0.3, size, 1.0)[:, np.newaxis]
    found = values(criterion, rows)
    assert found.shape == (number,)
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("criterion", BY_UPDATES, ids=lambda one: one.name)
@given(number=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_the_unit_of_updates_does_not_count(criterion: Criterion, number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = (random.normal(size=(number, 6)) * (random.random(number) < 0.8)[:, np.newaxis]).astype(np.float32)
    found = values(criterion, rows)
    for unit in (2.0**-20, 2.0**20):
        np.testing.assert_allclose(values(criterion, rows * np.float32(unit)), found, rtol=1e-9)


def one_round(recipe: Recipe, learner: SoftmaxLearner) -> tuple[Record, np.ndarray, np.ndarray, Task]:
    made, kept = small_task((20, 30, 25), (8,) * 3, learner), random_split((60,), 4)
    task = Task(replace(made.federation, server=Samples(kept.x, kept.y, 3)), made.learner)
    with LocalFleet(task, workers=1) as fleet:
        start = fleet.server.first_model(1)
        state, record = run_round(State(start), recipe, Host.of(fleet), InTime(Uniform(1.0)), seed=5, evaluate=False)
        return record, start, state.model, task


def test_alignment_is_the_clipped_cosine_to_what_the_server_learned() -> None:
    record, start, _, task = one_round(prioritized(Alignment()), SoftmaxLearner(lr=1.0, epochs=2))
    rows = task.federation.server
    own = task.learner.train(start, rows, derive(5, "server", 1)) - start
    updates = [
        task.learner.train(start, task.federation.samples(i), derive(5, "train", 1, i)) - start for i in range(3)
    ]
    cosines = [float(update @ own / np.linalg.norm(update) / np.linalg.norm(own)) for update in updates]
    np.testing.assert_allclose(record.facts["Alignment"], np.maximum(cosines, 0), atol=1e-5)


class Lazy(SoftmaxLearner):
    """Those with an even number of rows learn nothing."""

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        return model.copy() if len(samples) % 2 == 0 else super().train(model, samples, seed, epochs)


@pytest.mark.parametrize("rank", [None, "top", "borda"])
@pytest.mark.parametrize("rho", [0.5, 1.0, "1/K"])
def test_by_gain_a_zero_update_earns_nothing(rank: object, rho: object) -> None:
    recipe = fedval("accuracy", "balanced_accuracy", rank=rank, rho=rho, marginal=True)  # type: ignore[arg-type]
    record, start, model, _ = one_round(recipe, Lazy(lr=1.0, epochs=2))
    assert record.weights.raw[:2].tolist() == [[0, 0], [0, 0]]  # 20 and 30 rows: both add nothing
    assert record.weights.weights[:2].tolist() == [0, 0]
    before = record.facts["validated:accuracy:without"]
    assert len(set(before.tolist())) == 1
    gain = np.maximum(record.facts["validated:accuracy"] - before, 0)
    assert record.weights.raw[:, 0].tolist() == gain.tolist()
    if not gain.any():
        assert model.tobytes() == start.tobytes()  # nobody adds anything: the model is kept


def by_value(models: Iterable[np.ndarray]) -> Predictions:
    """Models that say 1 of every row where their first value is 1 or more, else 0; three of four rows are 1."""
    said = np.array([[int(model[0] >= 1)] * 4 for model in models])
    return Predictions(np.array([0, 1, 1, 1]), 2, {"sex": np.array([0, 0, 1, 1])}, said)


def measured(recipe: Recipe, predict: Predict) -> tuple[Cohort, tuple[Note, ...]]:
    """Two updates, of which half of the first is enough to say 1, and what the server measures of them."""
    cohort = Cohort(1, (0, 1), Updates(np.array([[2.0], [0.5]], np.float32)), {"samples": np.ones(2)})
    host = Host(None, ("a", "b"), predict=predict)  # type: ignore[arg-type]
    view = View(1, np.zeros(1, np.float32), History(), host, Draws(0, 1))
    cohort, ran = run_stages(recipe.measuring, cohort, view)
    return cohort, ran.notes


@pytest.mark.parametrize(("rho", "found"), [(1.0, [0.75, 0.25]), (0.5, [0.75, 0.25]), (0.25, [0.25, 0.25])])
def test_what_the_server_measures_by_hand(rho: float, found: list[float]) -> None:
    """The model says 0 of all rows, and is right once; half of the first update is enough to say 1."""
    recipe = fedval("accuracy", rho=rho, marginal=True)
    cohort, notes = measured(recipe, by_value)
    assert cohort.facts["validated:accuracy"].tolist() == found
    assert cohort.facts["validated:accuracy:without"].tolist() == [0.25, 0.25]
    assert recipe.criteria[0](cohort, History()).tolist() == [max(value - 0.25, 0) for value in found]
    assert notes == ()
    both, _ = measured(fedval("accuracy", rho="1/K"), by_value)
    assert both.facts["validated:accuracy"].tolist() == [0.75, 0.25], "two came: one half"
    assert "validated:accuracy:without" not in both.facts
    some = (Validated(find_objective("accuracy"), marginal=True), Validated(find_objective("balanced_accuracy")))
    mixed, _ = measured(prioritized(*some, normalise="max"), by_value)
    assert set(mixed.facts) == {"samples", some[0].name, some[0].without, some[1].name}


@pytest.mark.parametrize(("least", "counted"), [(0.75, [1.0, 0.0]), (0.2, [1.0, 1.0]), (0.76, [0.0, 0.0])])
def test_models_below_the_least_accuracy_count_0_and_keep_what_was_measured(least: float, counted: list[float]) -> None:
    """Both models say the same of both groups, so their parity is 1; their accuracies are 0.75 and 0.25."""
    criterion = Validated(find_objective("parity:sex"), rho=1.0, min_accuracy=least)
    cohort, _ = measured(prioritized(criterion, normalise="max"), by_value)
    assert cohort.facts["validated:parity:sex"].tolist() == [1, 1]
    assert criterion(cohort, History()).tolist() == counted


def test_what_the_rows_cannot_tell_is_0_for_all_and_noted() -> None:
    """Of the first group no row is 1 and right or wrong about it: true positives of nobody."""

    def predict(models: Iterable[np.ndarray]) -> Predictions:
        return replace(by_value(models), y=np.array([0, 0, 1, 1]))

    cohort, (note,) = measured(fedval("opportunity:sex", rho=1.0), predict)
    assert cohort.facts["validated:opportunity:sex"].tolist() == [0, 0]
    assert (note.kind, note.subject) == ("undefined-objective", "validated:opportunity:sex")


NO_HOST = Host(None, ())  # type: ignore[arg-type]  # a reputation asks nobody


def with_reputations(recipe: Recipe, balances: dict[int, float], history: History) -> Cohort:
    """The cohort of a round in which these clients claimed these balances, with what the stages measure."""
    number, index = len(balances), history.rounds + 1
    facts = {"samples": np.ones(number), "balance": np.array([*balances.values()])}
    cohort = Cohort(index, tuple(balances), Updates(np.zeros((number, 2), np.float32)), facts)
    view = View(index, np.zeros(2, np.float32), history, NO_HOST, Draws(0, index))
    return run_stages(recipe.measuring, cohort, view)[0]


def reputations(recipe: Recipe, rounds: list[dict[int, float]]) -> tuple[list[dict[int, float]], History]:
    """The reputation of balance after each round in which these clients claimed these balances."""
    history, found = History(), []
    for balances in rounds:
        cohort = with_reputations(recipe, balances, history)
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


ROBUST = robust()
HONEST = (1 + np.random.default_rng(2).normal(scale=0.6, size=(10, 20))).astype(np.float32)
ATTACKS = {
    "sign-flip": lambda rows: -rows,
    "noise": lambda rows: 100 * np.random.default_rng(3).normal(size=rows.shape),
    "copies against the mean": lambda rows: np.tile(-0.5 * HONEST.mean(axis=0), (len(rows), 1)),
    "zeros": np.zeros_like,
}


def robust_round(
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
    model, record = robust_round(updates)
    assert record.weights.weights[-number:].sum() < 0.02
    mean = HONEST[:-number].mean(axis=0)
    assert float(model @ mean) / np.linalg.norm(model) / np.linalg.norm(mean) > 0.95
    assert np.linalg.norm(model) < 2 * np.linalg.norm(mean)


@given(st.integers(2, 14), st.integers(0, 2**32 - 1))
def test_no_weight_is_above_two_equal_shares(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    _, record = robust_round(random.normal(size=(number, 6)) + random.random())
    assert record.weights.weights.max() <= 2 / number + 1e-9
    assert record.weights.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("claim", [30.0, 1e3, 1e6, 1e9])
def test_a_claim_of_size_earns_no_more_than_the_bound_of_claims(claim: float) -> None:
    """Three medians are what counts: 30 of 120 rows, of which the cap leaves two equal shares."""
    lied = robust_round(HONEST, [claim] + [10.0] * 9)[1].weights
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
    model, record = robust_round(HONEST, sizes)
    assert record.weights.weights.tolist() == pytest.approx((np.array(sizes) / sum(sizes)).tolist())
    mean, typical = np.array(sizes) @ HONEST / sum(sizes), np.median(np.abs(HONEST), axis=0)
    assert model == pytest.approx(np.clip(mean, -typical, typical), abs=1e-5)


def test_weight_that_the_cap_leaves_to_excluded_clients_moves_nothing() -> None:
    updates = HONEST.copy()
    updates[6:] = np.random.default_rng(4).normal(size=(1, 20))  # four copies
    model, record = robust_round(updates, recipe=replace(ROBUST, limits=(Cap(1.2),)))
    assert record.weights.weights.tolist() == pytest.approx([0.12] * 6 + [0.07] * 4)
    mean, typical = 0.12 * HONEST[:6].sum(axis=0), np.median(np.abs(HONEST[:6]), axis=0)
    assert model == pytest.approx(np.clip(mean, -typical, typical), abs=1e-5)


def test_by_name() -> None:
    for name, recipe in (("robust", ROBUST), ("robust_server", robust(server_rows=True))):
        assert make_recipe(make_config({"recipe": {"name": name}}).recipe) == recipe
        assert part_from_json(part_to_json(recipe)) == recipe
    criteria = ["DS", "SimilarityFilter", "Turned", "CB"]
    table = {"name": "robust", "criteria": criteria, "limits": [{"name": "cap", "times": 3.0}]}
    assert make_recipe(make_config({"recipe": table}).recipe) == replace(robust(CB), limits=(Cap(3.0),))
