"""Rows with a grid: every point on the tuning seeds, the best by one measure, resuming, growing, tables, mistakes."""

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import CommandLine
from small_study import BASE, small_plan
from study_task import FAILS

from fedmerit import Study, UserError, compare, load_config
from fedmerit.config.schema import validate
from fedmerit.errors import FolderError
from fedmerit.store.frames import make_frame
from fedmerit.study.plan import Plan, TuneConfig, dump_plan, load_plan
from fedmerit.study.tuning import Tuned
from fedmerit.study.workers import Ended, Step

LRS = [1e-9, 0.001, 0.1]
FEDAVG = {"name": "FedAvg", "recipe": {"name": "fedavg"}, "tune": {"train.lr": LRS}}
MOMENTUM = {
    "name": "FedAvgM",
    "recipe": {"name": "fedavg", "server": {"optimizer": "momentum"}},
    "tune": {"train": {"lr": [0.02, 0.1]}, "recipe": {"server": {"optimizer": {"momentum": [0.5, 0.9]}}}},
}
PLAIN = {"name": "LD", "recipe": {"name": "prioritized", "criteria": "LD"}}


def tuned_plan(**changes: Any) -> Plan:
    return small_plan(**({"row": [FEDAVG, MOMENTUM, PLAIN], "tune": {"seeds": [11, 12]}, "targets": [0.5]} | changes))


@pytest.fixture(scope="module")
def tuned_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return compare(tuned_plan(), tmp_path_factory.mktemp("studies") / "tuned", jobs=2)


def done(steps: list[Step]) -> set[str]:
    return {str(step.member) for step in steps if isinstance(step.answer, Ended)}


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


def test_every_point_ran_on_every_tuning_seed_and_the_best_is_a_configuration(tuned_study: Study):
    tuned = tuned_study.tunings["FedAvg"]
    assert len(list((tuned_study.folder / "tuning/fedavg/runs").iterdir())) == 3 * 2
    assert tuned.best == {"train.lr": 0.1}
    assert tuned.edges == {"train.lr": "largest"}
    config = load_config(tuned_study.folder / "tuning/fedavg/best.toml")
    assert config == tuned.config
    assert (config.train.lr, config.run.seed) == (0.1, 0)
    assert "# Tuned on seeds 11, 12; report results on other seeds." in (tuned.study.folder / "best.toml").read_text()
    points = tuned.points.set_index("point")
    assert points.loc["lr=0.1", "verdict"] == "chosen"
    assert list(points["seeds"]) == [2, 2, 2]
    alone = Study.load(tuned_study.folder / "tuning/fedavg")  # a tuning is a study of its points
    assert alone.rows == ["FedAvg: lr=1e-09", "FedAvg: lr=0.001", "FedAvg: lr=0.1"]
    assert points.loc["lr=0.1", "mean"] == pytest.approx(
        alone.metrics[alone.metrics["row"] == "FedAvg: lr=0.1"]["accuracy"].mean()
    )


def test_ties_go_to_the_higher_accuracy_then_to_the_earlier_point_and_unknown_is_last():
    plan = tuned_plan(row=[{"name": "a", "tune": {"train.lr": [0.1, 0.2, 0.3]}}], tune={"seeds": [11], "by": "best"})
    points = plan.tuning(plan.rows[0])
    names = [row.name for row in points.rows]

    def ranked(*values: tuple[float, float]) -> list[int]:
        lines = [
            {"row": name, "seed": 11, "finished": True, "best": best, "accuracy": accuracy}
            for name, (best, accuracy) in zip(names, values, strict=True)
        ]
        metrics = make_frame(lines, ("row", "seed", "finished", "best", "accuracy"))
        study: Any = SimpleNamespace(plan=points, rows=names, metrics=metrics, measure="accuracy")
        return Tuned(plan.rows[0], plan.tune, study).ranked

    assert ranked((0.5, 0.1), (0.5, 0.2), (0.4, 0.9)) == [1, 0, 2]
    assert ranked((0.5, 0.1), (0.5, 0.1), (0.6, 0.1)) == [2, 0, 1]
    assert ranked((math.nan, 0.9), (0.1, 0.1), (0.1, 0.1)) == [1, 2, 0]


def test_by_rounds_a_target_that_was_missed_is_said(tmp_path: Path):
    row = FEDAVG | {"tune": {"train.lr": [1e-9, 0.1]}}
    plan = tuned_plan(row=[row], seeds=[3], tune={"seeds": [11, 12], "target": 0.6})
    tuned = compare(plan, tmp_path / "s", jobs=1).tunings["FedAvg"]
    points = tuned.points.set_index("point")
    assert tuned.best == {"train.lr": 0.1}
    assert (points.loc["lr=1e-09", "mean"], points.loc["lr=1e-09", "censored"]) == (6.0, 2)
    assert points.loc["lr=0.1", "censored"] == 0
    assert ">6.00" in [row[1] for row in tuned.table().rows]


