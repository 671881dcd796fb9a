"""Verify: every edit of a run's files is found, damaged ledgers are one clear line, foreign ledgers run nothing."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line, small_task, stopped
from safetensors.numpy import save_file
from test_damaged_folders import sql

from fedmerit import DS, LD, Poisson, PrivateSum, Run, federate, load_config, prioritized, private, resume, scale
from fedmerit.core.host import Release
from fedmerit.core.state import History, State
from fedmerit.errors import FolderError, UserError
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import read_checkpoint, write_checkpoint, write_model, write_sealed
from fedmerit.store.verify import SUMS, verify_run

TIMES = int(os.environ.get("FEDMERIT_FUZZ", "1"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run: its ledger also has releases."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    recipe = prioritized(DS, LD, normalise=scale({"DS": 20, "LD": 3}))
    recipe = private(recipe, PrivateSum(1.0, 0.8, delta=0.01, reproducible=True))
    federate(small_task(), recipe, rounds=3, selection=Poisson(0.8), out=folder)
    return folder


@pytest.fixture(scope="module")
def unfinished(finished: Path) -> Path:
    """As a killed run lies there: without a model or sums, with checkpoints, and with an attempt of round 4."""
    folder = finished.with_name("unfinished")
    shutil.copytree(finished, folder)
    for name in (SUMS, "model.safetensors"):
        (folder / name).unlink()
    with Ledger.open(folder / "ledger.db", write=True) as ledger:
        ledger.seal(3, {})  # its model is not there yet
        identity = ledger.identity()
        ledger.book(Release(4, 1.0, 0.8))
    for index in (2, 3):
        model = np.arange(12, dtype=np.float32) + index
        write_checkpoint(folder, State(model, History(index), {"server": {"move": model * 2}}), identity)
    return folder


def copied(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))


def flip(path: Path, random: np.random.Generator) -> None:
    """Change one bit somewhere."""
    data = bytearray(path.read_bytes())
    data[random.integers(len(data))] ^= 1 << int(random.integers(8))
    path.write_bytes(data)


def edit_row(path: Path, random: np.random.Generator) -> None:
    """Change a value, remove a row, or add one, as somebody with sqlite3 would."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
        table = str(random.choice([name for name in tables if counts[name]]))
        columns = [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})")]
        at = f"LIMIT 1 OFFSET {random.integers(counts[table])}"
        keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]] or ["rowid"]
        key = db.execute(f"SELECT {', '.join(keys)} FROM {table} {at}").fetchone()
        where = " AND ".join(f"{name} = ?" for name in keys)
        way = random.integers(3)
        if way == 0:
            db.execute(f"DELETE FROM {table} WHERE {where}", key)
        elif way == 1:
            db.execute("INSERT INTO events VALUES (?, 1, 'left-out', 'made up')", (int(random.integers(-1, 9)),))
        else:
            name, kind = columns[random.integers(len(columns))]
            value: Any = {"TEXT": "'x' || {}", "BLOB": "zeroblob(3)"}.get(kind, "coalesce({}, 0) + 1").format(name)
            db.execute(f"UPDATE OR REPLACE {table} SET {name} = {value} WHERE {where}", key)
    db.close()


def test_a_run_that_nobody_touched_is_intact(finished: Path, unfinished: Path, cli: CommandLine):
    for folder in (finished, unfinished):
        found = verify_run(folder)
        assert found.faults == {}
        assert found.rounds == 3
        assert len(found.head) == 64
    answer = cli("verify", finished, "--json")
    assert answer.code == 0
    head = verify_run(finished).head
    covered, not_covered = (
        ["ledger.db", "model.safetensors"],
        ["the rows that the run learned from (the task in Python)"],
    )
    state = {"intact": True, "faults": {}, "rounds": 3, "head": head}
    assert answer.json == state | {"covered": covered, "not_covered": not_covered}
    assert "is unchanged: 3 rounds" in cli("verify", finished).out


def test_every_one_of_200_edits_is_found(finished: Path, unfinished: Path, tmp_path: Path):
    random = np.random.default_rng(24)
    edits: list[tuple[Path, str, Callable[[Path, np.random.Generator], None]]] = [
        (unfinished, "ledger.db", edit_row),
        (unfinished, "checkpoints/00000003.safetensors", flip),
        (finished, "ledger.db", flip),
        (finished, "model.safetensors", flip),
    ]
    for trial in range(200 * TIMES):
        whole, name, edit = edits[trial % len(edits)]
        folder = copied(whole, tmp_path / "run")
        edit(folder / name, random)
        assert name in verify_run(folder).faults, (trial, name)


