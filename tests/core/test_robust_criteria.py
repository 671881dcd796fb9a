"""Robust criteria: by hand, in range for any updates, and the server's own update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from helpers import SoftmaxLearner, random_split, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Samples, Task, Validated, fedavg, fedval, m2f, prioritized
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.robust import (
    Agreement,
    Alignment,
    Conduct,
    Distinct,
    Nearness,
    NormShare,
    Typical,
    Usual,
    copies,
)
from fedmerit.core.criteria.table import CRITERIA, Criterion, find_criterion
from fedmerit.core.objectives import Predictions, find_objective
from fedmerit.core.round import play
from fedmerit.core.seeds import derive
from fedmerit.core.stages.validation import validate
from fedmerit.core.state import Record, State
from fedmerit.core.types import Cohort, History
from fedmerit.core.updates import Updates
from fedmerit.engine.preflight import check_server
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet

BY_UPDATES = (Agreement(), Distinct(), Nearness(), Typical(), NormShare(), Conduct())
NOT_COPIES = tuple(one for one in BY_UPDATES if one != Distinct())


def values(criterion: Criterion, rows: np.ndarray) -> np.ndarray:
    cohort = Cohort(1, tuple(range(len(rows))), Updates(np.asarray(rows, dtype=np.float32)), {})
    return criterion(cohort, History())


def test_nearness_by_hand() -> None:
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    # with share 0.4 each has 2 nearest others: mean squares 2.5, 1, 1, 2.5 and (97**2 + 98**2) / 2
    far = (97**2 + 98**2) / 2
    np.testing.assert_allclose(values(Nearness(), rows), [1, 1, 1, 1, 2.5 / far])


def test_typical_by_hand() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [1.0, 41.0], [1.0, 1.0]])
    # the median is (1, 1); distances sqrt 2, 0, sqrt 2, 40, 0
    np.testing.assert_allclose(values(Typical(), rows), [1, 1, 1, np.sqrt(2) / 40, 1])


def test_norm_share_by_hand() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 20.0], [0.0, 0.0], [0.5, 0.0]])
    np.testing.assert_allclose(values(NormShare(), rows), [1, 0.1, 0, 0.25])
    assert not values(NormShare(), np.zeros((3, 2))).any()


def test_agreement_by_hand() -> None:
    rows = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, 2.0], [0.0, 0.0], [-5.0, 0.0]])
    # cosines of the first to the others: 0.7, 0, 0, -1; of the second: 0.7, 0.7, 0, -0.7
    np.testing.assert_allclose(values(Agreement(), rows), [0, np.sqrt(0.5) / 2, 0, 0, 0], atol=1e-7)
    assert values(Agreement(), rows[:1]).tolist() == [1]


def test_distinct_by_hand() -> None:
    turned = [[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [0.0, -1.0]]
    np.testing.assert_allclose(values(Distinct(), np.array(turned)), 1)
    rows = np.array([*turned, [0.0, -7.0], [0.0, 0.0]])  # two of one direction, and one that brings nothing
    np.testing.assert_allclose(values(Distinct(), rows), [1, 1, 1, 0, 0, 0])
    assert values(Distinct(), rows[:1]).tolist() == [1]


def test_two_clients_have_each_other() -> None:
    alike, apart = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(values(Agreement(), alike), [1, 1])
    np.testing.assert_allclose(values(Agreement(), apart), [0.6, 0.6])
    assert values(Distinct(), apart).tolist() == [1, 1]
    for rows, number in ((alike, 1), (apart, 0)):
        cohort = Cohort(1, (0, 1), Updates(rows.astype(np.float32)), {})
        assert copies(cohort).tolist() == [number, number]
        assert Usual()(cohort, History()).tolist() == [1 - number] * 2


def test_conduct_is_the_product_of_what_most_do() -> None:
    rows = 1 + np.random.default_rng(1).normal(scale=0.5, size=(10, 30))
    agreement = values(Agreement(), rows)
    parts = np.minimum(agreement / np.median(agreement), 1) * values(NormShare(), rows) * values(Typical(), rows)
    np.testing.assert_allclose(values(Conduct(), rows), parts * values(Distinct(), rows) ** 3)
    rows[0], rows[1], rows[2] = -rows[0], 10 * rows[1], rows[3]
    assert values(Conduct(), rows)[:4].max() < 0.12 < values(Conduct(), rows)[4:].min()


@pytest.mark.parametrize("size", [0.5, 1.0, 100.0])
def test_copies_that_are_fewer_than_half_find_no_agreement(size: float) -> None:
    rows = 1 + np.random.default_rng(1).normal(scale=0.5, size=(10, 30))
    rows[6:] = -size * rows[:6].mean(axis=0)
    found = values(Agreement(), rows)
    assert found[:6].min() > 0
    assert not found[6:].any()


@pytest.mark.parametrize("criterion", BY_UPDATES, ids=lambda one: one.name)
@given(number=st.integers(1, 12), seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.0, 1.0, 1e6, 1e17]))
def test_degrees_for_any_updates(criterion: Criterion, number: int, seed: int, size: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 6)) * np.where(random.random(number) < 0.3, size, 1.0)[:, np.newaxis]
    found = values(criterion, rows)
    assert found.shape == (number,)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("criterion", NOT_COPIES, ids=lambda one: one.name)
@pytest.mark.parametrize("size", [10.0, 1e9])
def test_who_stands_apart_has_less(criterion: Criterion, size: float) -> None:
    rows = 1 + np.random.default_rng(1).normal(scale=0.2, size=(10, 30))
    rows[7:] *= -size
    found = values(criterion, rows)
    assert found[7:].max() < found[:7].min() / 2


@pytest.mark.parametrize("criterion", BY_UPDATES, ids=lambda one: one.name)
@given(number=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_the_unit_of_updates_does_not_count(criterion: Criterion, number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = (random.normal(size=(number, 6)) * (random.random(number) < 0.8)[:, np.newaxis]).astype(np.float32)
    found = values(criterion, rows)
    for unit in (2.0**-20, 2.0**20):
        np.testing.assert_allclose(values(criterion, rows * np.float32(unit)), found, rtol=1e-9)


def test_all_have_names_that_priorities_take() -> None:
    for criterion in (Alignment(), *BY_UPDATES):
        assert CRITERIA[criterion.name] == criterion == find_criterion(criterion.name)
    with pytest.raises(ConfigError, match=r"below 0\.5"):
        Nearness(0.5)


def task(*, rows: bool = True) -> Task:
    made = small_task((20, 30, 25), (8,) * 3, SoftmaxLearner(lr=1.0, epochs=2))
    kept = random_split((60,), 4)
    server = Samples(kept.x, kept.y, 3) if rows else None
    return Task(replace(made.federation, server=server), made.learner)


def one_round(made: Task, recipe: object) -> tuple[Record, np.ndarray, np.ndarray]:
    with LocalFleet(made, workers=1) as fleet:
        start = fleet.server.first_model(1)
        state, record = play(State(start), recipe, fleet, selection=Uniform(1.0), seed=5, evaluate=False)  # type: ignore[arg-type]
        return record, start, state.model


def test_alignment_is_the_clipped_cosine_to_what_the_server_learned() -> None:
    made = task()
    record, start, _ = one_round(made, prioritized(Alignment()))
    rows = made.federation.server
    assert rows is not None
    own = made.learner.train(start, rows, derive(5, "server", 1)) - start
    updates = [
        made.learner.train(start, made.federation.samples(i), derive(5, "train", 1, i)) - start for i in range(3)
    ]
    cosines = [float(update @ own / np.linalg.norm(update) / np.linalg.norm(own)) for update in updates]
    np.testing.assert_allclose(record.facts["alignment"], np.maximum(cosines, 0), atol=1e-5)


def test_alignment_without_rows_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"no rows to train on; set task.server = 1000"):
        check_server(task(rows=False).server(), prioritized(Alignment()), Uniform(1.0))
    with pytest.raises(ConfigError, match=r"no rows to train on; set task.server = 1000"):
        one_round(task(rows=False), prioritized(Alignment()))
    with pytest.raises(ConfigError, match="each client has a personal one"):
        m2f(Alignment())


class Lazy(SoftmaxLearner):
    """Those with an even number of rows learn nothing."""

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        return model.copy() if len(samples) % 2 == 0 else super().train(model, samples, seed, epochs)


@pytest.mark.parametrize("rank", [None, "top", "borda"])
@pytest.mark.parametrize("rho", [0.5, 1.0, "1/K"])
def test_by_gain_a_zero_update_earns_nothing(rank: object, rho: object) -> None:
    made = task()
    lazy = Task(made.federation, Lazy(lr=1.0, epochs=2))
    recipe = fedval("accuracy", "balanced_accuracy", rank=rank, rho=rho, marginal=True)  # type: ignore[arg-type]
    record, start, model = one_round(lazy, recipe)
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


@pytest.mark.parametrize(("rho", "found"), [(1.0, [0.75, 0.25]), (0.5, [0.75, 0.25]), (0.25, [0.25, 0.25])])
def test_what_the_server_measures_by_hand(rho: float, found: list[float]) -> None:
    """The model says 0 of all rows, and is right once; half of the first update is enough to say 1."""
    cohort = Cohort(1, (0, 1), Updates(np.array([[2.0], [0.5]], np.float32)), {"samples": np.ones(2)})
    recipe = fedval("accuracy", rho=rho, marginal=True)
    told, notes = validate(recipe, cohort, np.zeros(1, np.float32), by_value)
    assert told.facts["validated:accuracy"].tolist() == found
    assert told.facts["validated:accuracy:without"].tolist() == [0.25, 0.25]
    assert recipe.criteria[0](told, History()).tolist() == [max(value - 0.25, 0) for value in found]
    assert notes == ()
    both = validate(fedval("accuracy", rho="1/K"), cohort, np.zeros(1, np.float32), by_value)[0]
    assert both.facts["validated:accuracy"].tolist() == [0.75, 0.25], "two came: one half"
    assert "validated:accuracy:without" not in both.facts
    some = (Validated(find_objective("accuracy"), marginal=True), Validated(find_objective("balanced_accuracy")))
    mixed = validate(prioritized(*some, normalise="max"), cohort, np.zeros(1, np.float32), by_value)[0]
    assert set(mixed.facts) == {"samples", some[0].name, some[0].without, some[1].name}


def test_what_the_rows_cannot_tell_is_0_for_all_and_said() -> None:
    """Of the first group no row is 1 and right or wrong about it: true positives of nobody."""
    cohort = Cohort(1, (0, 1), Updates(np.array([[2.0], [0.5]], np.float32)), {"samples": np.ones(2)})

    def predict(models: Iterable[np.ndarray]) -> Predictions:
        return replace(by_value(models), y=np.array([0, 0, 1, 1]))

    told, (note,) = validate(fedval("opportunity:sex", rho=1.0), cohort, np.zeros(1, np.float32), predict)
    assert told.facts["validated:opportunity:sex"].tolist() == [0, 0]
    assert (note.kind, note.subject) == ("undefined-objective", "validated:opportunity:sex")
    with pytest.raises(ConfigError, match="no rows to score models on"):
        validate(fedval("accuracy"), cohort, np.zeros(1, np.float32), None)
    assert validate(fedavg(), cohort, np.zeros(1, np.float32), None) == (cohort, ())
