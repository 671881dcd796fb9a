"""Null rows and rows that vary the task: what they change and what they leave; devices at a target."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit import Run, compare, resume, run_config
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.seeds import derive
from fedmerit.core.state import Record
from fedmerit.errors import FolderError, RunStopped
from fedmerit.store.run_folder import environment
from fedmerit.study.plan import Plan, make_plan

BASE = {"task": {"clients": 6}, "train": {"lr": 0.5}, "run": {"rounds": 3, "fraction": 0.5}}
ROWS = [
    {"name": "FedAvg"},
    {"name": "null", "null": True},
    {"name": "fewer", "task": {"clients": 3}},
]


def plan(rows: list[dict[str, Any]] = ROWS, **base: Any) -> Plan:
    return make_plan({"seeds": 1, "targets": [0.5], "base": BASE | base, "row": rows})


def chosen(run: Run) -> list[int]:
    return [one.id for one in run.explain(1)]


def test_null_rows_change_the_draw_and_nothing_else(tmp_path: Path):
    study = compare(plan(), tmp_path / "a", jobs=1)
    assert not study.failed
    runs = {row: study.run(row, 1) for row in study.rows}
    assert chosen(runs["null"]) != chosen(runs["FedAvg"])
    assert len(runs["fewer"].ledger.names()) == 3


def test_a_null_row_has_the_same_data_and_first_model(tmp_path: Path):
    still = {"train": {"lr": 1e-12}, "run": {"rounds": 1}}
    study = compare(plan(ROWS[:2], **still), tmp_path / "a", jobs=1)
    assert np.allclose(study.run("FedAvg", 1).model, study.run("null", 1).model, atol=1e-6)


def test_a_null_row_is_resumed_with_its_own_draw(tmp_path: Path):
    whole = compare(plan(ROWS[:2]), tmp_path / "whole", jobs=1).run("null", 1)
    config, draw = plan().config(plan().rows[1], 1), derive(1, "null")
    stop = partial(stop_after, 2)
    with pytest.raises(RunStopped):
        run_config(config, tmp_path / "part", stop, draw_seed=draw)
    resumed = resume(tmp_path / "part")
    assert resumed.model.tobytes() == whole.model.tobytes()


def stop_after(index: int, record: Record) -> None:
    if record.index == index:
        raise RunStopped("stopped")


def test_a_row_that_has_run_does_not_become_a_null_row(tmp_path: Path):
    compare(plan(ROWS[:1]), tmp_path / "a", jobs=1)
    with pytest.raises(FolderError, match="row 'FedAvg' differs in null False then, True now"):
        compare(plan([{"name": "FedAvg", "null": True}]), tmp_path / "a", jobs=1)


def test_devices_at_a_target_count_where_a_study_says_so():
    rows = [{"name": "FedAvg"}]
    assert make_plan({"seeds": 1, "row": rows}).or_equal is False
    assert make_plan({"seeds": 1, "row": rows, "or_equal": True}).or_equal is True
    assert rounds_to_target([1], np.array([[0.7]]), 0.7, 1.0, or_equal=True) == 1
    assert rounds_to_target([1], np.array([[0.7]]), 0.7, 1.0) is None


def test_ledgers_name_the_processor_and_its_instructions():
    assert {"cpu", "instructions"} <= set(environment())
