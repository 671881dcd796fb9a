"""`compare`: rows are paired, a failed run leaves the others alone, a study grows, null rows, cores change nothing."""

import multiprocessing
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import BASE, ROWS, small_plan
from study_task import FAILS, SLOW

from fedmerit import Run, Study, UserError, compare, resume, run_config
from fedmerit.config.schema import Config
from fedmerit.core.seeds import derive
from fedmerit.core.state import Record
from fedmerit.errors import ConfigError, FolderError, RunStopped
from fedmerit.store.ledger import Ledger
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.workers import Ended, Played, Step, cores_per_run

FEDAVG = ROWS[0]


def ledger(study: Study, row: str, seed: int) -> Ledger:
    return study.run(row, seed).ledger


def drawn(ledger: Ledger) -> list[list[int]]:
    return [[client.id for client in ledger.weights(index)] for index in range(1, ledger.last_round() + 1)]


def samples(ledger: Ledger) -> dict[int, float]:
    return {client.id: client.facts["samples"] for index in range(1, 7) for client in ledger.weights(index)}


def test_the_data_of_a_seed_is_loaded_once_for_all_its_rows(tmp_path: Path):
    """Rows that train otherwise included, and the test rows that each final model is asked about."""
    base = BASE | {"task": BASE["task"] | {"attribute": str(tmp_path / "loaded")}}
    compare(small_plan(base=base, row=ROWS[:3]), tmp_path / "study", jobs=1)
    assert (tmp_path / "loaded").read_text().split() == ["3", "4"]


@pytest.mark.parametrize("seed", [3, 4])
def test_rows_of_a_seed_share_data_first_model_and_draws(study: Study, seed: int):
    base = ledger(study, "FedAvg", seed)
    for row in study.rows:
        other = ledger(study, row, seed)
        assert drawn(other) == drawn(base)
        facts = samples(other) if row in ("LD > DS", "m2f") else samples(base)
        assert facts == samples(base)
    still = [study.run(row, seed).model for row in study.rows if row.startswith("still")]
    assert len(still) == 2
    assert still[0].tobytes() == still[1].tobytes()  # nothing was learned: this is the first model


def test_seeds_differ_in_all_of_that(study: Study):
    three, four = ledger(study, "FedAvg", 3), ledger(study, "FedAvg", 4)
    assert drawn(three) != drawn(four)
    assert samples(three) != samples(four)
    still = [study.run("still MW", seed).model.tobytes() for seed in (3, 4)]
    assert still[0] != still[1]


def test_a_run_of_a_study_is_the_run_of_its_configuration(study: Study, tmp_path: Path):
    from fedmerit import run_config

    plan = small_plan()
    alone = run_config(plan.config(plan.rows[1], 4), tmp_path / "alone")
    assert alone.model.tobytes() == study.run("LD > DS", 4).model.tobytes()


def test_calling_again_reads_what_is_there(study: Study):
    before = {path: path.stat().st_mtime_ns for path in study.folder.glob("runs/*/model.safetensors")}
    again = compare(small_plan(), study.folder, on_step=lambda step: pytest.fail("nothing was left to do"))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert repr(again) == "<Study small: 5 rows x 2 seeds, all finished>"


def test_a_study_grows_by_seeds_rows_and_targets(study: Study, tmp_path: Path):
    folder = tmp_path / "grown"
    shutil.copytree(study.folder, folder)
    seen: list[Step] = []
    more = [*ROWS[:1], {"name": "new", "recipe": {"name": "fedavg"}, "train": {"epochs": 1}}, *ROWS[1:]]
    grown = compare(small_plan(seeds=[4, 3, 5], row=more, targets=[0.4]), folder, jobs=2, on_step=seen.append)
    done = {str(step.member) for step in seen if isinstance(step.answer, Ended)}
    assert done == {"new, seed 3", "new, seed 4", *(f"{row['name']}, seed 5" for row in more)}
    assert not grown.unfinished
    assert set(grown.reached["target"]) == {0.4}
    assert Study.load(folder).plan.seeds == (4, 3, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [3]}, "FedAvg, seed 4, and the new plan does not"),
        ({"row": ROWS[1:]}, "FedAvg, seed 3, and the new plan does not"),
        ({"base": BASE | {"train": {"lr": 0.25}}}, r"row 'FedAvg' differs in train.lr 0.5 then, 0.25 now"),
        ({"row": [FEDAVG | {"train": {"epochs": 4}}, *ROWS[1:]]}, r"train.epochs 5 then, 4 now"),
    ],
)
def test_another_study_in_the_folder_is_refused(study: Study, changes: dict[str, object], message: str):
    plan = (study.folder / "study.toml").read_text()
    with pytest.raises(FolderError, match=message):
        compare(small_plan(**changes), study.folder)
    assert (study.folder / "study.toml").read_text() == plan