def test_a_tuned_study_is_resumed_and_grows(tuned_study: Study, tmp_path: Path):
    folder = tmp_path / "grown"
    shutil.copytree(tuned_study.folder, folder)
    steps: list[Step] = []
    compare(tuned_plan(seeds=[3, 4, 5]), folder, jobs=1, on_step=steps.append)
    assert done(steps) == {"FedAvg, seed 5", "FedAvgM, seed 5", "LD, seed 5"}
    wider = FEDAVG | {"tune": {"train.lr": [*LRS, 0.5]}}
    with pytest.raises(FolderError, match="row 'FedAvg' has runs with another tuning"):
        compare(tuned_plan(seeds=[3, 4, 5], row=[wider, MOMENTUM, PLAIN]), folder)


def test_a_grid_is_extended_before_the_runs_of_its_row_begin(tuned_study: Study, tmp_path: Path):
    folder = tmp_path / "grown"
    shutil.copytree(tuned_study.folder, folder)
    for run in (folder / "runs").glob("fedavg-seed*"):
        shutil.rmtree(run)
    steps: list[Step] = []
    wider = FEDAVG | {"tune": {"train.lr": [*LRS, 0.5]}}
    grown = compare(tuned_plan(row=[wider, MOMENTUM, PLAIN]), folder, jobs=1, on_step=steps.append)
    assert done(steps) == {
        f"FedAvg{of}, seed {seed}" for of, seed in [(": lr=0.5", 11), (": lr=0.5", 12), ("", 3), ("", 4)]
    }
    assert len(grown.tunings["FedAvg"].points) == 4


def test_a_study_that_was_killed_while_tuning_goes_on(tuned_study: Study, tmp_path: Path):
    def stop(step: Step) -> None:
        if step.member.row.startswith("FedAvgM: ") and isinstance(step.answer, Ended):
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        compare(tuned_plan(), tmp_path / "s", jobs=1, on_step=stop)
    begun = Study.load(tmp_path / "s")
    assert len(begun.unfinished) == 6
    assert begun.tunings["FedAvg"].best is None
    assert "not decided" in repr(begun.tunings["FedAvg"])
    again = compare(tuned_plan(), tmp_path / "s", jobs=2)
    best = "tuning/fedavgm/best.toml"
    assert (again.folder / best).read_text() == (tuned_study.folder / best).read_text()
    for run in tuned_study.runs:
        assert again.run(run.row, run.seed).model.tobytes() == tuned_study.run(run.row, run.seed).model.tobytes()


def test_a_row_that_cannot_be_tuned_leaves_the_others_alone(tmp_path: Path):
    fails = {"name": "fails", "tune": {"train.momentum": [0.0, FAILS["momentum"]]}}
    study = compare(small_plan(row=[PLAIN, fails], seeds=[3], tune={"seeds": [11]}), tmp_path / "s", jobs=1)
    assert study.failed == {"fails: momentum=0.5, seed 11": "RuntimeError: no [disk] left"}
    assert set(study.unfinished) == {"fails, seed 3"}
    assert not (tmp_path / "s/tuning/fails/best.toml").exists()
    assert "not decided: 1 runs are missing" in study.tunings["fails"].table().below


