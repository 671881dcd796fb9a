"""Tasks whose clients are hospitals: heart disease as FLamby cuts it, and medpar."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from task_files import real_folder

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import find_task, load_task


def load(name: str, **settings: object) -> Federation:
    return find_task(name).load(TaskConfig(data=name, **settings), 0)  # type: ignore[arg-type]


def test_heart_disease_as_flamby_cuts_it() -> None:
    real_folder("heart-disease")
    data = load("heart-disease")
    assert data.names == ("cleveland", "hungarian", "switzerland", "va")
    assert (data.train.sizes + data.test.sizes).tolist() == [303, 261, 46, 130]
    assert data.train.sizes.tolist() == [199, 172, 30, 85]
    assert data.train.x.shape[1] == 13
    for client in range(4):
        own = data.samples(client).x
        assert np.abs(own.mean(axis=0)).max() < 1e-5
    assert np.array_equal(data.test.y, find_task("heart-disease").load(TaskConfig(data="heart-disease"), 9).test.y)
    assert load_task("heart-disease").learner.start(0).shape == (14,)


def test_heart_disease_dealt_out_otherwise() -> None:
    real_folder("heart-disease")
    assert len(load("heart-disease", partition="iid", clients=10).names) == 10
    assert load("heart-disease", test="matched").test.sizes.tolist() == [61, 52, 9, 26]


def test_medpar_has_54_hospitals() -> None:
    real_folder("medpar")
    data = load("medpar", validation=0.1)
    assert len(data.names) == 54
    assert data.names[0] == "provnum 30001"
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