def test_workers_may_differ(study: Study):
    base = BASE | {"run": BASE["run"] | {"workers": 2, "memory": 0.5}}
    assert compare(small_plan(base=base), study.folder).unfinished == {}


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FolderError, match="has no study"):
        compare(small_plan(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(FolderError, match="cannot make the folder"):
        compare(small_plan(row=[FEDAVG]), tmp_path / "mine.txt/study")


def test_a_row_that_the_data_cannot_serve_is_refused_before_anything_starts(tmp_path: Path):
    row = {"name": "by region", "recipe": {"name": "prioritized", "criteria": "attribute:region"}}
    with pytest.raises(UserError, match=r"row 'by region': .*region"):
        compare(small_plan(row=[FEDAVG, row]), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_failed_run_and_a_killed_one_leave_the_others_alone(tmp_path: Path):
    plan = small_plan(row=[FEDAVG, {"name": "fails", "train": FAILS}, {"name": "slow", "train": SLOW}])

    def kill_one(step: Step) -> None:
        if str(step.member) == "slow, seed 3" and step.answer == Played(2, ANY, ANY):
            for process in multiprocessing.active_children():
                process.kill()

    study = compare(plan, tmp_path / "study", jobs=1, on_step=kill_one)
    killed = study.failed["slow, seed 3"]
    assert "was killed by signal 9" in killed
    assert study.failed == dict.fromkeys(("fails, seed 3", "fails, seed 4"), "RuntimeError: no [disk] left") | {
        "slow, seed 3": killed
    }
    assert set(study.unfinished) == set(study.failed)
    assert 2 <= study.unfinished["slow, seed 3"] < 6
    accuracy = study.compared[study.compared["measure"] == "accuracy"]
    assert dict(zip(accuracy["row"], accuracy["seeds"], strict=True)) == {"FedAvg": 2, "fails": 0, "slow": 1}
    again = compare(plan, tmp_path / "study", jobs=2)
    assert set(again.failed) == {"fails, seed 3", "fails, seed 4"}
    for seed in (3, 4):  # slow differs from FedAvg in its pace alone
        assert again.run("slow", seed).model.tobytes() == again.run("FedAvg", seed).model.tobytes()


def test_the_last_run_shares_the_cores_and_comes_to_the_same_bits(study: Study, tmp_path: Path):
    alone = compare(small_plan(row=[FEDAVG], seeds=[3]), tmp_path / "alone", jobs=2)
    config = (alone.runs[0].folder / "config.toml").read_text()
    assert "workers = 2" in config
    assert alone.run("FedAvg", 3).model.tobytes() == study.run("FedAvg", 3).model.tobytes()


@given(st.integers(0, 60), st.integers(1, 16), st.one_of(st.none(), st.integers(1, 8)))
def test_runs_never_take_more_cores_than_there_are_or_the_user_allows(runs: int, jobs: int, most: int | None):
    cores = cores_per_run(runs, jobs, most)
    assert len(cores) == runs
    rest = runs % jobs
    assert set(cores[: runs - rest]) <= {1}
    assert all(1 <= number <= min(most or jobs, jobs) for number in cores)
    assert sum(cores[runs - rest :]) <= jobs


def test_jobs_are_at_least_one(tmp_path: Path):
    with pytest.raises(ConfigError, match="at least 1"):
        compare(small_plan(), tmp_path / "study", jobs=0)


def alter(folder: Path, key: str, value: str) -> None:
    with closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))


def test_runs_of_another_version_are_refused(study: Study, tmp_path: Path):
    folder = tmp_path / "old"
    shutil.copytree(study.folder, folder)
    alter(folder / "runs/m2f-seed4", "fedmerit", "0.0.1")
    with pytest.raises(FolderError, match=r"different versions .*m2f, seed 4: fedmerit 0\.0\.1"):
        Study.load(folder)
    with pytest.raises(FolderError, match=r"fedmerit 0\.0\.1 then"):
        compare(small_plan(), folder)


def test_a_run_on_other_data_is_not_a_run_of_the_study(study: Study, tmp_path: Path):
    folder = tmp_path / "mixed"
    shutil.copytree(study.folder, folder)
    other = Config.model_validate(small_plan().config(small_plan().rows[0], 3).model_dump())
    task = other.task.model_copy(update={"clients": 7})
    alter(folder / "runs/fedavg-seed3", "config", other.model_copy(update={"task": task}).model_dump_json())
    with pytest.raises(FolderError, match=r"differs from the run of its study: task\.clients 7 then, None now"):
        Study.load(folder)


def test_two_studies_in_one_folder_at_once_are_refused(study: Study, tmp_path: Path):
    from fedmerit.store.run_folder import held

    folder = tmp_path / "held"
    shutil.copytree(study.folder, folder)
    (folder / "runs/m2f-seed4/model.safetensors").unlink()
    with held(folder, "runs"), pytest.raises(FolderError, match="another process runs in"):
        compare(small_plan(), folder)
    assert Run.load(folder / "runs/m2f-seed3")


NULL_BASE = {"task": {"clients": 6}, "train": {"lr": 0.5}, "run": {"rounds": 3, "fraction": 0.5}}
NULL_ROWS = [
    {"name": "FedAvg"},
    {"name": "null", "null": True},
    {"name": "fewer", "task": {"clients": 3}},
]


def null_plan(rows: list[dict[str, Any]] = NULL_ROWS, **base: Any) -> Plan:
    return make_plan({"seeds": 1, "targets": [0.5], "base": NULL_BASE | base, "row": rows})


def chosen(run: Run) -> list[int]:
    return [one.id for one in run.explain(1)]


def test_null_rows_change_the_draw_and_nothing_else(tmp_path: Path):
    study = compare(null_plan(), tmp_path / "a", jobs=1)
    assert not study.failed
    runs = {row: study.run(row, 1) for row in study.rows}
    assert chosen(runs["null"]) != chosen(runs["FedAvg"])
    assert len(runs["fewer"].ledger.names()) == 3


def test_a_null_row_has_the_same_data_and_first_model(tmp_path: Path):
    still = {"train": {"lr": 1e-12}, "run": {"rounds": 1}}
    study = compare(null_plan(NULL_ROWS[:2], **still), tmp_path / "a", jobs=1)
    assert np.allclose(study.run("FedAvg", 1).model, study.run("null", 1).model, atol=1e-6)


def test_a_null_row_is_resumed_with_its_own_draw(tmp_path: Path):
    whole = compare(null_plan(NULL_ROWS[:2]), tmp_path / "whole", jobs=1).run("null", 1)
    config, draw = null_plan().config(null_plan().rows[1], 1), derive(1, "null")
    stop = partial(stop_after, 2)
    with pytest.raises(RunStopped):
        run_config(config, tmp_path / "part", stop, draw_seed=draw)
    resumed = resume(tmp_path / "part")
    assert resumed.model.tobytes() == whole.model.tobytes()


def stop_after(index: int, record: Record) -> None:
    if record.index == index:
        raise RunStopped("stopped")


def test_a_row_that_has_run_does_not_become_a_null_row(tmp_path: Path):
    compare(null_plan(NULL_ROWS[:1]), tmp_path / "a", jobs=1)
    with pytest.raises(FolderError, match="row 'FedAvg' differs in null False then, True now"):
        compare(null_plan([{"name": "FedAvg", "null": True}]), tmp_path / "a", jobs=1)
