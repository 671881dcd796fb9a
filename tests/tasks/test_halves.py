"""The two halves of a task: the server's holds no row of a client, a client's none of another."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from fedmerit.config.schema import Config, make_config
from fedmerit.core.types import Samples
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.registry import make_client, make_federation, make_server


def config(**task: Any) -> Config:
    return make_config({"task": {"data": "digits", "clients": 5, **task}, "run": {"seed": 3}})


def same(one: Samples, two: Samples) -> bool:
    columns = [(one.x, two.x), (one.y, two.y), *((one.attributes[k], two.attributes[k]) for k in one.attributes)]
    return one.classes == two.classes and all(np.array_equal(*pair) for pair in columns)


def test_a_client_of_a_federation() -> None:
    federation = make_federation(config(validation=0.2).task, 3)
    client = federation.client(2)
    assert (client.id, client.name) == (2, "2")
    assert same(client.train, federation.samples(2))
    for split, samples in ((federation.test, client.test), (federation.validation, client.validation)):
        assert np.array_equal(samples.x, split.x[split.rows(2)])
        assert np.array_equal(samples.y, split.y[split.rows(2)])
        assert len(samples) > 0
    assert np.shares_memory(client.train.x, federation.train.x), "a view: many clients of one process share the rows"
    for wrong in (-1, 5):
        with pytest.raises(DataError, match=f"client must be in 0..4 .got {wrong}"):
            federation.client(wrong)


def test_the_servers_half_has_names_and_its_own_rows_alone() -> None:
    settings = config(server=30, kinds={"poor": 0.4})
    federation = make_federation(settings.task, 3)
    half = make_server(settings)
    assert {field.name for field in fields(half)} == {
        *("names", "learner", "rows", "limits", "faster", "notes"),
    }
    assert half.names == federation.names
    assert sum("poor" in name for name in half.names) == 2
    assert half.limits == {"samples": float(len(federation.train.y)), "labels": 10.0}
    assert same(half.rows, federation.server)
    assert half.rows.x.base is None, "a view would keep the clients' rows in memory"
    assert len(half.learner.start(0)) == 64 * 32 + 32 + 32 * 10 + 10
    assert make_server(config()).rows is None


def test_a_clients_half_keeps_its_rows_alone() -> None:
    settings = config(validation=0.2)
    half, whole = make_client(settings, 4), make_federation(settings.task, 3).client(4)
    assert (half.data.id, half.data.name) == (4, "4")
    for one, two in ((half.data.train, whole.train), (half.data.test, whole.test)):
        assert same(one, two)
        assert one.x.base is None
        assert one.y.base is None
    with pytest.raises(DataError, match=r"client must be in 0\.\.4 \(got 5"):
        make_client(settings, 5)


def test_an_empty_split_of_a_client_has_no_rows() -> None:
    split = Split(np.zeros((2, 1), np.float32), np.zeros(2, np.int64), np.array([0, 2, 2]))
    federation = Federation(("a", "b"), split, split, 2)
    assert len(federation.client(1).train) == 0
    assert len(federation.client(0).validation) == 0
