"""Matrix factorisation for recommenders: item factors travel, the user part stays at the client; numpy only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.core.targets import Number
from fedmerit.core.types import Matrix, Model, Samples, Vector

CODE = 8
"""A rated item in a row's history is item * CODE + rating; 0 is an empty place, so ratings are 1 to 7."""
Rows: TypeAlias = NDArray[np.int16]
Items: TypeAlias = NDArray[np.integer[Any]]


def with_history(items: NDArray[Any], rated: NDArray[Any], ratings: NDArray[Any], length: int) -> Rows:
    """Build a client's rows: the item to predict, then the client's last `length` training ratings as codes.

    >>> with_history(np.array([7]), rated=np.array([2, 4]), ratings=np.array([5, 3]), length=3).tolist()
    [[7, 21, 35, 0]]
    """
    history = (rated * CODE + ratings)[-length:]
    rows = np.zeros((len(items), 1 + length), np.int16)
    rows[:, 0], rows[:, 1 : 1 + len(history)] = items, history
    return rows


@dataclass(frozen=True, slots=True)
class FactorLearner:
    """Matrix factorisation whose user part stays at the client [FCF]; the model is a bias and factors q of each item.

        rating = centre + item bias + user bias + q . p

    The client solves its user part (user bias, p) by ridge regression on the received items and its training ratings,
    whenever it trains or predicts: it is neither sent nor stored. Then the client takes a gradient step on the items.
    In FCF the server steps along the sum of these gradients; here clients send trained items, as in FedAvg.

    items          number of items
    lr, epochs     gradient steps on the items: length and number, with the user part solved before each
    weight_decay   L2 penalty on the items
    unseen         weight of each item that the user did not rate, as if rated 0 [Hu 2008]: such models rank better,
                   and their numbers are not ratings. 0: only rated items count
    factors        number of factors
    ridge          L2 penalty on the user part

    A user rates an item at most once. Rows of several users may follow each other.

    >>> learner = FactorLearner(items=3, lr=0.5, epochs=20)
    >>> x = with_history(np.arange(2), rated=np.arange(2), ratings=np.array([5, 1]), length=2)
    >>> model = learner.train(learner.start(0), Samples(x, np.array([5.0, 1.0]), classes=1), seed=0)
    >>> learner.predict(model, x).round(1).tolist()
    [5.0, 1.0]
    """

    items: int
    lr: float = 0.1
    epochs: int = 5
    weight_decay: float = 0.0
    unseen: float = 0.0
    factors: int = 8
    ridge: float = 10.0
    centre: float = 3.5
    target: ClassVar[Number] = Number(tolerance=1.0)

    def start(self, seed: int) -> Model:
        """Biases of 0, small random factors."""
        table = generator(seed, "item factors").normal(0.0, 0.1, (self.items, 1 + self.factors))
        table[:, 0] = 0.0
        return table.astype(np.float32).ravel()

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        """Pass over the users in random order: solve the user part, then step along the gradient of the items."""
        table = self._table(model)
        users = list(_users(samples.x))
        random = generator(seed, "order of users")
        for _ in range(epochs or self.epochs):
            for place in random.permutation(len(users)):
                rows = users[place]
                bias, direction = self._user_part(table, samples.x[rows.start, 1:])
                items, ratings, weights = self._counted(samples.x[rows, 0], samples.y[rows])
                errors = weights * (ratings - self.centre - bias - table[items] @ direction)
                table[items] += self.lr * (np.outer(errors, direction) - self.weight_decay * table[items])
        return table.astype(np.float32).ravel()

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[np.float64]:
        """Predict ratings, not clipped to their range, so that scores of the best items differ."""
        table, ratings = self._table(model), np.empty(len(x))
        for rows in _users(x):
            bias, direction = self._user_part(table, x[rows.start, 1:])
            ratings[rows] = self.centre + bias + table[x[rows, 0]] @ direction
        return ratings

    def _table(self, model: Model) -> Matrix:
        """Bias and factors of each item."""
        return model.astype(np.float64).reshape(self.items, 1 + self.factors)

    def _user_part(self, table: Matrix, history: Rows) -> tuple[float, Vector]:
        """Solve for the user bias and p; return the bias and (1, p), the direction of an item's bias and factors.

        Minimise sum_i c_i (r_i - centre - bias_i - user bias - q_i . p)^2 + ridge |(user bias, p)|^2 with weights c_i.
        """
        items, ratings, weights = self._counted(*np.divmod(history[history > 0], CODE))
        design = table[items]
        rest = ratings - self.centre - design[:, 0]
        design[:, 0] = 1.0
        gram = (design.T * weights) @ design + self.ridge * np.eye(design.shape[1])
        part = np.asarray(np.linalg.solve(gram, design.T @ (weights * rest)), dtype=np.float64)
        bias, part[0] = float(part[0]), 1.0
        return bias, part

    def _counted(self, items: Items, ratings: Vector) -> tuple[Items, Vector, Vector]:
        """Items that count for a user, with ratings and weights: the rated ones and, with `unseen`, all others as 0."""
        if not self.unseen:
            return items, ratings, np.ones(len(items))
        all_ratings, weights = np.zeros(self.items), np.full(self.items, self.unseen)
        all_ratings[items], weights[items] = ratings, 1.0
        return np.arange(self.items), all_ratings, weights


def _users(x: NDArray[Any]) -> Iterator[slice]:
    """Rows of each user: consecutive rows with the same history."""
    edges = np.flatnonzero((x[1:, 1:] != x[:-1, 1:]).any(axis=1)) + 1
    bounds = [0, *edges.tolist(), len(x)] if len(x) else []
    yield from map(slice, bounds, bounds[1:])
