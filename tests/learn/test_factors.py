"""Matrix factorisation with a local user part: the solution, the gradient, and what a client changes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from fedmerit import Samples
from fedmerit.learn.factors import CODE, FactorLearner, with_history

ITEMS = 12
RATED, RATINGS = np.array([3, 0, 7, 5]), np.array([5, 2, 4, 1])
BOTH = pytest.mark.parametrize("unseen", [0.0, 0.2])


def learner(unseen: float, **settings: float) -> FactorLearner:
    return replace(FactorLearner(ITEMS, factors=3, lr=0.1, epochs=1, ridge=2.0), unseen=unseen, **settings)


def loss(table: np.ndarray, bias: float, p: np.ndarray, unseen: float) -> float:
    """The squared errors of one user, written as in the docstring and summed item by item."""
    total = 0.0
    for item in range(ITEMS):
        rated = item in RATED
        rating = float(RATINGS[item == RATED][0]) if rated else 0.0
        error = rating - 3.5 - table[item, 0] - bias - sum(table[item, 1:] * p)
        total += (1.0 if rated else unseen) * error**2
    return total


def user_part(table: np.ndarray, unseen: float) -> np.ndarray:
    """The minimum over (user bias, p) by a general optimiser."""
    best = minimize(lambda part: loss(table, part[0], part[1:], unseen) + 2.0 * sum(part**2), np.zeros(4), tol=1e-12)
    return np.asarray(best.x)


@BOTH
def test_prediction_uses_the_ridge_solution_of_the_users_ratings(unseen: float):
    mine = learner(unseen)
    model = mine.start(3)
    table = model.reshape(ITEMS, 4).astype(float)
    part = user_part(table, unseen)
    rows = with_history(np.arange(ITEMS), RATED, RATINGS, 6)
    expected = 3.5 + table[:, 0] + part[0] + table[:, 1:] @ part[1:]
    assert mine.predict(model, rows) == pytest.approx(expected, abs=1e-4)


@BOTH
def test_a_training_step_follows_the_gradient_of_the_items(unseen: float):
    mine = learner(unseen, lr=0.01)
    model = mine.start(3)
    table = model.reshape(ITEMS, 4).astype(float)
    part = user_part(table, unseen)
    gradient = np.zeros_like(table)
    for place in np.ndindex(*table.shape):
        step = np.zeros_like(table)
        step[place] = 1e-5
        up, down = (loss(table + sign * step, part[0], part[1:], unseen) for sign in (1, -1))
        gradient[place] = (up - down) / 2e-5
    samples = Samples(with_history(RATED, RATED, RATINGS, 6), RATINGS.astype(float), classes=1)
    trained = mine.train(model.copy(), samples, seed=1).reshape(ITEMS, 4)
    assert trained - table == pytest.approx(-0.01 * gradient / 2, abs=1e-5)
    if not unseen:  # an update of rated items only
        assert np.flatnonzero((trained != model.reshape(ITEMS, 4)).any(axis=1)).tolist() == sorted(RATED)


@BOTH
def test_users_in_one_place_do_not_mix(unseen: float):
    mine = learner(unseen)
    model = mine.start(3)
    one, two = with_history(np.arange(5), RATED, RATINGS, 6), with_history(np.arange(4), RATED[:2], RATINGS[:2], 6)
    together = mine.predict(model, np.concatenate([one, two]))
    assert together.tolist() == [*mine.predict(model, one), *mine.predict(model, two)]
    assert len(mine.predict(model, one[:0])) == 0


def test_the_history_holds_the_latest_ratings():
    rows = with_history(np.array([9]), RATED, RATINGS, length=2)
    assert rows.tolist() == [[9, 7 * CODE + 4, 5 * CODE + 1]]
