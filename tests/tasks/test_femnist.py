"""FEMNIST by writer: the npz file with LEAF's split, and every mistake in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_files import real_folder, save_writers, writer_arrays

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import find_task

WRITERS = {"f0424_27": 20, "f1255_13": 10, "f0007_01": 5}
"""Names out of order: clients keep the order of the file."""


def load(seed: int = 0, **settings: Any) -> Federation:
    return find_task("femnist").load(TaskConfig(**({"partition": "natural"} | settings)), seed)


def shades(federation: Federation, client: int, split: str = "train") -> list[int]:
    """The rows of a client, by the grey that numbers them."""
    part = getattr(federation, split)
    return part.x[part.rows(client), 0, 0, 0].tolist()


def test_writers_of_the_file(data: Path) -> None:
    save_writers(data, writer_arrays(WRITERS))
    federation = load()
    assert federation.names == tuple(WRITERS)
    assert federation.classes == 62
    assert federation.train.x.dtype == np.uint8
    assert federation.train.x.shape[1:] == (28, 28, 1)
    assert federation.train.sizes.tolist() == [18, 9, 4], "copies are dropped"
    assert shades(federation, 0) == list(range(18))
    assert shades(federation, 0, "test") == [18, 19], "the split of the file is kept"
    assert shades(federation, 1, "test") == [29]
    assert np.array_equal(federation.train.y, federation.train.x[:, 0, 0, 0] % 62)


def test_another_test_set_than_the_given(data: Path) -> None:
    save_writers(data, writer_arrays({"a": 200, "b": 50}))
    given_split, matched, made = load(), load(test="matched"), load(partition="iid")
    assert matched.test.sizes.tolist() == [20, 5]
    assert shades(matched, 0, "test") != shades(given_split, 0, "test")
    assert made.names == ("0", "1"), "as many clients as writers"
    assert made.test.sizes.tolist() == [13, 13], "LEAF's tenth of each client's 125 rows"


@pytest.mark.parametrize("name", ["images", "labels", "writer", "split", "duplicate", "writer_names"])
def test_file_lacks_an_array(data: Path, name: str) -> None:
    arrays = writer_arrays(WRITERS)
    del arrays[name]
    path = save_writers(data, arrays)
    with pytest.raises(DataError, match=f"missing: {name}") as caught:
        load()
    assert str(path) in str(caught.value)


def changed(name: str, change: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    arrays = writer_arrays(WRITERS)
    return arrays | {name: np.asarray(change(arrays[name]))}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("images", lambda a: a[:, :27], r"images must be bytes \(uint8\) of shape \(38, 28, 28\); got uint8 of"),
        ("images", lambda a: a[1:], r"of shape \(38, 28, 28\); got uint8 of \(37, 28, 28\)"),
        ("images", lambda a: a.astype(np.int16), r"images must be bytes \(uint8\).*got int16"),
        ("images", lambda a: a / 255.0, "images must be an array of whole numbers or text"),
        ("labels", lambda a: a[1:], r"images must be .*\(37, 28, 28\)"),
        ("labels", lambda a: a + np.uint8(40), r"labels must be 0 to 61; got 40 to \d+"),
        ("labels", lambda a: a.astype(np.int16) - 1, "labels must be 0 to 61; got -1"),
        ("labels", lambda a: a.astype(str), "labels must be whole numbers"),
        ("writer", lambda a: a[1:], r"writer must be whole numbers of shape \(38,\); got uint16 of \(37,\)"),
        ("writer", lambda a: a + np.uint16(1), "writer must be 0 to 2; got 1 to 3"),
        ("split", lambda a: a + np.uint8(1), "split must be 0 to 1; got 1 to 2"),
        ("split", lambda a: a[:, None], r"split must be whole numbers of shape \(38,\)"),
        ("duplicate", lambda a: a.astype(np.uint8), r"duplicate must be true or false of shape \(38,\); got uint8"),
        ("writer_names", lambda a: np.arange(3), "writer_names must be text"),
        ("writer_names", lambda a: ["a", "b", "a"], "2 clients are called 'a'"),
        ("duplicate", np.ones_like, "at least one row"),
        ("split", np.ones_like, "all 20 rows of f0424_27 are test rows"),
    ],
)
def test_arrays_do_not_fit(data: Path, name: str, change: Callable[[np.ndarray], Any], message: str) -> None:
    save_writers(data, changed(name, change))
    with pytest.raises(DataError, match=message):
        load()


def test_real_writers() -> None:
    real_folder("femnist")
    federation = load()
    assert len(federation.names) == 300
    assert federation.names[:2] == ("f0424_27", "f1255_13")
    assert (federation.train.sizes.sum(), federation.test.sizes.sum()) == (41_199, 4_759)
    assert federation.train.sizes.min() >= 1
    assert set(np.unique(federation.train.y)) == set(range(62))
    assert federation.train.x.mean() > 200, "white paper is 255, as in LEAF"
