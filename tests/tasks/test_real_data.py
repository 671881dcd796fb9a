"""The real data sets, where they are: counts as their descriptions state them; hospitals as FLamby cuts them."""

from pathlib import Path

import numpy as np
import pytest
from task_files import real_folder

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import find_task, load_task


def test_mnist_by_writer() -> None:
    real_folder("mnist")
    federation = find_task("mnist").load(TaskConfig(partition="natural", test="matched"), 0)
    assert (len(federation.names), federation.names[0]) == (539, "writer 0")
    sizes = federation.train.sizes
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (60000, 19, 131, 116)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(federation.train.y).tolist() == counts
    assert federation.train.attributes["hsf4"].sum() == 29050
    students = [federation.samples(client).attributes["hsf4"].mean() for client in range(539)]
    assert sum(students) == 250, "each writer is wholly in one of the two groups"
    assert federation.test.sizes.sum() == 10000


def test_mnist_two_groups() -> None:
    real_folder("mnist")
    federation = find_task("mnist-two-groups").load(TaskConfig(validation=0.1, size=(750, 1500)), 0)
    sizes = federation.train.sizes + federation.validation.sizes
    assert len(federation.names) == 40
    assert 750 <= sizes.min() < 1000
    assert 1300 < sizes.max() <= 1500
    for client in range(40):
        group = {1, 2, 3, 4, 5} if client < 20 else {0, 6, 7, 8, 9}
        assert set(federation.samples(client).y.tolist()) <= group
        assert set(federation.test.y[federation.test.rows(client)].tolist()) <= group
    assert federation.test.sizes.sum() == 10000
    assert find_task("mnist-two-groups").load(TaskConfig(), 0).train.sizes.tolist() == [1500] * 40


def test_fashion_mnist() -> None:
    real_folder("fashion-mnist")
    federation = find_task("fashion-mnist").load(TaskConfig(), 0)
    assert np.bincount(federation.train.y).tolist() == [6000] * 10
    assert np.bincount(federation.test.y).tolist() == [1000] * 10


def test_celeba() -> None:
    real_folder("celeba")
    federation = find_task("celeba").load(TaskConfig(partition="natural"), 0)
    assert len(federation.names) == 278
    sizes = federation.train.sizes + federation.test.sizes
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (6155, 5, 30, 22.5)
    assert (sizes >= 10).sum() == 253
    assert len(federation.train.attributes) == 40
    shares = {
        name: np.concatenate([federation.train.attributes[name], federation.test.attributes[name]]).mean()
        for name in ("Smiling", "Male", "Young", "Blurry")
    }
    assert {name: round(share, 3) for name, share in shares.items()} == {
        "Smiling": 0.461,
        "Male": 0.398,
        "Young": 0.822,
        "Blurry": 0.059,
    }
    assert 90 < federation.train.x.mean() < 150, "pictures, not noise or blanks"


def load(name: str, **settings: object) -> Federation:
    return find_task(name).load(TaskConfig(data=name, **settings), 0)  # type: ignore[arg-type]


def test_heart_disease_as_flamby_cuts_it() -> None:
    real_folder("heart-disease")
    data = load("heart-disease")
    assert data.names == ("cleveland", "hungarian", "switzerland", "va")
    assert (data.train.sizes + data.test.sizes).tolist() == [303, 261, 46, 130]
    assert (data.train.sizes.tolist(), data.train.x.shape[1]) == ([199, 172, 30, 85], 13)
    for client in range(4):
        own = data.samples(client).x
        assert np.abs(own.mean(axis=0)).max() < 1e-5
    assert np.array_equal(data.test.y, find_task("heart-disease").load(TaskConfig(data="heart-disease"), 9).test.y)
    assert load_task("heart-disease").learner.start(0).shape == (14,)


def test_medpar_has_54_hospitals() -> None:
    real_folder("medpar")
    data = load("medpar", validation=0.1)
    assert (len(data.names), data.names[0]) == (54, "provnum 30001")
    sizes = data.train.sizes + data.test.sizes + data.validation.sizes
    assert (sizes.sum(), sizes.min(), sizes.max(), np.median(sizes)) == (1495, 1, 92, 23.0)
    died = data.train.y.sum() + data.test.y.sum() + data.validation.y.sum()
    assert died == 513
    assert set(data.train.attributes) == {"white"}
    assert load_task("medpar", model="medpar-mlp").federation.train.x.shape[1] == 6


def write_heart(folder: Path, rows: int = 12) -> None:
    (folder / "heart-disease").mkdir()
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        lines = []
        for row in range(rows):
            sex, cp, restecg = row % 2, row % 4 + 1, row % 3
            numbers = [40 + row, sex, cp, 120 + row, 200 - row, row % 5 > 2, restecg, 150 + row, row % 3 > 1, row / 4]
            lines.append(",".join([*(f"{float(number):g}" for number in numbers), "?", "", "?", str(row % 3)]))
        lines.append("63,1,?,145,233,1,2,150,0,2.3,3,0,6,0")
        (folder / "heart-disease" / f"processed.{name}.data").write_text("\n".join(lines))


def test_rows_with_gaps_are_dropped_and_broken_files_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))
    write_heart(tmp_path)
    data = load("heart-disease")
    assert (data.train.sizes + data.test.sizes).tolist() == [12] * 4
    (tmp_path / "heart-disease" / "processed.va.data").write_text("1,2,3\n")
    with pytest.raises(DataError, match=r"processed\.va\.data must have 14 columns"):
        load("heart-disease")
    (tmp_path / "heart-disease" / "processed.va.data").write_text("old,2,3\n")
    with pytest.raises(DataError, match="not a readable file"):
        load("heart-disease")
