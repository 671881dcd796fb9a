"""Verify: every edit of a run's files is found, damaged ledgers are one clear line, strangers' ledgers run nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line, small_task

from fedmerit import DS, LD, Run, federate, prioritized
from fedmerit.core.state import State
from fedmerit.core.types import History
from fedmerit.errors import FolderError, UserError
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import read_checkpoint, write_checkpoint
from fedmerit.store.schema import SCHEMA_VERSION
from fedmerit.store.verify import SUMS, verify_run

TIMES = int(os.environ.get("FEDMERIT_FUZZ", "1"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    federate(small_task(), prioritized(DS, LD), rounds=3, out=folder, progress=False)
    return folder


@pytest.fixture(scope="module")
def unfinished(finished: Path) -> Path:
    """As a run lies there after a kill: without a model or sums, with checkpoints."""
    folder = finished.with_name("unfinished")
    shutil.copytree(finished, folder)
    for name in (SUMS, "model.safetensors"):
        (folder / name).unlink()
    with Ledger.open(folder / "ledger.db") as ledger:
        identity = ledger.identity()
    for index in (2, 3):
        model = np.arange(12, dtype=np.float32) + index
        write_checkpoint(folder, State(model, {"move": model * 2}, History(index)), identity)
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
    assert answer.json == {"intact": True, "faults": {}, "rounds": 3, "head": verify_run(finished).head}
    assert "is as it was written: 3 rounds" in cli("verify", finished).out


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
    assert taken is not None
    assert taken[2] == 3


def test_a_checkpoint_with_any_bit_changed_is_not_taken(unfinished: Path, tmp_path: Path):
    random, folder = np.random.default_rng(3), copied(unfinished, tmp_path / "run")
    path = folder / "checkpoints" / "00000003.safetensors"
    (folder / "checkpoints" / "00000002.safetensors").unlink()
    whole = path.read_bytes()
    with Ledger.open(folder / "ledger.db") as ledger:
        identity = ledger.identity()
    for _ in range(200 * TIMES):
        path.write_bytes(whole)
        flip(path, random)
        assert read_checkpoint(folder, 3, identity) is None
    path.write_bytes(whole)
    assert read_checkpoint(folder, 3, identity) is not None


def test_damaged_ledgers_are_one_clear_line(finished: Path, tmp_path: Path, cli: CommandLine):
    random = np.random.default_rng(7)
    for trial in range(100 * TIMES):
        folder = copied(finished, tmp_path / "run")
        for _ in range(random.integers(1, 30)):
            (edit_row if trial % 3 == 0 else flip)(folder / "ledger.db", random)
        command = [["show"], ["explain"], ["explain", "--client", "1"], ["fairness", "--json"], ["suspects"]][trial % 5]
        answer = cli(command[0], folder, *command[1:])
        assert answer.code in (0, 2), (trial, answer)
        if answer.code:
            one_line(answer)


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
@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION])
def test_a_strangers_ledger_runs_nothing(finished: Path, tmp_path: Path, name: str, version: int, cli: CommandLine):
    folder = copied(finished, tmp_path / "run")
    with sqlite3.connect(folder / "ledger.db") as db:
        if version != SCHEMA_VERSION and name != "no chain":
            db.execute("DROP TABLE chain")
        db.executescript(HOSTILE[name])
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    if version != SCHEMA_VERSION and name == "no chain":  # that is how the version before was
        assert cli("show", folder).code == 0
        return
    assert "is not a ledger" in one_line(cli("show", folder))


def test_a_value_that_is_too_large_is_not_read(finished: Path, tmp_path: Path):
    folder = copied(finished, tmp_path / "run")
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("UPDATE clients SET name = zeroblob(80000000) WHERE client = 1")
    db.close()
    with pytest.raises(FolderError, match="is damaged"), Ledger.open(folder / "ledger.db") as ledger:
        ledger.names()
    assert "ledger.db" in verify_run(folder).faults


def test_runs_of_python_are_sealed_too(finished: Path):
    assert (finished / SUMS).read_text().count("\n") == len(list(finished.iterdir())) - 1
    assert Run.load(finished).accuracy > 0
    with pytest.raises(UserError, match="no run in"):
        verify_run(finished.parent)
