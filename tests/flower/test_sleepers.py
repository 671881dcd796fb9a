"""A real SuperNode that sleeps for ten minutes: its round ends at the deadline, and no later one waits for it."""

import os
import time
from pathlib import Path

import pytest

from fedmerit import Run
from fedmerit.config.schema import make_config
from fedmerit.flower.loopback import loopback, node_config
from fedmerit.flower.start import write_app
from fedmerit.store.ledger import Ledger

pytestmark = pytest.mark.long
ROUNDS, DEADLINE, SLEEP = 6, 30.0, 600.0
MODULE = """
import time
from pathlib import Path

import numpy as np
import pandas

def frame():
    if Path({signal!r}).exists():
        time.sleep({sleep})
    x = np.random.default_rng(3).normal(size=(60, 2))
    return pandas.DataFrame({{"a": x[:, 0], "b": x[:, 1], "ill": np.where(x[:, 0] > 0, "yes", "no")}})
"""


def test_a_round_ends_at_its_deadline_and_the_next_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    signal, names = tmp_path / "sleep", ["north", "east", "south", "west"]
    (tmp_path / "awake.py").write_text(MODULE.format(signal="/nonexistent/never", sleep=0))
    (tmp_path / "sleeper.py").write_text(MODULE.format(signal=str(signal), sleep=SLEEP))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    nodes = {"names": names, "classes": ["no", "yes"], "columns": {"a": "number", "b": "number"}}
    run = {"rounds": ROUNDS, "fraction": 1.0, "wait": {"min_fraction": 0.75, "seconds": DEADLINE}}
    config = make_config({"task": {"data": "nodes", "label": "ill", "nodes": nodes}, "run": run})
    write_app(tmp_path / "app", config, tmp_path / "run")
    # a node reads its rows at each message, so that the last one falls asleep in the middle of the run
    configs = [node_config("sleeper:frame" if name == names[3] else "awake:frame", name) for name in names]
    with loopback(tmp_path, len(names), configs=configs) as made:
        made.run(tmp_path / "app")
        made.wait_for("run", "fedmerit: round 1,", 400)
        assert Ledger.open(tmp_path / "run" / "ledger.db").last_round() >= 1
        signal.touch()
        asleep = time.monotonic()
        made.wait_for("run", "the run is in", SLEEP - 60)
        awake = time.monotonic() - asleep
    assert awake < SLEEP, "the run waited for the sleeper"
    done = Run.load(tmp_path / "run")
    late = {one.round: one.text for one in done.events() if (one.kind, one.client) == ("left-out", 3)}
    first = max(round for round, text in late.items() if text.startswith("late: no answer within"))
    seconds = {row["round"]: row["seconds"]["train"] for row in done.ledger.rounds()}
    assert list(seconds) == list(range(1, ROUNDS + 1))
    assert DEADLINE <= seconds[first] < DEADLINE + 10
    after = range(first + 1, ROUNDS + 1)
    assert len(after) >= 3
    assert [late[round] for round in after] == ["late: still busy with an earlier message"] * len(after)
    assert all([one.id for one in done.explain(round)] == [0, 1, 2] for round in after)
    assert all(seconds[round] < DEADLINE for round in after)
