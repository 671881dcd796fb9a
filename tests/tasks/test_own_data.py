"""Arrays by client, data sets and folders of pictures become federations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import SoftmaxLearner

from fedmerit import Federation, Task, fedavg, federate
from fedmerit.errors import DataError, UserError


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
    "no pair": ({"clients": {"a": X}}, r"a client is \(inputs, labels\)"),
    "empty": ({"clients": {"a": (X[:0], Y[:0])}}, "at least one of each"),
    "short": ({"clients": {"a": (X, Y[:5])}}, "10 rows, 5 labels of a"),
    "from one": ({"clients": {"a": (X, Y + 1)}}, "labels are whole numbers 0..2 for 3 classes; the clients hold 1..3"),
    "floats": ({"clients": {"a": (X, Y * 1.0)}}, "hold float64"),
    "text": ({"clients": {"a": (X, Y.astype(str))}}, "such as"),
    "NaN": ({"clients": {"a": (X * np.nan, Y)}}, "row 0 of the rows of a holds NaN"),
    "shapes": ({"clients": {"a": (X, Y), "b": (X[:, :2], Y)}}, "rows of one shape"),
    "share": ({"clients": {"a": (X, Y)}, "test": 1.5}, "from 0 to below 1"),
    "strangers": ({"clients": {"a": (X, Y)}, "test": {"b": (X, Y)}}, "the same clients; a, b differ"),
    "pictures": ({"clients": {"a": (np.zeros((10, 3, 9, 9), np.uint8), Y)}}, "channels first"),
    "key": ({"clients": {"a": (X, Y)}, "shrads": 2}, "unknown key 'task.shrads'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arrays_are_refused_in_one_line(name: str) -> None:
    settings, message = WRONG[name]
    with pytest.raises(UserError, match=message) as caught:
        Federation.from_clients(**settings)
    assert "\n" not in str(caught.value)


def write_pictures(folder: Path, side: int = 6) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for client in ("ann", "bob"):
        for kind, shade in (("cat", 10), ("dog", 200)):
            (folder / client / kind).mkdir(parents=True)
            for number in range(5):
                picture = np.full((side, side, 3), shade + number, np.uint8)
                pillow.fromarray(picture).save(folder / client / kind / f"{number}.png")


def test_pictures_in_folders(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    data = Federation.from_image_folder(tmp_path)
    assert data.names == ("ann", "bob")
    assert data.train.x.shape == (16, 6, 6, 3)
    assert data.train.x.dtype == np.uint8
    assert ((data.train.x[:, 0, 0, 0] > 100) == data.train.y).all()
    assert Federation.from_image_folder(tmp_path, size=4).train.x.shape == (16, 4, 4, 3)
    with pytest.raises(DataError, match="CLIENT/CLASS"):
        Federation.from_image_folder(tmp_path / "ann")


def test_pictures_of_two_sizes_are_refused(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "ann" / "dog" / "9.png")
    with pytest.raises(DataError, match="give `size`"):
        Federation.from_image_folder(tmp_path)


def test_a_data_set_of_columns_and_one_of_pictures() -> None:
    datasets, pillow = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    columns = {"who": ["a"] * 6 + ["b"] * 6, "v": list(range(12)), "y": ["no", "yes"] * 6}
    data = Federation.from_dataset(datasets.Dataset.from_dict(columns), client="who", label="y", test=0.0)
    assert data.names == ("a", "b")
    assert data.train.x.shape == (12, 1)
    assert data.report
    pictures = [pillow.fromarray(np.full((5, 5, 3), number, np.uint8)) for number in range(12)]
    rows = datasets.Dataset.from_dict({"who": columns["who"], "y": columns["y"], "image": pictures})
    rows = rows.cast_column("image", datasets.Image())
    data = Federation.from_dataset(rows, client="who", label="y", test=0.5)
    assert data.train.x.shape == (6, 5, 5, 3)
    with pytest.raises(DataError, match="no column writer"):
        Federation.from_dataset(rows, client="writer", label="y")
    with pytest.raises(DataError, match=r"a datasets.Dataset"):
        Federation.from_dataset([], client="who", label="y")
