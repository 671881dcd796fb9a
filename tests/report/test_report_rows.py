"""Rows of a report: study folders, runs that differ in the seed alone, means and ranges over them, tunings."""

import sqlite3
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import collected, make_run

from fedmerit import run_config
from fedmerit.errors import FolderError
from fedmerit.report.folders import labels
from fedmerit.report.rows import band, distribution, median_round
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import read_tuned
from fedmerit.study.study_folder import make_folder, members, tuning_folder, write_plan

OTHER = {"train": {"lr": 0.25}}


PLAN = """
seeds = {seeds}
targets = [0.85, 0.6]
shares = [0.25, 0.5, 1.0]
base = {{ run = {{ rounds = 4 }}, recipe = {{ name = "prioritized", criteria = ["DS", "MW"] }} }}
[[row]]
name = "Plain > <all>"
[[row]]
name = "fast"
train = {{ lr = 0.25 }}
"""


def make_study(folder: Path, seeds: int = 3, planned: int = 3) -> Path:
    """Two rows, one of them under another learning rate."""
    for seed in range(1, seeds + 1):
        make_run(folder / "runs" / f"fast-seed{seed}", seed=seed, settings=OTHER | {"run": {"rounds": 4, "seed": seed}})
        make_run(folder / "runs" / f"plain-all-seed{seed}", seed=seed)
    (folder / "study.toml").write_text(PLAN.format(seeds=planned))
    return folder


