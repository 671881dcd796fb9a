"""The data report in a browser: there for a run on a table, with hostile words, and not for other runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser_runs import HOSTILE
from opened_report import Opened

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.report.html import write_report

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def test_the_data_report_is_a_section(browse: Callable[..., Opened], runs: Path, tmp_path: Path) -> None:
    word = HOSTILE[4].replace(",", "").replace('"', "")
    lines = [
        f"{place % 2},{place % 7},{word if place % 5 else 'b'},{'yes' if place % 3 else 'no'}" for place in range(60)
    ]
    (tmp_path / "in").mkdir()
    for site in ("north", "south"):
        (tmp_path / "in" / f"{site}.csv").write_text(
            "flag,value,word,died\n" + "\n".join([*lines, "1,-999,b,yse"]) + "\n"
        )
    task = {"data": f"table:{tmp_path}/in", "label": "died"}
    config = make_config({"task": task, "run": {"rounds": 1, "fraction": 1.0, "workers": 1}})
    run_config(config, tmp_path / "run").ledger.close()
    write_report([tmp_path / "run"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html", **PHONE)
    assert opened.page.locator('nav a[href="#table"]').is_visible()
    assert "Is died = 'yse' a typo of 'yes'?" in opened.text("table-suspicions")
    assert "questions about the data, the gravest first" in opened.text("table-says")
    assert "value" in opened.text("table-columns")
    assert opened.page.locator("#table-labels tbody tr").count() == 2
    assert opened.page.evaluate("window.harmed") is None
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    write_report([runs / "plain-seed1"], tmp_path / "plain.html")
    assert not browse(tmp_path / "plain.html").page.locator("section#table").is_visible()
