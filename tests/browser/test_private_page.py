"""The page of a private run in a browser: epsilon as a measure, and what the guarantee does not cover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser_runs import TASK, TRAIN
from opened_report import Opened

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.report.html import write_report

PRIVATE = {
    "recipe": {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 5}}},
    "run": {"rounds": 2, "fraction": 0.75, "workers": 1, "selection": "poisson"},
    "privacy": {"clip": 1.0, "noise": 1.1, "delta": 1e-3, "reproducible": True},
}


def test_epsilon_can_be_looked_at(browse: Callable[..., Opened], tmp_path: Path) -> None:
    run_config(make_config({"task": TASK, "train": TRAIN} | PRIVATE), tmp_path / "run").ledger.close()
    write_report([tmp_path / "run"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    opened.choose("accuracy-measure", "privacy spent (epsilon)")
    opened.drawn("accuracy-plot")
    assert "epsilon over rounds" in (opened.page.locator("#accuracy-plot").get_attribute("aria-label") or "")
    assert "do not publish it" in opened.text("accuracy-how")
    assert "no privacy guarantee" in opened.text("accuracy-how")
    assert "the guarantee is void" in opened.text("notes")