def test_a_study_stands_for_its_runs_in_the_order_of_its_rows(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study", seeds=3, planned=5)
    (study / "runs" / ".fast-seed4-x").mkdir()  # a run folder that is being made
    page, details = collected(study)
    assert [(row["label"], row["seeds"]) for row in page["rows"]] == [("Plain > <all>", [1, 2, 3]), ("fast", [1, 2, 3])]
    assert len(page["runs"]) == len(details) == 6
    assert (page["waiting"], page["targets"], page["shares"]) == (4, [0.6, 0.85], [0.25, 0.5, 1.0])
    assert [[len(line) for line in row["reached"]] for row in page["rows"]] == [[3, 3], [3, 3]]
    assert [row["key"] for row in page["differs"]["config"]] == ["train.lr"]


def test_curves_of_a_row_are_mean_and_range_over_its_seeds(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    row = collected(study)[0]["rows"][0]
    accuracies = []
    for run in sorted((study / "runs").glob("plain-all-*")):
        with open_ledger(run) as ledger:
            accuracies.append([record["accuracy"] for record in ledger.rounds()])
    (lines,) = [measure["lines"] for measure in row["curve"]["measures"] if measure["name"] == "value"]
    for line, over in zip(lines, (fmean, min, max), strict=True):
        assert line == pytest.approx([over(values) for values in zip(*accuracies, strict=True)], rel=1e-5)


def test_rows_are_compared_at_the_last_round_that_every_seed_has_finished(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a-seed1", seed=1), make_run(tmp_path / "b-seed1", seed=1, rounds=2)]
    page, _ = collected(*runs, make_run(tmp_path / "a-seed2", seed=2, rounds=3))
    longer, shorter = page["rows"]
    assert (page["end"], longer["curve"]["round"], shorter["curve"]["round"]) == (2, [1, 2, 3], [1, 2])
    assert max(longer["best"]["round"]) <= 2
    assert all(cell[0] in (None, 1, 1.5, 2) for line in longer["reached"] for cell in line)
    assert (longer["final"], len(shorter["final"])) == ([], 50)
    assert longer["costs"]["played"] == pytest.approx([3.5, 3, 4], rel=1e-5)


def test_seeds_that_a_row_has_not_finished_are_not_compared(tmp_path: Path) -> None:
    done = [make_run(tmp_path / f"{row}-seed1", seed=1) for row in "ab"]
    begun = [
        make_run(tmp_path / f"a-seed{seed}", seed=seed, rounds=rounds) for seed, rounds in ((2, 4), (3, 1), (4, 0))
    ]
    page, _ = collected(*done, *begun)
    row = page["rows"][0]
    assert (page["end"], row["curve"]["round"]) == (None, [1, 2, 3, 4])
    assert (row["unfinished"], row["tested"]) == (2, 1)


def test_plain_folders_that_differ_in_the_seed_are_one_row(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"try_{name}", seed=seed) for name, seed in (("b", 5), ("a", 6))]
    other = make_run(tmp_path / "else", settings=OTHER)
    (row, single) = collected(*runs, other)[0]["rows"]
    assert (row["label"], row["seeds"], row["runs"]) == ("try", [5, 6], [0, 1])
    assert (single["label"], single["runs"]) == ("else", [2])
    workers = make_run(tmp_path / "try_c", settings={"run": {"rounds": 4, "seed": 7, "workers": 2}})
    assert collected(*runs, workers)[0]["rows"][0]["runs"] == [0, 1, 2]


def test_names_with_nothing_in_common(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("two", 2))]
    assert collected(*runs)[0]["rows"][0]["label"] == "one and 1 more"


def test_the_same_seed_is_never_counted_twice(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert [row["label"] for row in collected(run, run)[0]["rows"]] == ["run (1)", "run (2)"]


def test_rows_of_the_same_settings_and_other_names_stay_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{name}-seed{seed}", seed=seed) for name in "ab" for seed in (1, 2)]
    assert [(row["label"], row["runs"]) for row in collected(*runs)[0]["rows"]] == [("a", [0, 1]), ("b", [2, 3])]


def test_the_budget_goes_to_the_first_seeds_first(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    page, details = collected(study, budget=1)
    assert [*details] == [page["rows"][page["verdict"]["best"]]["runs"][0]]
    runs = [make_run(tmp_path / f"{name}-seed{seed}", seed=seed) for name in "ab" for seed in (1, 2)]
    assert [*collected(*runs)[1]] == [2, 0, 3, 1]


def test_versions_that_differ_inside_a_row_are_listed(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"a-seed{seed}", seed=seed) for seed in (1, 2)]
    with sqlite3.connect(runs[1] / "ledger.db") as ledger:
        ledger.execute("UPDATE meta SET value = '9.9' WHERE key = 'numpy'")
    ledger.close()
    page, _ = collected(*runs)
    assert page["differs"]["environment"] == ["numpy"]
    assert {key: value for key, _, value in page["rows"][0]["environment"]}["numpy"].endswith(", 9.9")


@pytest.mark.parametrize(("inside", "says"), [((), "no run in"), (("a", "b"), r"holds run folders; give these: .*/\*")])
def test_folder_that_is_neither_run_nor_study(tmp_path: Path, inside: tuple[str, ...], says: str) -> None:
    for name in inside:
        make_run(tmp_path / "runs" / name)
    with pytest.raises(FolderError, match=says):
        collected(tmp_path / "runs")


def test_study_without_a_run_and_with_a_folder_that_is_none(tmp_path: Path) -> None:
    study = make_study(tmp_path, seeds=0)
    with pytest.raises(FolderError, match="has no run yet"):
        collected(study)
    (tmp_path / "runs" / "fast-seed1").mkdir(parents=True)
    with pytest.raises(FolderError, match=r"no run in .*fast-seed1"):
        collected(study)


def test_studies_of_the_same_rows_are_told_apart(tmp_path: Path) -> None:
    page, _ = collected(make_study(tmp_path / "a", 1), make_study(tmp_path / "b", 1))
    assert [row["label"] for row in page["rows"]] == ["a/Plain > <all>", "a/fast", "b/Plain > <all>", "b/fast"]


def test_labels_tell_paths_apart() -> None:
    assert labels([("a", "run"), ("b", "run")]) == ["a/run", "b/run"]
    assert labels([("a", "run"), ("a", "run")]) == ["run (1)", "run (2)"]
    assert labels([("a", "x"), ("a", "y")]) == ["x", "y"]


@pytest.mark.parametrize(
    ("reached", "median"),
    [([7], [7, 1]), ([None], [None, 0]), ([3, 5, 9], [5, 3]), ([3, 6], [4.5, 2]), ([3, 5, None], [5, 2])],
)
def test_median_round_knows_what_never_came(reached: list[int | None], median: list[float | None]) -> None:
    assert median_round(reached) == median
    assert median_round([*reached, None, None, None, None])[0] is None


def test_band_is_unknown_where_a_seed_is() -> None:
    assert band([0.5]) == [0.5]
    assert band([0.5, 0.25]) == [0.375, 0.25, 0.5]
    assert band([0.5, None]) == [None] * 3
    assert band([None]) == [None]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_distribution(values: list[float]) -> None:
    steps = distribution(np.array([*values, np.nan]))
    assert steps == sorted(steps)
    assert set(steps) <= set(values)
    assert steps[0] <= sorted(values)[-(-len(values) // 10) - 1]
    assert fmean(steps) == pytest.approx(fmean(values), abs=1 / min(len(values), 50))
    assert distribution(np.array([np.nan, np.nan])) == []


TUNED_BASE = {"task": {"clients": 4}, "train": {"epochs": 1}, "run": {"rounds": 1, "fraction": 1.0, "workers": 1}}
TUNED_ROWS = [{"name": "FedAvg", "tune": {"train.lr": [1e-9, 0.5]}}, {"name": "as it is"}]


def make_tuned(folder: Path) -> Plan:
    """A study whose runs are played here, one after the other."""
    plan = make_plan({"seeds": [3], "base": TUNED_BASE, "row": TUNED_ROWS, "tune": {"seeds": [11]}})
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
