"""Null rows and rows that vary the task: what they change and what they leave; devices at a target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmerit import compare, load_config, run_config
from fedmerit.core.measures import rounds_to_target
from fedmerit.store.run_folder import environment
from fedmerit.study.plan import make_plan

BASE = {"task": {"clients": 6}, "train": {"lr": 0.5}, "run": {"rounds": 3, "fraction": 0.5}}
ROWS = [
    {"name": "FedAvg"},
    {"name": "rounding", "null": "rounding"},
    {"name": "draw", "null": "draw"},
    {"name": "fewer", "task": {"clients": 3}},
]


def test_null_rows_change_rounding_or_draw_and_nothing_else(tmp_path: Path):
    study = compare(make_plan({"seeds": 1, "targets": [0.5], "base": BASE, "row": ROWS}), tmp_path / "a", jobs=1)
    assert not study.failed
    runs = {row: study.run(row, 1) for row in study.rows}
    chosen = {row: [one.id for one in run.explain(1)] for row, run in runs.items()}
    assert chosen["rounding"] == chosen["FedAvg"] != chosen["draw"]
    models = {row: run.model for row, run in runs.items()}
    assert models["rounding"].tobytes() != models["FedAvg"].tobytes()
    assert np.allclose(models["rounding"], models["FedAvg"], atol=1e-3)
    assert len(runs["fewer"].ledger.names()) == 3
    both = study.metrics.set_index("row")["both"]
    assert np.isnan(both["fewer"])  # its clients hold other rows
    assert both["rounding"] > 0


def test_a_null_row_draws_the_same_data_and_first_model(tmp_path: Path):
    config = ["task.clients=4", "run.rounds=1", "run.workers=1", "train.lr=1e-12"]
    plain, drawn = (
        run_config(load_config(None, [*config, f"run.null={null}"]), tmp_path / (null or "a"))
        for null in ("''", "draw")
    )
    assert np.allclose(plain.model, drawn.model, atol=1e-6)


def test_devices_at_a_target_count_where_a_study_says_so():
    rows = [{"name": "FedAvg"}]
    assert make_plan({"seeds": 1, "row": rows}).or_equal is False
    assert make_plan({"seeds": 1, "row": rows, "or_equal": True}).or_equal is True
    assert rounds_to_target([1], np.array([[0.7]]), 0.7, 1.0, or_equal=True) == 1
    assert rounds_to_target([1], np.array([[0.7]]), 0.7, 1.0) is None


def test_ledgers_name_the_processor_and_its_instructions():
    assert {"cpu", "instructions"} <= set(environment())


@pytest.mark.parametrize("null", ["rounding", "draw"])
def test_null_rows_resume_like_others(null: str):
    assert load_config(None, [f"run.null={null}"]).run.null == null
