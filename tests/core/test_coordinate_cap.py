"""Bounds of coordinates and the server as a member of the mean, by hand; what they need, and a resumed run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import stopped_and_resumed

from fedmerit import federate, load_config, load_task, robust, run_config
from fedmerit.core.check import many_excluded
from fedmerit.core.host import Host
from fedmerit.core.seeds import Draws
from fedmerit.core.server.coordinate_cap import CoordinateCap
from fedmerit.core.server.server import Batch
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

EQUAL = np.full(3, 1 / 3)


def batch(rows: list[list[float]], own: Any = EMPTY, server: tuple[float, ...] = (3.0, -1.0)) -> Batch:
    host = Host(None, ("a",), train=lambda model, seed: model + np.array(server, np.float32))  # type: ignore[arg-type]
    view = View(1, np.zeros(2, np.float32), History(), host, Draws(0, 1))
    return Batch(Updates(np.array(rows, np.float32)), own=own, view=view)


def test_no_coordinate_moves_further_than_in_the_median_update():
    """Means 2 and -4; medians of the absolute values 1 and 1; zeros do not count."""
    rows = [[1.0, 1.0], [1.0, 0.5], [4.0, -13.5]]
    assert CoordinateCap()(batch(rows), EQUAL).tolist() == [1, -1]
    excluded = batch([*rows, [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert CoordinateCap()(excluded, np.r_[EQUAL, np.zeros(4)]).tolist() == [1, -1]
    assert CoordinateCap()(excluded, np.array([np.r_[EQUAL, np.zeros(4)], np.zeros(7)])).tolist() == [[1, -1], [0, 0]]
    assert CoordinateCap()(batch([[0.0, 0.0]] * 3), EQUAL).tolist() == [0, 0]


def test_the_server_s_own_moves_are_a_bound_that_remembers():
    """0.8 * 4 + 0.2 * 9 = 5 and 0.8 * 0 + 0.2 * 1 = 0.2 after mean squares of 4 and 0."""
    rule, rows = CoordinateCap(by="server"), [[9.0, 9.0]] * 3
    assert rule(batch(rows), EQUAL).tolist() == [3, 1]
    second = batch(rows, {"square": np.array([4.0, 0.0], np.float32)})
    assert rule(second, EQUAL) == pytest.approx([5**0.5, 0.2**0.5])
    assert rule.after(second, np.zeros(2, np.float32)).own["square"] == pytest.approx([5, 0.2])
    assert rule.after(batch(rows), np.zeros(2, np.float32)).own["square"].tolist() == [9, 1]


def test_a_server_without_rows_cannot_test_clients():
    with pytest.raises(ConfigError, match=r"task\.server = 1000"):
        federate(load_task("digits", clients=4), robust(server_rows=True), rounds=1)


@pytest.mark.parametrize("name", ["robust", "robust_server"])
def test_sleepers_are_excluded_and_a_resumed_run_has_the_same_bits(name: str, tmp_path: Path):
    attack = "task.attack={kind='sign-flip', share=0.4, strength=2.0, from_round=8}"
    data = ("task.data=digits", "task.partition=dirichlet", "task.clients=20", "task.server=200", attack)
    run = ("run.rounds=10", "run.fraction=0.5", "run.workers=1", "train.lr=0.5", "train.batch=full", "train.epochs=5")
    config = load_config(None, [*data, *run, f"recipe.name={name}"])
    whole = run_config(config, tmp_path / "whole")
    again = stopped_and_resumed(config, tmp_path / "again", 8)
    assert again.model.tobytes() == whole.model.tobytes()
    events = [event.text for event in whole.ledger.events(10) if event.kind == "excluded"]
    assert [event.text for event in again.ledger.events(10) if event.kind == "excluded"] == events
    assert any("clients are excluded" in text for text in events)


def test_many_excluded_clients_are_noted():
    def of(number: int) -> Cohort:
        return Cohort(1, tuple(range(8)), Updates(np.zeros((8, 1), np.float32)), {"excluded": np.arange(8) < number})

    assert many_excluded(of(2)) == ()
    (note,) = many_excluded(of(3))
    assert note.client is None
    assert note.text.startswith("3 of 8 clients are excluded")
