"""The panel of tunings in a browser: there where a row was tuned, readable on a phone, under hostile names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser_runs import HOSTILE, TASK, TRAIN
from opened_report import Opened

from fedmerit import run_config
from fedmerit.report.html import write_report
from fedmerit.study.plan import make_plan
from fedmerit.study.study_folder import make_folder, members, tuning_folder, write_plan

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def test_what_was_tuned_is_told(browse: Callable[..., Opened], runs: Path, tmp_path: Path) -> None:
    base = {"task": TASK, "train": TRAIN, "run": {"rounds": 2, "fraction": 0.75, "workers": 1}}
    row = {"name": HOSTILE[4], "tune": {"train.lr": [1e-9, 0.3]}}
    plan = make_plan({"seeds": [3], "base": base, "row": [row], "tune": {"seeds": [11]}})
    points, place = plan.tuning(plan.rows[0]), tuning_folder(tmp_path / "tuned", plan.rows[0])
    make_folder(place)
    write_plan(points, place)
    write_plan(plan, tmp_path / "tuned")
    for run in (*members(points, place), *members(plan, tmp_path / "tuned")):
        run_config(run.config, run.folder).ledger.close()
    write_report([tmp_path / "tuned"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html", **PHONE)
    assert opened.page.locator('nav a[href="#tuning"]').is_visible()
    panel = opened.page.locator("#tuning")
    assert panel.locator("tbody th").all_inner_texts() == ["lr=0.3", "lr=1e-09"]
    assert "chosen" in panel.locator("tbody tr").first.inner_text()
    assert "the best train.lr, 0.3, is the largest of its grid: extend it upwards" in opened.text("tuning")
    assert opened.page.evaluate("window.harmed") is None
    assert opened.page.locator("main img").count() == 0
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    write_report([runs / "plain-seed1"], tmp_path / "plain.html")
    plain = browse(tmp_path / "plain.html")
    assert not plain.page.locator("section#tuning").is_visible()
    assert not plain.page.locator('nav a[href="#tuning"]').is_visible()


def test_what_federation_is_worth_is_told(browse: Callable[..., Opened], tmp_path: Path) -> None:
    base = {"task": TASK, "train": TRAIN | {"lr": 1e-9}, "run": {"rounds": 1, "fraction": 0.75, "workers": 1}}
    plan = make_plan({"seeds": [3], "base": base, "row": [{"name": "FedAvg"}], "references": True})
    make_folder(tmp_path / "worth")
    write_plan(plan, tmp_path / "worth")
    for run in members(plan, tmp_path / "worth"):
        run_config(run.config, run.folder).ledger.close()
    write_report([tmp_path / "worth"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    assert opened.page.locator('nav a[href="#federation"]').is_visible()
    header = opened.page.locator("#federation thead th").all_inner_texts()
    assert header == ["client", "FedAvg", "alone", "FedAvg - alone", "pooled", "FedAvg - pooled"]
    assert opened.page.locator("#federation tbody th").first.inner_text() == "all clients"
    warned = opened.page.locator("#warnings li").all_inner_texts()  # nobody learned anything
    assert [text.partition(":")[0] for text in warned] == ["FedAvg", "alone", "pooled"]
