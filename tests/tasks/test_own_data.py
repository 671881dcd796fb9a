"""Arrays by client become federations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import SoftmaxLearner

from fedmerit import Federation, Task, fedavg, federate
from fedmerit.errors import UserError


def arrays(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(rows, 4))
    return x, x[:, :3].argmax(axis=1)


def test_arrays_by_client() -> None:
    data = Federation.from_clients({"north": arrays(30, 1), "south": arrays(20, 2)}, test=0.2, server=5)
    assert data.names == ("north", "south")
    assert data.classes == 3
    assert data.train.x.dtype == np.float32
    assert len(data.train.y) + len(data.test.y) + 5 == 50
    assert federate(Task(data, SoftmaxLearner()), fedavg(), rounds=3).accuracy > 0.5


def test_test_rows_and_attributes_of_ones_own() -> None:
    tests = {"south": arrays(4, 3), "north": arrays(6, 4)}
    clients = {"north": (*arrays(30, 1), {"night": np.ones(30)}), "south": (*arrays(20, 2), {"night": np.zeros(20)})}
    data = Federation.from_clients(clients, test=tests)
    assert data.test.sizes.tolist() == [6, 4]
    assert data.train.sizes.tolist() == [30, 20]
    assert data.train.attributes["night"].sum() == 30


X, Y = arrays(10, 1)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"clients": {}}, "at least one client"),
    "no pair": ({"clients": {"a": X}}, r"the rows of a must be \(inputs, labels\)"),
    "empty": ({"clients": {"a": (X[:0], Y[:0])}}, "at least one"),
    "short": ({"clients": {"a": (X, Y[:5])}}, "10 rows, 5 labels in the rows of a"),
    "from one": (
        {"clients": {"a": (X, Y + 1)}},
        "labels must be integers 0..2 for 3 classes; the clients contain 1..3",
    ),
    "floats": ({"clients": {"a": (X, Y * 1.0)}}, "contain float64"),
    "text": ({"clients": {"a": (X, Y.astype(str))}}, "such as"),
    "NaN": ({"clients": {"a": (X * np.nan, Y)}}, "row 0 of the rows of a contains NaN"),
    "shapes": ({"clients": {"a": (X, Y), "b": (X[:, :2], Y)}}, "rows of one shape"),
    "share": ({"clients": {"a": (X, Y)}, "test": 1.5}, "0 to below 1"),
    "strangers": ({"clients": {"a": (X, Y)}, "test": {"b": (X, Y)}}, r"the same clients \(a, b differ"),
    "pictures": ({"clients": {"a": (np.zeros((10, 3, 9, 9), np.uint8), Y)}}, "channels first"),
    "key": ({"clients": {"a": (X, Y)}, "shrads": 2}, "unknown key 'task.shrads'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arrays_are_refused_in_one_line(name: str) -> None:
    settings, message = WRONG[name]
    with pytest.raises(UserError, match=message) as caught:
        Federation.from_clients(**settings)
    assert "\n" not in str(caught.value)
