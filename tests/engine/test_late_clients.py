"""Simulated clients that are late: left out with the reason, by the same draws wherever they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.errors import ConfigError

LATE = {"wait": {"min_fraction": 0.5, "seconds": 10.0}, "delays": {"share": 0.5, "seconds": 100.0}}


def settings(**run: Any) -> Any:
    task, train = {"clients": 6, "model": "digits-linear"}, {"epochs": 1}
    return make_config({"task": task, "train": train, "run": {"rounds": 3, "fraction": 1.0, "workers": 1, **run}})


def test_the_late_are_left_out_and_named(tmp_path: Path):
    run = run_config(settings(**LATE), tmp_path / "late")
    for number in (1, 2, 3):
        late = {event.client for event in run.ledger.events(number) if event.kind == "left-out"}
        here = {one.id for one in run.explain(number)}
        assert late | here == set(range(6))
        assert not late & here
        assert len(here) >= 3
    events = [event.text for event in run.events() if event.kind == "left-out"]
    assert events
    assert all(text.startswith("late: it would have answered after ") for text in events)
    again = run_config(settings(**LATE), tmp_path / "again")
    assert (again.model == run.model).all()


def test_a_round_that_cannot_do_without_anybody_waits(tmp_path: Path):
    waits = LATE | {"wait": {"min_fraction": 1.0, "seconds": 10.0}}
    late, plain = run_config(settings(**waits), tmp_path / "late"), run_config(settings(), tmp_path / "plain")
    assert np.array_equal(late.model, plain.model)


def test_a_key_without_effect_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="delays have no effect without a timeout"):
        settings(delays={"share": 0.5})
    with pytest.raises(ConfigError, match=r"run.wait has no effect on this machine"):
        run_config(settings(wait={"seconds": 5.0}), tmp_path / "run")
