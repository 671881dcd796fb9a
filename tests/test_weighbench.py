"""WeighBench: every method on a small cell, and the rules that a submitted method must keep."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # benchmarks/ is not part of the package

from benchmarks.weighbench import cells, measure, tables  # noqa: E402
from benchmarks.weighbench.methods import all_methods  # noqa: E402


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cells, measure):
        monkeypatch.setattr(module, "ROUNDS", 2)


def test_a_cell_is_the_same_on_every_call_and_keeps_held_out_rows_apart() -> None:
    one, again, other = (cells.make_cell("digits", "poisoned", split) for split in (0, 0, 1))
    assert (one.task.federation.train.x == again.task.federation.train.x).all()
    assert len(one.task.federation.train.y) == len(other.task.federation.train.y)
    assert (one.rows != other.rows).any()
    seen = {row.tobytes() for row in one.task.federation.train.x} | {row.tobytes() for row in one.server.x}
    repeated = sum(row.tobytes() in seen for half in one.held for row in half.x)
    assert repeated <= 2  # digits itself has a few equal images
    assert one.bad.sum() == 2


def test_every_method_weighs_all_clients(short: None) -> None:
    cell = cells.make_cell("digits", "mixed", 0, clients=5)
    found = measure.measure_cell(cell, all_methods(), regret=False, liars=True)
    for name, one in found["methods"].items():
        assert one["weights"].sum() == pytest.approx(1, abs=1e-6), name
        assert (one["weights"] >= 0).all(), name
        assert np.isfinite(one["worth"]).all(), name
        assert one["lie"] >= 0, name
    values = found["truth"]["shapley_accuracy"]
    everybody = measure.train_weightings(cell.task, cell.shares[np.newaxis], 2, 1)
    nobody = cell.first_model(1)
    gain = cell.accuracy(everybody, cell.held[0]) - cell.accuracy(nobody, cell.held[0])
    assert values[0].sum() == pytest.approx(gain[0])


def test_tables_and_files_of_a_cell(short: None, tmp_path: Path) -> None:
    line = measure.measure(("digits", "poisoned", 4, 0), tmp_path, only="rows")
    assert "digits poisoned 4 clients, split 0" in line
    tables.write_csv(tmp_path, tmp_path / "csv")
    lines = (tmp_path / "csv" / "truth.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 4
    loaded = tables.load(tmp_path)
    assert loaded[0]["kind"] == "poisoned"
    assert tables.worth_table(loaded)[1]


def test_a_method_is_one_short_file() -> None:
    files = sorted((ROOT / "benchmarks" / "weighbench" / "methods").glob("[a-z]*.py"))
    long = {path.name for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 40}
    assert not long
