"""Robust criteria by hand, in range for any updates; what the server measures on its own rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from helpers import SoftmaxLearner, random_split, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Recipe, Samples, Task, Validated, federate, fedval, load_task, prioritized
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.criteria.robust import NearestDistance, NormInlier, RareCoordinateOverlap, copies
from fedmerit.core.host import Host, Predict
from fedmerit.core.models.grouping import OneGroup
from fedmerit.core.objectives import Predictions, find_objective
from fedmerit.core.recipes import m2f
from fedmerit.core.round import run_round, run_stages
from fedmerit.core.seeds import Draws, derive
from fedmerit.core.state import History, Record, State, View
from fedmerit.core.types import Cohort, Note
from fedmerit.core.updates import Updates
from fedmerit.fleet.local import LocalFleet

BY_UPDATES = (NormInlier(), NearestDistance(), RareCoordinateOverlap())


def values(criterion: Criterion, rows: np.ndarray) -> np.ndarray:
    cohort = Cohort(1, tuple(range(len(rows))), Updates(np.asarray(rows, dtype=np.float32)), {})
    return criterion(cohort, History())


def test_two_clients_have_each_other() -> None:
    alike, apart = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 0.0], [3.0, 4.0]])
    for rows, number in ((alike, 1), (apart, 0)):
        cohort = Cohort(1, (0, 1), Updates(rows.astype(np.float32)), {})
        assert copies(cohort).tolist() == [number, number]
        assert NormInlier()(cohort, History()).tolist() == [1 - number] * 2


def test_norm_inliers_at_their_bounds() -> None:
    """Norms of 0.125 and 8 medians are within the bounds 0.1 and 8; 0.0625 and 16 are not."""
    rows = np.diag([1.0, 1, 1, 1, 0.125, 0.0625, 8, 16])
    assert values(NormInlier(), rows).tolist() == [1, 1, 1, 1, 1, 0, 1, 0]


def test_nearest_distance_by_hand() -> None:
    """Eight orthogonal updates and a copy with noise: all but one pair have distance 1, that one 1 - 1 / sqrt(1.09)."""
    rows = np.eye(9, 9)
    rows[8] = [1, 0, 0, 0, 0, 0, 0, 0, 0.3]
    near = (1 - 1 / np.sqrt(1.09)) / 0.2
    assert values(NearestDistance(), rows) == pytest.approx([near, *[1] * 7, near], abs=1e-6)
    assert values(NearestDistance(0.01), rows).tolist() == [1] * 9, "the copy is farther away than 0.01 medians"
    assert values(NearestDistance(), np.ones((4, 3))).tolist() == [1] * 4, "similar updates are the normal case"
    assert values(NearestDistance(), np.zeros((4, 3))).tolist() == [1] * 4


def test_m2f_rewards_mimics_less_by_their_reputation() -> None:
    """Four of twenty clients send one honest client's update; their part of the rewards falls, the others' does not."""
    attack = {"kind": "mimic", "share": 0.2}
    task = load_task("digits", clients=20, validation=0.1, seed=3, train={"lr": 0.1, "epochs": 1}, attack=attack)
    mimics = set(task.attackers.members)
    shares = {}
    for name, criteria in {"published": (), "nearest": ("NearestDistance", "reputation:NearestDistance")}.items():
        recipe = m2f("Participation", "DataRatio", *criteria, grouping=OneGroup())
        run = federate(task, recipe, rounds=6, fraction=1.0, seed=3, evaluate_every=6)
        shares[name] = {one.client: one.entries for one in run.ledger.rewards(6)}
    total = {name: sum(entries.values()) for name, entries in shares.items()}
    mimicked = {name: sum(entries.get(one, 0) for one in mimics) / total[name] for name, entries in shares.items()}
    assert mimicked["published"] == pytest.approx(0.2, abs=0.05)
    assert mimicked["nearest"] < 0.001
    assert sum(one not in shares["nearest"] for one in range(20)) == 5, "of the honest clients only the copied one"


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
    assert rows is not None
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
    assert record.weights is not None
    assert record.weights.raw[:2].tolist() == [[0, 0], [0, 0]]  # 20 and 30 rows: both add nothing
    assert record.weights.weights[:2].tolist() == [0, 0]
    before = record.facts["validated:accuracy:without"]
    assert len(set(before.tolist())) == 1
    gain = np.maximum(record.facts["validated:accuracy"] - before, 0)
    assert record.weights.raw[:, 0].tolist() == gain.tolist()
    if not gain.any():
        assert model.tobytes() == start.tobytes()  # nobody adds anything: the model is kept


def test_a_gain_by_rounding_is_none() -> None:
    criterion = Validated(find_objective("loss"), marginal=True)
    scores = {criterion.name: np.array([0.5 + 3e-8, 0.5, 0.4, 0.6]), criterion.without: np.full(4, 0.5)}
    cohort = Cohort(1, (0, 1, 2, 3), Updates(np.zeros((4, 2), np.float32)), scores)
    assert criterion(cohort, History()).tolist() == [0, 0, 0, pytest.approx(0.1)]


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
