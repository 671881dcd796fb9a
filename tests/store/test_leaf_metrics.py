"""LEAF's metrics file: a line per client and evaluated round, as LEAF's own readers expect it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from helpers import small_task

from fedmerit import UserError, fedavg
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.state import Record, State
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.leaf import LeafMetric, leaf_metrics, write_leaf_metrics
from fedmerit.store.ledger import Ledger

NAMES = ("f0424_27", "nobody", 'a "quoted", name', "ü")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Three rounds, the second not evaluated; the second client has no test rows."""
    task = small_task(tests=(6, 0, 3, 5))
    state, made = State(task.learner.start(0)), []
    with LocalFleet(task) as fleet:
        for number in (1, 2, 3):
            state, record = run_round(state, fedavg(), Host.of(fleet), InTime(Uniform(0.75)), 1, number != 2)
            made.append(record)
    return made


@pytest.fixture
def ledger(records: list[Record]) -> Ledger:
    made = Ledger.create(None, NAMES, {})
    for record in records:
        made.append(record)
    return made


def test_tests_come_back_by_round_and_client(ledger: Ledger, records: list[Record]):
    expected = [
        (record.index, client, int(record.evaluation.correct[client]), size)
        for record in records
        if record.evaluation is not None
        for client, size in enumerate((6, 0, 3, 5))
    ]
    assert list(ledger.evaluations()) == expected


def test_a_line_per_client_that_was_tested(ledger: Ledger):
    lines = list(leaf_metrics(ledger))
    assert [(line.client_id, line.round_number, line.num_samples) for line in lines] == [
        (NAMES[client], round, size) for round in (1, 3) for client, size in ((0, 6), (2, 3), (3, 5))
    ]
    assert {(line.hierarchy, line.set) for line in lines} == {("", "test")}
    _, local = ledger.local_accuracy()
    assert [line.accuracy for line in lines] == local[:, [0, 2, 3]].ravel().tolist()


def test_the_file(tmp_path: Path, ledger: Ledger):
    path = tmp_path / "metrics.csv"
    write_leaf_metrics(ledger, path)
    text = path.read_text(encoding="utf-8")
    assert text.splitlines()[0] == "client_id,round_number,hierarchy,num_samples,set,accuracy"
    assert text.splitlines()[1].startswith("f0424_27,1,,6,test,")
    assert "\r" not in text
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    back = [
        LeafMetric(
            row["client_id"],
            int(row["round_number"]),
            row["hierarchy"],
            int(row["num_samples"]),
            row["set"],
            float(row["accuracy"]),
        )
        for row in rows
    ]
    assert back == list(leaf_metrics(ledger))
    assert [found.name for found in tmp_path.iterdir()] == ["metrics.csv"]


def test_without_rounds_there_is_a_header_alone(tmp_path: Path):
    write_leaf_metrics(Ledger.create(None, NAMES, {}), tmp_path / "metrics.csv")
    assert (tmp_path / "metrics.csv").read_text() == "client_id,round_number,hierarchy,num_samples,set,accuracy\n"


def test_nothing_is_written_over(tmp_path: Path, ledger: Ledger):
    path = tmp_path / "metrics.csv"
    path.write_text("mine")
    with pytest.raises(UserError, match=r"metrics.csv exists; .*choose another name"):
        write_leaf_metrics(ledger, path)
    assert path.read_text() == "mine"


def test_where_it_cannot_be_written(tmp_path: Path, ledger: Ledger):
    with pytest.raises(UserError, match=r"no folder .*absent to write metrics.csv to"):
        write_leaf_metrics(ledger, tmp_path / "absent" / "metrics.csv")
    with pytest.raises(UserError, match="cannot write"):
        write_leaf_metrics(ledger, tmp_path / ("x" * 250))
    assert list(tmp_path.iterdir()) == []