def test_a_point_that_the_data_cannot_serve_is_refused_before_anything_starts(tmp_path: Path):
    row = {"name": "LD", "recipe": {"name": "prioritized"}, "tune": {"recipe.criteria": ["LD", "attribute:region"]}}
    with pytest.raises(UserError, match=r"criteria=attribute:region.*region"):
        compare(tuned_plan(row=[row]), tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"seeds": [4, 11]}}, "tuning seeds and reporting seeds must differ"),
        ({"seeds": [3, 101], "tune": {}}, "got 101 in both; set other seeds in [tune]"),
        ({"row": [PLAIN]}, "[tune] has no effect: no [[row]] names a grid"),
        ({"row": [FEDAVG | {"tune": {}}]}, "row 'FedAvg': a grid must have at least two points"),
        ({"row": [FEDAVG | {"tune": {"train.lr": []}}]}, "the grid of train.lr must have at least one value"),
        ({"row": [FEDAVG | {"tune": {"train.lr": 0.1}}]}, "the grid of train.lr must be a list of values"),
        ({"row": [FEDAVG | {"tune": {"run.seed": [1, 2]}}]}, "row 'FedAvg': run.seed cannot be tuned"),
        ({"row": [FEDAVG | {"tune": {"train.lrr": [1, 2]}}]}, "row 'FedAvg': unknown key 'train.lrr'"),
        ({"row": [FEDAVG | {"tune": {"train.lr": [1, -1]}}]}, "row names, as parts of file names, must differ"),
        ({"row": [FEDAVG | {"train": {"lr": 0.3}}]}, "row 'FedAvg': train.lr is set and tuned; leave 0.3 to the grid"),
        ({"tune": {"grid": {}}}, "unknown key 'tune.grid'; valid here: by, seeds, share, target"),
        ({"tune": {"by": "rounds"}}, "needs a target"),
        ({"targets": [70.0]}, "targets of accuracy must be at most 1 (got 70)"),
        ({"tune": {"seeds": [11], "target": 1.5}}, "targets of accuracy must be at most 1 (got 1.5)"),
        ({"tune": {"seeds": [11], "by": "audit f1"}}, "needs that objective in run.audit; choose from audit accuracy"),
    ],
)
def test_a_mistake_in_a_study_is_named(changes: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        tuned_plan(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": []}, "at least one seed"),
        ({"seeds": 0}, "at least one seed"),
        ({"seeds": [7, 7]}, "tuning seeds must differ from each other; got more than once: 7"),
        ({"seeds": [-1]}, "greater than or equal to 0"),
        ({"seeds": 10**9}, "at most 10,000 seeds"),
        ({"by": "acuracy"}, "unknown measure to tune by 'acuracy' (did you mean 'accuracy'?)"),
        ({"by": "rounds"}, "needs a target, such as target = 0.75"),
        ({"by": "best", "target": 0.5}, "target and share have no effect in tuning by best"),
        ({"share": 0.5}, "target and share have no effect in tuning by the measure"),
        ({"target": -0.5}, "target"),
        ({"target": math.nan}, "target"),
        ({"target": 0.5, "share": 0.0}, "share"),
    ],
)
def test_a_mistake_in_tune_is_named(settings: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        validate(TuneConfig, settings)
    assert message in str(caught.value)


def test_the_measure_is_rounds_where_a_target_is_set():
    by_rounds = TuneConfig(target=0.75)
    assert (TuneConfig().measure, by_rounds.measure) == ("", "rounds")
    assert (TuneConfig().about("auc"), TuneConfig(by="best").about("auc")) == ("AUC", "best")
    assert by_rounds.about("accuracy") == "rounds until 50% of the devices are above 75%"
    assert by_rounds.about("mae") == "rounds until 50% of the devices are below MAE 0.75"


def test_tables_and_exports_say_how_each_row_was_tuned(cli: CommandLine, tuned_study: Study, tmp_path: Path):
    folder = tuned_study.folder
    for form in ("latex", "markdown", "csv"):
        assert cli("export", folder, "--format", form, "--table", "tuning", "--out", tmp_path / form).code == 0
    text = (tmp_path / "markdown").read_text()
    assert "FedAvg: tuned by accuracy on seeds 11, 12" in text
    assert "the best train.lr, 0.1, is the largest of its grid: extend it upwards" in text.replace("\\", "")
    assert (tmp_path / "csv").read_text().count("chosen") == 2
    (tmp_path / "study.toml").write_text(dump_plan(tuned_plan()))
    answer = cli("compare", tmp_path / "study.toml", "--out", folder, "--json").json
    assert (answer["seeds"], answer["tuning_seeds"]) == ([3, 4], [11, 12])
    assert answer["tuned"]["FedAvg"]["best"] == tuned_study.tunings["FedAvg"].best
    screen = cli("compare", tmp_path / "study.toml", "--out", folder).out
    assert "FedAvgM: tuned by accuracy on seeds 11, 12" in " ".join(screen.split())


def test_another_tuning_in_the_folder_is_refused(tuned_study: Study):
    other = BASE | {"run": BASE["run"] | {"rounds": 7}}
    with pytest.raises(FolderError, match="has another study"):
        compare(tuned_plan(base=other), tuned_study.folder)


DIGITS = "[task]\nclients = 4\n[train]\nepochs = 1\n[run]\nrounds = 2\nfraction = 1.0\nseed = 3\n"
GRID = ("--grid", "train.lr=1e-9,0.5")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "digits.toml"
    path.write_text(DIGITS)
    return path


def test_the_best_of_a_grid_is_run_and_written(
    cli: CommandLine, toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "tuned"
    monkeypatch.setenv("COLUMNS", "80")
    answer = cli("compare", toml, *GRID, "--set", "run.rounds=3", "--out", out, "--jobs", "2")
    assert (answer.code, answer.err) == (0, "")
    flat = " ".join(answer.out.split())
    assert "11 of 11 runs: digits, seed 3 done" in flat
    assert "digits: tuned by accuracy on seeds 101..105" in flat
    assert "the best train.lr, 0.5, is the largest of its grid: extend it upwards" in flat
    assert f"next: fedmerit run {out}/best.toml --out DIR" in answer.out
    best = load_config(out / "best.toml")
    assert (best.train.lr, best.run.rounds, best.run.seed) == (0.5, 3, 3)
    told = cli("compare", toml, *GRID, "--set", "run.rounds=3", "--out", out, "--json").json
    assert told["tuned"]["digits"]["best"] == {"train.lr": 0.5}
    assert [point["verdict"] for point in told["tuning"]] == ["chosen", "leans worse"]
    (tmp_path / "study.toml").write_text('seeds = 1\nbase = "tuned/best.toml"\n[[row]]\nname = "tuned"\n')
    plan = load_plan(tmp_path / "study.toml")
    assert plan.config(plan.rows[0], 1).train.lr == 0.5
