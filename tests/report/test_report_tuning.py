"""Tuning in a report: the grid of each row, the seeds it was chosen on, the best value, the edge."""

from __future__ import annotations

from pathlib import Path

from report_runs import collected

from fedmerit import run_config
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study_folder import make_folder, members, tuning_folder, tuning_member, write_plan, write_tuning
from fedmerit.study.tune import Tuned, write_best

BASE = {"task": {"clients": 4}, "train": {"epochs": 1}, "run": {"rounds": 1, "fraction": 1.0, "workers": 1}}
ROWS = [{"name": "FedAvg", "tune": {"train.lr": [1e-9, 0.5]}}, {"name": "as it is"}]


def make_tuned(folder: Path) -> Plan:
    """A study whose runs are played here, one after the other."""
    plan = make_plan({"seeds": [3], "base": BASE, "row": ROWS, "tune": {"seeds": [11]}})
    (row, _), tuning = plan.rows, plan.tuning(plan.rows[0])
    place = tuning_folder(folder, row)
    make_folder(place)
    write_tuning(tuning, place)
    for point in range(2):
        run = tuning_member(tuning, place, point, 11)
        run_config(run.config, run.folder).ledger.close()
    write_plan(plan, folder)
    return plan


def test_a_study_tells_how_each_row_was_tuned(tmp_path: Path) -> None:
    plan = make_tuned(tmp_path / "study")
    place = tuning_folder(tmp_path / "study", plan.rows[0])
    write_best(Tuned.load(place))
    for run in members(plan, tmp_path / "study"):
        run_config(run.config, run.folder).ledger.close()
    page, _ = collected(tmp_path / "study")
    (told,) = page["tuned"]
    assert (told["reported"], told["untuned"]) == ([3], ["as it is"])
    (row,) = told["rows"]
    assert (row["row"], row["seeds"], row["about"]) == ("FedAvg", [11], "accuracy")
    assert row["keys"] == [{"key": "train.lr", "grid": ["1e-09", "0.5"], "chosen": "0.5", "edge": "largest"}]
    assert row["edges"] == ["the best train.lr, 0.5, is the largest of its grid: extend it upwards"]
    assert [point["verdict"] for point in row["points"]] == ["chosen", "too few seeds"]
    assert [row["seeds"] for row in page["rows"]] == [[3], [3]]
    alone, _ = collected(place)
    assert [row["label"] for row in alone["rows"]] == ["FedAvg: lr=0.5", "FedAvg: lr=1e-09"]
    assert alone["tuned"][0]["rows"][0]["keys"] == row["keys"]


def test_a_tuning_under_way_is_not_decided(tmp_path: Path) -> None:
    plan = make_tuned(tmp_path / "study")
    place = tuning_folder(tmp_path / "study", plan.rows[0])
    tuning_member(plan.tuning(plan.rows[0]), place, 0, 11).folder.rename(tmp_path / "gone")
    page, _ = collected(place)
    (row,) = page["tuned"][0]["rows"]
    assert row["keys"][0]["chosen"] is None
    assert "not decided: 1 runs of this heat are missing" in row["notes"]
