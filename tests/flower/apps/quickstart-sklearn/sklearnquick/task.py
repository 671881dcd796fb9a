"""Logistic regression on iris, with warm starts."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

UNIQUE_LABELS = [0, 1, 2]


def get_model_params(model: LogisticRegression) -> list[np.ndarray]:
    return [model.coef_, model.intercept_]


def set_model_params(model: LogisticRegression, params: list[np.ndarray]) -> None:
    model.coef_, model.intercept_ = params[0], params[1]


def create_model() -> LogisticRegression:
    model = LogisticRegression(max_iter=1, warm_start=True, solver="saga", random_state=0)
    model.classes_ = np.array(UNIQUE_LABELS)
    set_model_params(model, [np.zeros((3, 4)), np.zeros(3)])
    return model


def load_data(partition_id: int, num_partitions: int) -> tuple[np.ndarray, ...]:
    x, y = load_iris(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[partition_id::num_partitions]
    x, y, cut = x[rows], y[rows], int(0.8 * len(rows))
    return x[:cut], y[:cut], x[cut:], y[cut:]
