"""Ledgers of earlier versions: read through migrations in memory, never changed, never written to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from helpers import CommandLine

from fedmerit.errors import FolderError
from fedmerit.store.ledger import Ledger
from fedmerit.store.schema import MIGRATIONS, SCHEMA, SCHEMA_VERSION

WRITTEN = Path(__file__).parent / "ledger_version_5.sql"
"""What the program wrote when ledgers had version 5: four clients, two rounds, device_aware."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.executescript(WRITTEN.read_text(encoding="utf-8"))
    db.close()
    return tmp_path


def test_an_earlier_ledger_is_read_as_if_it_were_of_today(folder: Path):
    before = (folder / "ledger.db").read_bytes()
    with Ledger.open(folder / "ledger.db") as ledger:
        rows = ledger.rounds()
        assert [row["round"] for row in rows] == [1, 2]
        assert {row["normalise"] for row in rows} == {"max"}
        assert rows[0]["weighting"] in {"LD > DS", "DS > LD"}
        assert [one.weight for one in ledger.weights(2)] == pytest.approx(
            [0.20745, 0.22156, 0.27287, 0.29813], abs=1e-5
        )
        assert any(result.chosen for result in ledger.candidates(1))
        assert len(list(ledger.evaluations())) == 8
        assert ledger.history().participations == dict.fromkeys(range(4), 2)
    assert (folder / "ledger.db").read_bytes() == before


@pytest.mark.parametrize(
    "command", [["explain", "--round", "2"], ["explain", "--round", "2", "--client", "1"], ["show"]]
)
def test_commands_read_it_too(folder: Path, cli: CommandLine, command: list[str]):
    answer = cli(command[0], folder, *command[1:])
    assert answer.code == 0, answer.err
    assert "LD" in answer.out


def test_it_is_not_written_to(folder: Path):
    with pytest.raises(FolderError, match="has ledger version 5, this program writes version"):
        Ledger.open(folder / "ledger.db", write=True)


@pytest.mark.parametrize("version", [0, 1, SCHEMA_VERSION + 1, 99])
def test_versions_that_nobody_can_read_are_refused(folder: Path, version: int):
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(FolderError, match=f"has ledger version {version}"):
        Ledger.open(folder / "ledger.db")


def test_a_migrated_ledger_has_the_tables_and_columns_of_a_new_one(folder: Path):
    with Ledger.open(folder / "ledger.db") as ledger:
        migrated = columns(ledger._db)
    new = sqlite3.connect(":memory:")
    new.executescript(SCHEMA)
    assert migrated == columns(new)
    new.close()
    assert set(MIGRATIONS) == set(range(min(MIGRATIONS), SCHEMA_VERSION)), "every version since the first has its step"


def columns(db: sqlite3.Connection) -> dict[str, set[str]]:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in tables}
