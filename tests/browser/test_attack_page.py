"""The page of an attack grid in a browser: red where a bound is missed, and nothing wider than a phone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opened_report import Opened

from fedmerit.report.attack_page import attack_page
from fedmerit.study.attack_grid import Grid, Score
from fedmerit.study.attack_plan import AttackPlan

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RED = "rgb(179, 38, 30)"


def grid() -> Grid:
    rows = [{"name": name, "recipe": {"name": "fedavg"}} for name in ("fedavg", "<b>hostile</b> name")]
    plan = AttackPlan.model_validate({"attacks": ["scale", "backdoor"], "shares": [0.4], "row": rows})
    nan = float("nan")
    scores = []
    for row in rows:
        scores.append(Score("none", 0.0, row["name"], 3, 0.9, 0.0, nan, nan, nan, nan, nan, 0.0))
        scores.append(Score("scale", 0.4, row["name"], 3, 0.1, 0.8, nan, 0.4, 0.4, 1.0, 0.5, 0.0, ("drop",)))
        scores.append(Score("backdoor", 0.4, row["name"], 3, 0.89, 0.01, 0.1, 0.4, 0.4, nan, 0.0, 0.0))
    return Grid(plan, tuple(scores))


@pytest.mark.parametrize("width", [1280, 390])
def test_cells_are_red_where_a_bound_is_missed(chromium: Browser, tmp_path: Path, width: int) -> None:
    (tmp_path / "grid.html").write_text(attack_page(grid()))
    page = chromium.new_context(viewport={"width": width, "height": 900}).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "grid.html").as_uri())
    colours: list[Any] = page.eval_on_selector_all(
        ".heat td", "cells => cells.map((cell) => [cell.className, getComputedStyle(cell).backgroundColor])"
    )
    assert [name for name, _ in colours] == ["", "missed", ""] * 2
    assert all((colour == RED) == (name == "missed") for name, colour in colours)
    assert "missed: accuracy" in page.locator("td.missed").first.inner_text()
    assert page.locator("tbody th").last.inner_text() == "<b>hostile</b> name"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
    page.context.close()


def test_the_report_says_who_stands_out(opened: Opened) -> None:
    assert "three" not in opened.text("suspects-rule")
    assert "at least 3 rounds" in opened.text("suspects-rule")
    assert opened.text("suspects-list")
