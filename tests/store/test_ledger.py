"""The ledger: one set of rows per round, read back as it was written."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from helpers import CannedFleet, run_canned, small_task

from fedmerit import CB, DS, MW, InTime, Uniform, UserError, prioritized
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.state import Record, State
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.ledger import Ledger
from fedmerit.store.ledger_tables import CHAINED

NAMES = ("client 0", "client 1", "client 2", "client 3")
RECIPE = prioritized(CB, DS, MW)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Three rounds, the second not evaluated."""
    task = small_task(tests=(6, 0, 6, 6))
    state, made = State(task.learner.start(0)), []
    with LocalFleet(task) as fleet:
        for number in (1, 2, 3):
            state, record = run_round(state, RECIPE, Host.of(fleet), InTime(Uniform(0.75)), 1, number != 2)
            made.append(record)
    return made


@pytest.fixture
def ledger(tmp_path: Path, records: list[Record]) -> Ledger:
    """The three rounds, written and opened again."""
    path = tmp_path / "ledger.db"
    written = Ledger.create(path, NAMES, {"recipe": "mine", "note": "ü"})
    for record in records:
        written.append(record)
    written.close()
    return Ledger.open(path)


def test_rounds_come_back(ledger: Ledger, records: list[Record]):
    rows = ledger.rounds()
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row, record in zip(rows, records, strict=True):
        assert row["priority"] == ["CB", "DS", "MW"]
        assert (row["bytes_down"], row["bytes_up"]) == (record.bytes_down, record.bytes_up)
        assert row["seconds"] == record.seconds
        if record.evaluation is None:
            assert {row[key] for key in ("accuracy", "p10", "p50", "p90")} == {None}
        else:
            assert row["accuracy"] == record.evaluation.accuracy
            assert row["p50"] == np.nanmedian(record.evaluation.local)


def test_what_clients_earned_comes_back(ledger: Ledger, records: list[Record]):
    for record in records:
        earned = ledger.weights(record.index)
        assert tuple(client.id for client in earned) == record.ids
        assert [client.weight for client in earned] == record.weights.weights.tolist()
        assert [client.score for client in earned] == record.weights.scores.tolist()
        assert [list(client.criteria.values()) for client in earned] == record.weights.raw.tolist()
        assert [list(client.normalised.values()) for client in earned] == record.weights.table.tolist()
        assert [client.facts["samples"] for client in earned] == record.facts["samples"].tolist()
    assert ledger.weights(99) == []


def test_columns_say_what_rows_say(ledger: Ledger):
    for index in (1, 2, 3):
        rows, columns = ledger.weights(index), ledger.weight_columns(index)
        assert columns.ids == tuple(row.id for row in rows)
        assert columns.weights.tolist() == [row.weight for row in rows]
        assert columns.scores.tolist() == [row.score for row in rows]
        for part in ("facts", "criteria", "normalised"):
            by_row = [getattr(row, part) for row in rows]
            assert {name: values.tolist() for name, values in getattr(columns, part).items()} == {
                name: [one[name] for one in by_row] for name in by_row[0]
            }
    nobody = ledger.weight_columns(99)
    assert (nobody.ids, nobody.facts, len(nobody.weights), nobody.uncapped) == ((), {}, 0, None)


def test_a_fact_that_only_some_tell_is_unknown_of_the_others(tmp_path: Path, ledger: Ledger):
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db, db:
        db.execute("UPDATE weights SET facts = '{\"loss\": 0.5}' WHERE round = 1 AND client = 1")
    with Ledger.open(tmp_path / "ledger.db") as again:
        columns = again.weight_columns(1)
        told = {name: np.isnan(values).tolist() for name, values in columns.facts.items()}
    assert told["loss"] == [client != 1 for client in columns.ids]
    assert told["samples"] == [client == 1 for client in columns.ids]


def test_local_accuracy_comes_back(ledger: Ledger, records: list[Record]):
    rounds, local = ledger.local_accuracy()
    assert rounds == [1, 3]
    expected = [record.evaluation.local for record in records if record.evaluation is not None]
    np.testing.assert_equal(local, np.array(expected))
    assert np.isnan(local[:, 1]).all()


def test_a_ledger_in_memory_is_the_same(ledger: Ledger, records: list[Record]):
    memory = Ledger.create(None, NAMES, {})
    for record in records:
        memory.append(record)
    assert memory.rounds() == ledger.rounds()
    assert memory.events() == ledger.events()
    assert [memory.weights(number) for number in (1, 2, 3)] == [ledger.weights(number) for number in (1, 2, 3)]


def test_events_say_who_was_left_out_and_why():
    fleet = CannedFleet(
        np.array([[1, 1], [np.nan, 1]], dtype=np.float32), [{"samples": 3, "balance": 0}] * 2, {2: "gone"}
    )
    _, record = run_canned(prioritized(CB, normalise="none"), fleet)
    ledger = Ledger.create(None, fleet.server.names, {})
    ledger.append(record)
    events = {(event.client, event.kind): event.text for event in ledger.events(1)}
    assert events[1, "left-out"].startswith("update contains NaN")
    assert events[2, "left-out"] == "gone"
    assert "fallback" in events[None, "zero-scores"]
    assert ledger.events(2) == []


def test_a_round_in_which_nobody_could_be_weighed_is_told():
    fleet = CannedFleet(np.empty((0, 2), dtype=np.float32), [], {0: "gone", 1: "gone"})
    _, record = run_canned(RECIPE, fleet, evaluate=True)
    ledger = Ledger.create(None, fleet.server.names, {})
    ledger.append(record)
    assert ledger.weights(1) == []
    assert [event.kind for event in ledger.events()] == ["left-out", "left-out", "nobody"]
    assert ledger.rounds()[0]["accuracy"] == 1


def test_a_round_is_written_whole_or_not_at_all(tmp_path: Path, records: list[Record]):
    ledger = Ledger.create(tmp_path / "ledger.db", NAMES, {})
    ledger.append(records[0])
    broken = replace(records[1], dropped={0: object()})  # type: ignore[dict-item]
    with pytest.raises(sqlite3.Error):
        ledger.append(broken)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.append(records[0])
    assert [row["round"] for row in ledger.rounds()] == [1]
    assert ledger.weights(2) == []
    assert len(ledger.weights(1)) == len(records[0].ids)
    ledger.append(records[1])
    assert [row["round"] for row in ledger.rounds()] == [1, 2]


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 200])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is not a ledger|has ledger version 0"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_a_ledger_that_is_not_there_is_refused_and_not_made(tmp_path: Path):
    with pytest.raises(UserError, match="no run in"):
        Ledger.open(tmp_path / "ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_reading_changes_nothing(tmp_path: Path, ledger: Ledger, records: list[Record]):
    with pytest.raises(sqlite3.OperationalError):
        ledger.append(replace(records[0], index=4))
    ledger.local_accuracy()
    ledger.close()
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_hashes_are_those_of_rows_sorted_by_their_text():
    """The text of the row decides, not the number of the client: 1 before 10 before 2."""
    names = [f'client\'s "{number}"' for number in range(120)]
    rows = {"meta": [("key", "value")], "clients": sorted(enumerate(names), key=repr)} | dict.fromkeys(CHAINED, ())
    text = "".join(f"\n{table}\n{''.join(map(repr, found))}" for table, found in rows.items())
    assert Ledger.create(None, names, {"key": "value"}).identity() == sha256(text.encode()).hexdigest()
