"""A study that is stopped or killed is resumed, and ends like one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_study import BASE, small_plan
from study_task import SLOW

from fedmerit import Study, compare
from fedmerit.study.plan import dump_plan
from fedmerit.study.study_folder import members

HERE = Path(__file__).parent
ROWS = [
    {"name": "slow", "train": SLOW},
    {"name": "slow, LD", "recipe": {"name": "prioritized", "criteria": "LD"}},
]
ROUNDS = 12


BASE_SLOW = BASE | {"train": BASE["train"] | SLOW, "run": BASE["run"] | {"rounds": ROUNDS}}
PLAN = small_plan(base=BASE_SLOW, row=ROWS, seeds=[3])


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(dump_plan(PLAN))
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from fedmerit.cli import main; main()", "compare", *map(str, arguments)]
    inherited = os.environ.get("PYTHONPATH")  # the study under test is the one that this process imports
    paths = os.pathsep.join([str(HERE), str(HERE.parent), *([inherited] if inherited else [])])
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def played(folder: Path) -> dict[str, int]:
    return {str(member): member.rounds for member in members(PLAN, folder)}


def wait_for_rounds(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    while sum(played(folder).values()) < rounds:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_a_stopped_and_killed_study_ends_with_the_bits_of_one_that_was_not(toml: Path, tmp_path: Path):
    folder = tmp_path / "stopped"
    first = start(toml, "--out", folder, "--jobs", 2)
    wait_for_rounds(folder, 3, first)
    os.kill(first.pid, signal.SIGINT)  # the study alone: it tells its workers
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert f"2 of 2 runs unfinished; resume with: fedmerit compare {toml} --out {folder}" in errors
    assert "Traceback" not in errors
    stopped = played(folder)
    assert all(0 < rounds < ROUNDS for rounds in stopped.values()), stopped

    second = start(toml, "--out", folder, "--jobs", 1)
    wait_for_rounds(folder, sum(stopped.values()) + 1, second)
    os.kill(second.pid, signal.SIGKILL)  # its worker ends with it
    second.communicate()
    assert Study.load(folder).unfinished

    done = compare(PLAN, folder, jobs=2)
    whole = compare(PLAN, tmp_path / "whole")
    assert not done.unfinished
    for row in done.rows:
        assert done.run(row, 3).model.tobytes() == whole.run(row, 3).model.tobytes()
        assert done.run(row, 3).explain(ROUNDS) == whole.run(row, 3).explain(ROUNDS)


def test_a_second_ctrl_c_ends_at_once(toml: Path, tmp_path: Path):
    folder = tmp_path / "study"
    toml.write_text(toml.read_text().replace("0.02", "60.0"))
    process = start(toml, "--out", folder, "--jobs", 2)
    while len(list(folder.glob("runs/*/ledger.db"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "resume with: fedmerit compare" in errors
    assert "Traceback" not in errors
    assert set(Study.load(folder).unfinished.values()) == {0}
