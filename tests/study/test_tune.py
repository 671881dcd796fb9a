"""`tune` and rows with a grid: runs, resuming, growing, tables, and the seeds kept apart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import CommandLine, one_line
from small_study import BASE, small_plan
from study_task import FAILS

from fedmerit import Study, UserError, compare, load_config
from fedmerit.errors import ConfigError, FolderError
from fedmerit.study.plan import Plan, dump_plan, make_plan
from fedmerit.study.scheduler import Step
from fedmerit.study.tune import Tuned, tune
from fedmerit.study.tuning import Tuning
from fedmerit.study.tuning_tables import points_table
from fedmerit.study.worker import Ended, Played

LRS = [1e-9, 0.001, 0.1]
FEDAVG = {"name": "FedAvg", "recipe": {"name": "fedavg"}, "tune": {"train.lr": LRS}}
MOMENTUM = {
    "name": "FedAvgM",
    "recipe": {"name": "fedavg", "server": {"optimizer": "momentum"}},
    "tune": {"train": {"lr": [0.02, 0.1]}, "recipe": {"server": {"optimizer": {"momentum": [0.5, 0.9]}}}},
}
PLAIN = {"name": "LD", "recipe": {"name": "prioritized", "criteria": "LD"}}


def small(**settings: Any) -> Tuning:
    return Tuning(**({"base": BASE, "grid": {"train.lr": LRS}, "seeds": [11, 12]} | settings))


def tuned_plan(**changes: Any) -> Plan:
    return small_plan(**({"row": [FEDAVG, MOMENTUM, PLAIN], "tune": {"seeds": [11, 12]}, "targets": [0.5]} | changes))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return tune(small(), tmp_path_factory.mktemp("tunings") / "small", jobs=2)


@pytest.fixture(scope="module")
def tuned_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return compare(tuned_plan(), tmp_path_factory.mktemp("studies") / "tuned", jobs=2)


def done(steps: list[Step]) -> set[str]:
    return {str(step.member) for step in steps if isinstance(step.answer, Ended)}


def test_the_best_point_is_written_as_a_configuration(tuned: Tuned):
    assert tuned.best == {"train.lr": 0.1}
    assert tuned.edges == {"train.lr": "largest"}
    config = load_config(tuned.folder / "best.toml")
    assert config == tuned.config
    assert (config.train.lr, config.run.seed) == (0.1, 0)
    assert "# Tuned on seeds 11, 12: report on others." in (tuned.folder / "best.toml").read_text()
    assert Tuned.load(tuned.folder).points.equals(tuned.points)


def test_the_runs_are_those_of_the_halving(tuned: Tuned):
    assert sorted(path.name for path in (tuned.folder / "runs").iterdir()) == sorted(
        f"lr-{lr}-seed{seed}" for lr, seed in [("1e-09", 11), ("0.001", 11), ("0.1", 11), ("0.001", 12), ("0.1", 12)]
    )
    points = tuned.points.set_index("point")
    assert points.loc["lr=0.1", "verdict"] == "chosen"
    assert points.loc["lr=1e-09", "verdict"] == "dropped"
    assert list(points["seeds"]) == [2, 2, 1]
    assert points.loc["lr=0.1", "mean"] == pytest.approx(sum(tuned.outcomes[2, seed].accuracy for seed in (11, 12)) / 2)


def test_a_tuning_that_was_killed_ends_like_one_that_was_not(tuned: Tuned, tmp_path: Path):
    def stop(step: Step) -> None:
        if isinstance(step.answer, Played) and step.answer.round == 3 and "0.001" in step.member.row:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        tune(small(), tmp_path / "t", jobs=1, on_step=stop)
    assert not (tmp_path / "t/best.toml").exists()
    assert Tuned.load(tmp_path / "t").best is None
    assert "not decided" in repr(Tuned.load(tmp_path / "t"))
    again = tune(small(), tmp_path / "t", jobs=2)
    assert (again.outcomes, again.halving) == (tuned.outcomes, tuned.halving)
    assert (tmp_path / "t/best.toml").read_text() == (tuned.folder / "best.toml").read_text()
    for run in tuned.runs:
        theirs = tmp_path / "t/runs" / run.folder.name / "model.safetensors"
        assert theirs.read_bytes() == (run.folder / "model.safetensors").read_bytes()


def test_a_grid_is_extended_in_its_folder_and_its_runs_are_used_again(tuned: Tuned, tmp_path: Path):
    shutil.copytree(tuned.folder, tmp_path / "t")
    assert tune(small(), tmp_path / "t", on_step=lambda step: pytest.fail("nothing was left to do")).best == tuned.best
    steps: list[Step] = []
    wider = small(grid={"train.lr": [*LRS, 0.5]})
    grown = tune(wider, tmp_path / "t", jobs=1, on_step=steps.append)
    assert done(steps) <= {"lr=0.5, seed 11", "lr=0.5, seed 12"}
    assert len(grown.points) == 4
    assert len(Tuned.load(tmp_path / "t").tuning.points) == 4


def test_by_rounds_a_target_that_was_missed_is_said(tmp_path: Path):
    by_rounds = tune(small(target=0.6, grid={"train.lr": [1e-9, 0.1]}), tmp_path / "t", jobs=1)
    points = by_rounds.points.set_index("point")
    assert by_rounds.best == {"train.lr": 0.1}
    assert (points.loc["lr=1e-09", "mean"], points.loc["lr=1e-09", "censored"]) == (6.0, 2)
    assert points.loc["lr=0.1", "censored"] == 0
    assert ">6.00" in [row[2] for row in points_table(by_rounds).rows]


def test_a_failed_run_leaves_the_best_open_and_the_same_call_tries_again(tmp_path: Path):
    grid = {"train.momentum": [0.0, FAILS["momentum"]]}
    failed = tune(small(grid=grid), tmp_path / "t", jobs=1)
    assert failed.failed == {"momentum=0.5, seed 11": "RuntimeError: no [disk] left"}
    assert failed.best is None
    assert not (tmp_path / "t/best.toml").exists()
    assert "not decided: 1 runs of this heat are missing" in points_table(failed).below


def test_a_folder_of_something_else_is_refused(tuned: Tuned, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FolderError, match="holds no tuning"):
        tune(small(), tmp_path)
    other = small(base=BASE | {"run": BASE["run"] | {"rounds": 7}})
    with pytest.raises(FolderError, match=r"a tuning of another configuration: run\.rounds 6 then, 7 now"):
        tune(other, tuned.folder)
    with pytest.raises(FolderError, match="no tuning in"):
        Tuned.load(tmp_path)
    with pytest.raises(ConfigError, match="at least 1"):
        tune(small(), tmp_path / "t", jobs=0)


def test_the_seed_of_the_configuration_is_no_tuning_seed(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"run\.seed of the configuration, 0, is a tuning seed"):
        tune(small(seeds=[0, 1]), tmp_path / "t")


def test_a_point_that_the_data_cannot_serve_is_refused_before_anything_starts(tmp_path: Path):
    base = BASE | {"recipe": {"name": "prioritized", "criteria": "LD"}}
    grid = {"recipe.criteria": ["LD", "attribute:region"]}
    with pytest.raises(UserError, match=r"criteria=attribute:region.*region"):
        tune(small(base=base, grid=grid), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_study_tunes_its_rows_on_other_seeds_and_reports_their_best(tuned_study: Study):
    assert not tuned_study.unfinished
    assert set(tuned_study.tunings) == {"FedAvg", "FedAvgM"}
    for row, found in tuned_study.tunings.items():
        assert found.best is not None
        for seed in (3, 4):
            run = next(run for run in tuned_study.runs if (run.row, run.seed) == (row, seed))
            assert run.config.train.lr == found.best["train.lr"]
            assert run.config.run.seed == seed
    chosen = next(run.config for run in tuned_study.runs if run.row == "FedAvgM").recipe.values
    best = tuned_study.tunings["FedAvgM"].best["recipe.server.optimizer.momentum"]
    assert chosen["server"] == {"optimizer": {"name": "momentum", "momentum": best}}
    assert set(tuned_study.tuning["row"]) == {"FedAvg", "FedAvgM"}
    assert len(tuned_study.tuning) == 3 + 4
    assert set(tuned_study.metrics["seed"]) == {3, 4}


def test_a_tuned_study_is_resumed_and_grows(tuned_study: Study, tmp_path: Path):
    folder = tmp_path / "grown"
    shutil.copytree(tuned_study.folder, folder)
    steps: list[Step] = []
    compare(tuned_plan(seeds=[3, 4, 5]), folder, jobs=1, on_step=steps.append)
    assert done(steps) == {"FedAvg, seed 5", "FedAvgM, seed 5", "LD, seed 5"}
    wider = FEDAVG | {"tune": {"train.lr": [*LRS, 0.5]}}
    with pytest.raises(FolderError, match="runs of row 'FedAvg' have begun, and were tuned in another way"):
        compare(tuned_plan(seeds=[3, 4, 5], row=[wider, MOMENTUM, PLAIN]), folder)


def test_a_study_that_was_killed_while_tuning_goes_on(tuned_study: Study, tmp_path: Path):
    def stop(step: Step) -> None:
        if step.member.row.startswith("FedAvgM: ") and isinstance(step.answer, Ended):
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        compare(tuned_plan(), tmp_path / "s", jobs=1, on_step=stop)
    begun = Study.load(tmp_path / "s")
    assert len(begun.unfinished) == 6
    again = compare(tuned_plan(), tmp_path / "s", jobs=2)
    for run in tuned_study.runs:
        assert again.run(run.row, run.seed).model.tobytes() == tuned_study.run(run.row, run.seed).model.tobytes()


def test_a_row_that_cannot_be_tuned_leaves_the_others_alone(tmp_path: Path):
    fails = {"name": "fails", "tune": {"train.momentum": [0.0, FAILS["momentum"]]}}
    study = compare(small_plan(row=[PLAIN, fails], seeds=[3], tune={"seeds": [11]}), tmp_path / "s", jobs=1)
    assert study.failed == {"fails: momentum=0.5, seed 11": "RuntimeError: no [disk] left"}
    assert set(study.unfinished) == {"fails, seed 3"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"seeds": [4, 11]}}, "tuning seeds and reporting seeds must differ"),
        ({"seeds": [3, 101], "tune": {}}, "got 101 in both; set other seeds in [tune]"),
        ({"row": [PLAIN]}, "[tune] has no effect: no [[row]] names a grid"),
        ({"row": [FEDAVG | {"tune": {}}]}, "row 'FedAvg': a grid has at least two points"),
        ({"row": [FEDAVG | {"tune": {"train.lr": []}}]}, "row 'FedAvg': the grid of train.lr has at least one value"),
        ({"row": [FEDAVG | {"tune": {"run.seed": [1, 2]}}]}, "row 'FedAvg': run.seed cannot be tuned"),
        (
            {"row": [FEDAVG | {"tune": {"train.lrr": [1, 2]}}]},
            "row 'FedAvg': grid point lrr=1: unknown key 'train.lrr'",
        ),
        ({"row": [FEDAVG | {"train": {"lr": 0.3}}]}, "row 'FedAvg': train.lr is set and tuned; leave 0.3 to the grid"),
        ({"tune": {"grid": {}}}, "unknown key 'tune.grid'; valid here: by, first, seeds, share, target"),
        ({"tune": {"by": "rounds"}}, "needs a target accuracy"),
    ],
)
def test_a_mistake_in_a_study_is_named(changes: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        tuned_plan(**changes)
    assert message in str(caught.value)


def test_what_is_kept_in_the_folder_is_the_same_study():
    import tomllib

    assert make_plan(tomllib.loads(dump_plan(tuned_plan()))) == tuned_plan()


def test_tables_and_exports_say_how_each_row_was_tuned(cli: CommandLine, tuned_study: Study, tmp_path: Path):
    folder = tuned_study.folder
    for form in ("latex", "markdown", "csv"):
        assert cli("export", folder, "--format", form, "--table", "tuning", "--out", tmp_path / form).code == 0
    text = (tmp_path / "markdown").read_text()
    for part in ("on seeds 11, 12; the other tables report on seeds 3, 4", "| FedAvg | train.lr | 1e-09, 0.001, 0.1 |"):
        assert part in text
    assert "not tuned: LD" in text
    assert (tmp_path / "csv").read_text().count("chosen") == 2
    (tmp_path / "study.toml").write_text(dump_plan(tuned_plan()))
    answer = cli("compare", tmp_path / "study.toml", "--out", folder, "--json").json
    assert (answer["seeds"], answer["tuning_seeds"]) == ([3, 4], [11, 12])
    assert answer["tuned"]["FedAvg"]["best"] == tuned_study.tunings["FedAvg"].best
    screen = cli("compare", tmp_path / "study.toml", "--out", folder).out
    assert "small: tuning, by accuracy, on seeds 11, 12" in " ".join(screen.split())


def test_a_study_without_grids_has_no_table_of_tuning(cli: CommandLine, study: Study, tmp_path: Path):
    assert len(study.tuning) == 0
    refused = cli("export", study.folder, "--format", "latex", "--table", "tuning", "--out", tmp_path / "t")
    assert "nothing to write in tuning: no row names a grid" in one_line(refused)


def test_a_tuning_exports_its_points(cli: CommandLine, tuned: Tuned, tmp_path: Path):
    assert cli("export", tuned.folder, "--out", tmp_path / "points.csv").code == 0
    assert cli("export", tuned.folder, "--format", "latex", "--out", tmp_path / "points.tex").code == 0
    assert "lr=0.1 & 2 &" in (tmp_path / "points.tex").read_text()
    refused = cli("export", tuned.folder, "--table", "rounds", "--out", tmp_path / "x")
    assert "unknown table of a tuning 'rounds'" in one_line(refused)
    assert "holds a tuning" in one_line(cli("export", tuned.folder, "--card", tmp_path / "x"))
