"""The page of a private run: the curve of epsilon, and the word where the guarantee is void."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_runs import collected, make_run

from fedmerit import run_config
from fedmerit.config.privacy import epsilon_after
from fedmerit.config.schema import make_config

PRIVATE = {
    "task": {"clients": 12},
    "recipe": {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 100}}},
    "run": {"rounds": 3, "fraction": 0.5, "workers": 1, "selection": "poisson"},
    "privacy": {"clip": 1.0, "noise": 1.1, "delta": 1e-3, "reproducible": True},
}


def test_epsilon_is_a_curve_of_private_runs_alone(tmp_path: Path) -> None:
    run_config(make_config(PRIVATE), tmp_path / "private")
    make_run(tmp_path / "plain")
    page, _ = collected(tmp_path / "private", tmp_path / "plain")
    private, plain = page["rows"]
    (spent,) = [each["lines"] for each in private["curve"]["measures"] if each["name"] == "epsilon"]
    assert spent[0] == pytest.approx([epsilon_after(1.1, 0.5, index, 1e-3) for index in (1, 2, 3)], rel=1e-3)
    assert "epsilon" not in {each["name"] for each in plain["curve"]["measures"]}
    assert "privacy-void" in {event["kind"] for event in private["events"]}
