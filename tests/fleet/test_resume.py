"""Stop, kill and resume: the models of an interrupted run are those of an uninterrupted one, file by file."""

import hashlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from helpers import stopped

from fedmerit import Run, resume, run_config
from fedmerit.config.schema import Config, load_config, make_config
from fedmerit.errors import FolderError

HERE = Path(__file__).parent
CONFIG = """
[task]
data = "toy:TOY"
[recipe]
name = "prioritized"
criteria = ["LD", "DS"]
[run]
rounds = 25
fraction = 0.5
seed = 3
workers = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(CONFIG)
    return path


def settings(**run: object) -> Config:
    base = {"rounds": 6, "fraction": 0.5, "seed": 3, "workers": 1}
    return make_config({"task": {"data": "toy:TOY"}, "run": base | run})


def start(*arguments: object, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from fedmerit.cli import main; main()", "run", *map(str, arguments)]
    inherited = os.environ.get("PYTHONPATH")  # the run under test is the one that this process imports
    paths = os.pathsep.join([str(HERE), *([inherited] if inherited else [])])
    environment = os.environ | {"PYTHONPATH": paths} | dict(env or {})
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        **options,  # type: ignore[call-overload]
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    end(process)


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.safetensors"))}


def rounds_kept(folder: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=rw", uri=True)) as db:
            return int(db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    while rounds_kept(folder) < rounds and process.poll() is None:
        time.sleep(0.01)


def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path, config: Path) -> None:
    assert end(start(config, "--out", tmp_path / "whole"))[0] == 0
    dice = random.Random(1)
    folder, kills = tmp_path / "killed", 0
    process = start(config, "--out", folder)
    while kills < 10:
        wait_for(folder, rounds_kept(folder) + 1, process)
        time.sleep(dice.random() * 0.05)
        assert process.poll() is None, "the run ended before it could be killed ten times"
        kill(process)
        kills += 1
        process = start("--resume", folder)
    code, errors = end(process)
    assert code == 0, errors
    assert digest(folder) == digest(tmp_path / "whole")
    assert set(digest(folder)) == {"model.safetensors", "best.safetensors"}
    killed, unharmed = Run.load(folder), Run.load(tmp_path / "whole")
    assert [killed.explain(r) for r in range(1, 26)] == [unharmed.explain(r) for r in range(1, 26)]


def test_ctrl_c_ends_after_the_round_and_the_run_goes_on_later(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    process = start(config, "--out", folder)
    wait_for(folder, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    code, errors = end(process)
    assert code == 130
    assert f"--resume {folder}" in errors.replace("\n", " ")
    assert "Traceback" not in errors
    kept = rounds_kept(folder)
    assert 2 <= kept < 25
    assert end(start("--resume", folder))[0] == 0
    assert rounds_kept(folder) == 25


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    config.write_text(CONFIG.replace("toy:TOY", "toy:SLEEPY"))
    process = start(config, "--out", folder, env={"TOY_STARTED": str(tmp_path / "started")})
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    code, errors = end(process)
    assert code == 130, errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    run_config(settings(), tmp_path / "whole")
    folder = tmp_path / "run"
    stopped(settings(), folder, 4)
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    data = newest.read_bytes()
    if damage == "truncate":
        newest.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        newest.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    else:
        newest.unlink()
    seen: list[int] = []
    resume(folder, on_record=lambda record: seen.append(record.index))
    assert seen == [4, 5, 6]
    assert digest(folder) == digest(tmp_path / "whole")


def test_all_checkpoints_gone_means_from_the_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(settings(), folder, 3)
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(b"nonsense")
    seen: list[int] = []
    resume(folder, on_record=lambda record: seen.append(record.index))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_is_just_read(tmp_path: Path) -> None:
    done = run_config(settings(), tmp_path / "run")
    again = resume(tmp_path / "run", on_record=lambda record: pytest.fail("nothing was left to do"))
    assert again.model.tobytes() == done.model.tobytes()


def test_another_configuration_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    run_config(settings(), tmp_path / "run")
    with pytest.raises(FolderError, match=r"run\.seed 3 then, 4 now"):
        resume(tmp_path / "run", settings(seed=4))
    edited = (tmp_path / "run/config.toml").read_text().replace("fraction = 0.5", "fraction = 0.25")
    (tmp_path / "run/config.toml").write_text(edited)
    with pytest.raises(FolderError, match=r"run\.fraction 0\.5 then, 0\.25 now"):
        resume(tmp_path / "run")


def test_the_number_of_workers_may_change(tmp_path: Path) -> None:
    run_config(settings(), tmp_path / "whole")
    stopped(settings(), tmp_path / "run", 3)
    resume(tmp_path / "run", settings(workers=2))
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


@pytest.mark.parametrize("package", ["fedmerit", "numpy", "torch", "code"])
def test_another_version_is_refused_by_name(tmp_path: Path, package: str) -> None:
    run_config(settings(), tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run/ledger.db", isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = '0.0.1' WHERE key = ?", (package,))
    with pytest.raises(FolderError, match=rf"{package} 0\.0\.1 then"):
        resume(tmp_path / "run")


def test_a_run_that_another_process_holds_is_refused(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    config.write_text(CONFIG.replace("toy:TOY", "toy:SLEEPY"))
    process = start(config, "--out", folder, env={"TOY_STARTED": str(tmp_path / "started")})
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    code, errors = end(start("--resume", folder))
    kill(process)
    assert code == 2
    assert "another process runs" in errors


def test_a_full_disk_is_a_clear_error_and_the_run_can_be_resumed(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "run"
    limit = 200_000  # the ledger outgrows it after some rounds

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = start(config, "--out", folder, "--workers", "1", preexec_fn=small_files)
    code, errors = end(process)
    assert code == 1
    assert f"--resume {folder}" in errors.replace("\n", " ")
    assert "Traceback" not in errors
    assert 0 < rounds_kept(folder) < 25
    code, errors = end(start("--resume", folder))
    assert code == 0, errors
    whole = run_config(load_config(config), tmp_path / "whole")
    assert Run.load(folder).model.tobytes() == whole.model.tobytes()


def test_a_disk_too_full_to_begin_leaves_nothing_behind(tmp_path: Path, config: Path) -> None:
    def tiny_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    code, errors = end(start(config, "--out", tmp_path / "runs/first", preexec_fn=tiny_files))
    assert code == 1, errors
    assert "start again" in errors
    assert list((tmp_path / "runs").iterdir()) == []


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no run in"):
        resume(tmp_path / "nowhere")