def test_faults_are_told_and_end_with_1(finished: Path, tmp_path: Path, cli: CommandLine):
    folder = copied(finished, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    (folder / "more.txt").write_text("x")
    answer = cli("verify", folder)
    assert answer.code == 1
    assert answer.out.splitlines() == ["model.safetensors: it is missing", "more.txt: no sum was written of it"]
    assert not cli("verify", folder, "--json").json["intact"]


def test_a_checkpoint_of_another_round_or_run_is_not_taken(unfinished: Path, tmp_path: Path):
    folder = copied(unfinished, tmp_path / "run") / "checkpoints"
    identity = Ledger.open(folder.parent / "ledger.db").identity()
    (folder / "00000002.safetensors").replace(folder / "00000003.safetensors")
    assert read_checkpoint(folder.parent, 3, identity) is None
    assert read_checkpoint(unfinished, 3, "another run") is None
    taken = read_checkpoint(unfinished, 3, identity)
    assert taken[2] == 3


HOSTILE = {
    "an endless view": "DROP TABLE rounds; CREATE VIEW rounds AS WITH RECURSIVE n(round) AS "
    "(SELECT 1 UNION ALL SELECT round + 1 FROM n) SELECT round FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM rounds; END",
    "an index": "CREATE INDEX i ON rounds(accuracy)",
    "a table": "CREATE TABLE more (x)",
    "a column": "ALTER TABLE rounds ADD COLUMN x AS (zeroblob(1000000000))",
    "no chain": "DROP TABLE chain",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_foreign_ledger_runs_nothing(finished: Path, tmp_path: Path, name: str, cli: CommandLine):
    folder = copied(finished, tmp_path / "run")
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        db.executescript(HOSTILE[name])
    assert "is not a ledger" in one_line(cli("report", folder, "--text"))


def test_a_ledger_of_an_older_version_is_refused_and_a_fault(finished: Path, tmp_path: Path, cli: CommandLine):
    folder = copied(finished, tmp_path / "run")
    (folder / SUMS).unlink()
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        db.execute("PRAGMA user_version = 11")
    assert "has ledger version 11" in one_line(cli("report", folder, "--text"))
    answer = cli("verify", folder)
    assert answer.code == 1
    assert "ledger.db: " in answer.out
    assert "has ledger version 11" in answer.out


def no_metadata(path: Path, model: np.ndarray) -> None:
    save_file({"model": model}, path)


def without_a_seal(path: Path, model: np.ndarray) -> None:
    write_model(path, model, int(path.stem))


def of_an_older_format(path: Path, model: np.ndarray) -> None:
    write_sealed(path, {"model": model}, {"round": int(path.stem), "run": ""})


@pytest.mark.parametrize("write", [no_metadata, without_a_seal, of_an_older_format])
def test_a_checkpoint_that_we_did_not_seal_is_refused(
    write: Callable[[Path, np.ndarray], None], tmp_path: Path, cli: CommandLine
):
    """Also where a sealed one lies next to it: a run that goes on from NaN, or from anything, looks like any other."""

    config = load_config(None, ["task.clients=4", "run.rounds=3", "task.model=digits-linear"])
    folder = stopped(config, tmp_path / "run")
    newest = folder / "checkpoints" / "00000002.safetensors"
    found = read_checkpoint(folder, 2, Ledger.open(folder / "ledger.db").identity())
    write(newest, np.full_like(found[0], np.nan))
    answer = cli("verify", folder)
    assert answer.code == 1
    assert answer.out == "checkpoints/00000002.safetensors: it is not sealed, or of an older format\n"
    message = one_line(cli("run", "--resume", folder))
    assert f"cannot resume from {newest}: it is not sealed, or of an older format; start a new run" in message
    with pytest.raises(FolderError, match="it is not sealed"):
        resume(folder)


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        (["DELETE FROM releases WHERE number = 1"], "release 1 is not what was written"),
        (["DELETE FROM releases WHERE number = 2"], "release 2 is not what was written"),
        (["DELETE FROM releases WHERE number = 4"], "4 releases were booked, 3 are there"),
        (["UPDATE releases SET multiplier = 9.0 WHERE number = 3"], "release 3 is not what was written"),
        (["UPDATE releases SET round = 2 WHERE number = 4"], "release 4 is not what was written"),
        (["DELETE FROM releases", "DELETE FROM sqlite_sequence"], "round 1 has no release"),
        (["UPDATE rounds SET epsilon = 0.1 WHERE round = 2"], "round 2 has epsilon 0.1, and its releases cost "),
        (["UPDATE rounds SET epsilon = NULL WHERE round = 3"], "round 3 has epsilon None, and its releases cost "),
    ],
)
def test_epsilon_is_computed_again_from_the_releases(
    unfinished: Path, tmp_path: Path, statements: list[str], fault: str
):
    folder = copied(unfinished, tmp_path / "run")
    sql(*statements, chain=1)(folder, folder)
    assert verify_run(folder).faults["ledger.db"].startswith(fault)


def test_without_the_accounting_library_verify_says_what_it_skipped(
    finished: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    answer = cli("verify", finished)
    assert answer.code == 0
    assert "not covered: epsilon, which was not computed again: [privacy] needs dp-accounting" in answer.out
    assert verify_run(finished).faults == {}


def test_a_value_that_is_too_large_is_not_read(finished: Path, tmp_path: Path):
    folder = copied(finished, tmp_path / "run")
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("UPDATE clients SET name = zeroblob(80000000) WHERE client = 1")
    db.close()
    with pytest.raises(FolderError, match="is damaged"), Ledger.open(folder / "ledger.db") as ledger:
        ledger.names()
    assert "ledger.db" in verify_run(folder).faults


def test_runs_of_python_are_sealed_too(finished: Path):
    files = [path for path in finished.iterdir() if not path.name.startswith("ledger.db-")]  # of an open ledger
    assert (finished / SUMS).read_text().count("\n") == len(files) - 1
    assert Run.load(finished).accuracy > 0
    with pytest.raises(UserError, match="no run in"):
        verify_run(finished.parent)
