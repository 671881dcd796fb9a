"""Tuning in a report: the points of each row that has a grid, the seeds they ran on, the best, the edge."""

from __future__ import annotations

from pathlib import Path

from report_runs import collected

from fedmerit import run_config
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import read_tuned
from fedmerit.study.study_folder import make_folder, members, tuning_folder, write_plan

BASE = {"task": {"clients": 4}, "train": {"epochs": 1}, "run": {"rounds": 1, "fraction": 1.0, "workers": 1}}
ROWS = [{"name": "FedAvg", "tune": {"train.lr": [1e-9, 0.5]}}, {"name": "as it is"}]


def make_tuned(folder: Path) -> Plan:
    """A study whose runs are played here, one after the other."""
    plan = make_plan({"seeds": [3], "base": BASE, "row": ROWS, "tune": {"seeds": [11]}})
    place, points = tuning_folder(folder, plan.rows[0]), plan.tuning(plan.rows[0])
    make_folder(place)
    write_plan(points, place)
    for run in members(points, place):
        run_config(run.config, run.folder).ledger.close()
    write_plan(plan, folder)
    return plan


def test_a_study_tells_how_each_row_was_tuned(tmp_path: Path) -> None:
    plan = make_tuned(tmp_path / "study")
    read_tuned(plan, plan.rows[0], tmp_path / "study").write_best()
    for run in members(plan, tmp_path / "study"):
        run_config(run.config, run.folder).ledger.close()
    page, _ = collected(tmp_path / "study")
    (told,) = page["tuned"]
    assert told["title"] == "FedAvg: tuned by accuracy on seeds 11"
    assert "the best train.lr, 0.5, is the largest of its grid: extend it upwards" in told["below"]
    assert [(row[0], row[-1]) for row in told["rows"]] == [("lr=0.5", "chosen"), ("lr=1e-09", "too few seeds")]
    assert [row["seeds"] for row in page["rows"]] == [[3], [3]]
    alone, _ = collected(tuning_folder(tmp_path / "study", plan.rows[0]))
    assert [row["label"] for row in alone["rows"]] == ["FedAvg: lr=1e-09", "FedAvg: lr=0.5"]


def test_a_tuning_under_way_is_not_decided(tmp_path: Path) -> None:
    plan = make_tuned(tmp_path / "study")
    place, points = tuning_folder(tmp_path / "study", plan.rows[0]), plan.tuning(plan.rows[0])
    members(points, place)[0].folder.rename(tmp_path / "gone")
    table = read_tuned(plan, plan.rows[0], tmp_path / "study").table()
    assert "not decided: 1 runs are missing" in table.below
    assert "chosen" not in [row[-1] for row in table.rows]
