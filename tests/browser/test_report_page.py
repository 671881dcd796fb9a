"""The report in a browser: every panel, by pointer and by keyboard, on a phone and in the dark, under hostile names."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_runs import CLIENTS, HOSTILE, ROUNDS, TASK, TRAIN, poison
from opened_report import Opened

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.core.criteria.table import about_criterion, display_name
from fedmerit.core.reasons import percent
from fedmerit.report.html import write_report
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.plan import make_plan
from fedmerit.study.study_folder import make_folder, members, tuning_folder, write_plan

Browse = Callable[..., Opened]
PANELS = ("runs", "accuracy", "targets", "fairness", "weights", "explain")
SPECIAL = ("search", "groups")
LAST = ("notes", "settings", "glossary")
CHARTS = ("accuracy", "fairness", "final", "weights", "explain")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def widths(opened: Opened) -> tuple[int, int]:
    return tuple(opened.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]"))


def test_every_panel_is_there_and_drawn(opened: Opened) -> None:
    assert opened.text("title") == "4 rows compared in 6 runs"
    for panel in (*PANELS, *SPECIAL, *LAST):
        assert opened.page.locator(f"section#{panel} h2").is_visible()
        assert opened.page.locator(f'nav a[href="#{panel}"]').is_visible()
    for place in CHARTS:
        opened.drawn(f"{place}-plot")
    opened.choose("search-run", "searched")
    opened.drawn("search-plot")
    opened.choose("groups-run", "grouped")
    opened.drawn("groups-plot")
    assert opened.page.locator("#targets-tables table").count() == 4
    assert opened.page.locator("#runs-table tbody tr").count() == 4


def test_runs_that_differ_in_the_seed_are_a_line_with_a_band(opened: Opened, runs: Path) -> None:
    assert opened.page.get_by_role("button", name="range over 3 seeds of plain").first.is_visible()
    row = opened.page.locator("#runs-table tr", has_text="plain").inner_text()
    assert "1 – 3" in row
    ends = []
    for seed in (1, 2, 3):
        with open_ledger(runs / f"plain-seed{seed}") as ledger:
            ends.append(ledger.rounds()[-1]["accuracy"])
    assert f"{sum(ends) / 3:.2%}".replace("%", " %") in row
    assert f"{min(ends) * 100:.2f} – {max(ends) * 100:.2f} %" in row
    opened.choose("weights-run", "plain, seed 2")


def test_a_click_on_a_client_explains_its_weight(opened: Opened, runs: Path) -> None:
    opened.choose("weights-run", "searched")
    with open_ledger(runs / "searched") as ledger:
        earned, way = ledger.weights(2), ledger.rounds()[1]["priority"]
    mine = min(earned, key=lambda row: row.weight)
    opened.point("weights-plot", 2, mine.id)
    says = f"client {mine.id} got {percent(mine.weight)} of round 2, less than an equal share"
    opened.page.locator("#explain-says", has_text=says).wait_for()
    assert opened.text("reason-says") == opened.text("explain-says")
    assert opened.page.locator("#explain-body tbody th abbr").all_inner_texts() == way
    assert opened.page.locator("#explain-body tbody th small").first.inner_text() == display_name(way[0])
    assert opened.page.locator("#explain-body tbody th abbr").first.get_attribute("title") == about_criterion(way[0])
    assert f"{mine.facts['samples']:.0f}" in opened.text("explain-body")
    absent = next(client for client in range(CLIENTS) if client not in {row.id for row in earned})
    opened.point("weights-plot", 2, absent)
    opened.page.locator(
        "#explain-says", has_text=f"client {absent} has no weight in round 2: it was not drawn"
    ).wait_for()


def test_the_keyboard_reaches_and_moves_everything(opened: Opened) -> None:
    page = opened.page
    opened.choose("groups-run", "grouped")
    reached = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.closest('[id]')?.id"))
    wanted = {"runs-table", "accuracy-measure", "weights-plot", "explain-client", "groups-plot"}
    assert wanted <= reached
    page.locator("#explain-round").select_option("4")
    page.locator("#explain-client").select_option("5")
    page.locator("#weights-plot").focus()
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp", "ArrowDown"):
        before = opened.text("explain-says")
        page.keyboard.press(key)
        opened.changed("explain-says", before)
    assert re.match(r"client 4 .* round 3\b", opened.text("explain-says"))


def test_groups_search_and_rewards_say_what_the_ledger_says(opened: Opened, runs: Path) -> None:
    opened.choose("groups-run", "grouped")
    with open_ledger(runs / "grouped") as ledger:
        (row, *_), number = ledger.weights(ROUNDS), ledger.rounds()[-1]["groups"]
    opened.point("groups-plot", ROUNDS, row.id)
    group = f"client {row.id}: group {row.group + 1} of {number} in round {ROUNDS}" if number > 1 else f"round {ROUNDS}"
    opened.page.locator("#groups-says", has_text=group).wait_for()
    assert "Reward:" in opened.text("explain-body")
    opened.choose("search-run", "searched")
    opened.page.locator("#groups-empty", has_text="In searched all clients are one group").wait_for()
    with open_ledger(runs / "searched") as ledger:
        tried = ledger.candidates(3)
    opened.point("search-plot", 3, 0)
    opened.page.locator("#search-table caption", has_text="Round 3").wait_for()
    assert opened.page.locator("#search-table thead th").first.inner_text() == "weighting"
    assert opened.page.locator("#search-table tbody th").all_inner_texts() == [one.weighting for one in tried]
    assert opened.page.locator("#search-table tr.taken th").inner_text() == next(
        one.weighting for one in tried if one.chosen
    )


def test_audits_that_are_too_many_are_named_as_such(browse: Browse, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audited"
    shutil.copytree(runs / "audited", folder)
    many = range(CLIENTS, 2_500)
    with sqlite3.connect(folder / "ledger.db") as ledger:
        ledger.executemany("INSERT INTO clients VALUES (?, ?)", ((client, f"more {client}") for client in many))
        audits = ((index, client, f"o{i}", 0.5) for index in range(1, ROUNDS + 1) for client in many for i in range(21))
        ledger.executemany("INSERT INTO audits VALUES (?, ?, ?, ?)", audits)
    ledger.close()
    write_report([folder], tmp_path / "report.html")
    assert "too many for this page" in browse(tmp_path / "report.html").text("explain-body")


def test_audits_are_measures_of_fairness(opened: Opened, runs: Path) -> None:
    with open_ledger(runs / "audited") as ledger:
        (at_server,) = [value for _, who, name, value in ledger.audits(ROUNDS) if (who, name) == (-1, "accuracy")]
    row = opened.page.locator("#fairness-tables tr", has_text="audited").filter(has_text="balanced_accuracy")
    assert row.count() == 1
    assert f"{at_server:.4g}" in opened.text("fairness-tables")
    opened.choose("fairness-measure", "audit: balanced_accuracy at the worst client")
    opened.drawn("fairness-plot")
    assert "balanced_accuracy at the worst client" in (
        opened.page.locator("#fairness-plot").get_attribute("aria-label") or ""
    )


def test_hostile_names_are_text(browse: Browse, runs: Path, tmp_path: Path) -> None:
    folders = [poison(runs / name, tmp_path / "<img src=x onerror=harm()>" / name) for name in ("grouped", "searched")]
    folders.append(poison(runs / "plain-seed1", tmp_path / "<b>bold<|b> $x$"))
    write_report(folders, tmp_path / "report.html")
    opened = browse(tmp_path / "report.html", **PHONE)
    for place in (*CHARTS, "groups"):
        opened.drawn(f"{place}-plot")
    for client, name in enumerate(HOSTILE):
        opened.page.locator("#explain-round").select_option("4")
        opened.page.locator("#explain-client").select_option(str(client))
        seen = re.sub("[\u0000-\u001f\u2028\u202e]", "\ufffd", name)[:20]  # signs that would turn or break the line
        opened.page.locator("#explain-says", has_text=seen).wait_for()
    opened.choose("notes-run", "<b>bold<|b> $x$")
    opened.page.locator("#notes-list", has_text=HOSTILE[4]).wait_for()
    assert opened.page.evaluate("window.harmed") is None
    assert opened.page.locator("main img, main script, main b, main a[href^=javascript], .plot a").count() == 0
    assert widths(opened) == (390, 390)


@pytest.mark.parametrize("look", [PHONE, {"color_scheme": "dark"}], ids=["phone", "dark"])
def test_phone_and_dark(browse: Browse, report: Path, look: dict[str, Any]) -> None:
    opened = browse(report, **look)
    opened.choose("groups-run", "grouped")
    for place in (*CHARTS, "groups"):
        opened.drawn(f"{place}-plot")
    colour = "rgb(17, 23, 27)" if "color_scheme" in look else "rgb(250, 249, 246)"
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
    tick = opened.page.locator("#weights-plot .ytick text").first
    muted = opened.page.evaluate("getComputedStyle(document.querySelector('.how')).color")
    assert tick.evaluate("(text) => getComputedStyle(text).fill") == muted
    wide, screen = widths(opened)
    assert wide == screen


def test_panels_that_have_nothing_to_show_are_not_there(browse: Browse, runs: Path, tmp_path: Path) -> None:
    write_report([runs / "plain-seed1"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    for panel in SPECIAL:
        assert not opened.page.locator(f"section#{panel}").is_visible()
        assert not opened.page.locator(f'nav a[href="#{panel}"]').is_visible()
    assert not opened.page.locator("#weights-run").is_visible()
    assert "10th to 90th percentile of clients" in opened.text("accuracy-legend")


def test_unfinished_runs_and_other_versions_are_told(browse: Browse, runs: Path, tmp_path: Path) -> None:
    stopped, fresh = (shutil.copytree(runs / "plain-seed1", tmp_path / name) for name in ("stopped", "fresh"))
    for folder, rounds in ((stopped, 2), (fresh, 0)):
        with sqlite3.connect(folder / "ledger.db") as ledger:
            for table in ("rounds", "weights", "evaluations", "events"):
                ledger.execute(f"DELETE FROM {table} WHERE round > {rounds}")
            ledger.execute("UPDATE meta SET value = '0.0.9' WHERE key = 'fedmerit'")
        ledger.close()
    write_report([fresh, stopped, runs / "plain-seed2"], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    badges = opened.page.locator("#runs-table tr", has=opened.page.locator(".badge")).all_inner_texts()
    assert [re.search(r"(\d) of (\d)\s+unfinished", badge).groups() for badge in badges] == [("0", "4"), ("2", "4")]  # type: ignore[union-attr]
    assert "environments of the runs differ (fedmerit)" in opened.text("lead")
    assert opened.page.locator("#environment mark").first.inner_text() == "0.0.9"
    with open_ledger(runs / "plain-seed2") as ledger:
        accuracy = ledger.rounds()[1]["accuracy"]
    assert f"{100 * accuracy:.2f} %" in opened.page.locator("#runs-table tr", has_text="plain").inner_text()
    assert "Values are from round 2, the last round that every seed has finished." in opened.text("runs-foot")
    opened.choose("weights-run", "fresh")
    opened.page.locator("#weights-empty", has_text="fresh has no round yet").wait_for()
    assert "fresh has no round yet" in opened.text("explain-says")


def test_flat_curves_have_distinct_ticks_and_trivial_targets_no_table(
    browse: Browse, runs: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(runs / "plain-seed1", tmp_path / "flat")
    with sqlite3.connect(folder / "ledger.db") as ledger:
        ledger.execute("UPDATE rounds SET accuracy = 0.96, p10 = 0.96, p50 = 0.96, p90 = 0.9601")
        ledger.execute("UPDATE evaluations SET correct = size")
    ledger.close()
    write_report([folder], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    opened.drawn("accuracy-plot")
    ticks = opened.page.locator("#accuracy-plot .ytick text").all_text_contents()
    assert len(set(ticks)) == len(ticks) >= 3
    assert opened.page.locator("#targets-tables table").count() == 0
    assert opened.text("targets-how").count("all clients are above") == 4


def test_what_the_cap_cut_is_told(browse: Browse, tmp_path: Path) -> None:
    task = {"partition": "dirichlet", "alpha": 0.1, "clients": 5}
    recipe = {"limits": [{"name": "cap", "times": 1.2}], "stages": [{"name": "claims", "k": 1.0}]}
    config = make_config({"task": task, "recipe": recipe, "run": {"rounds": 1, "fraction": 1.0, "workers": 1}})
    run = run_config(config, tmp_path / "capped")
    cut = max(run.explain(1), key=lambda client: client.earned - client.weight)
    claim = next(event for event in run.events() if event.kind == "claim-cut")
    run.ledger.close()
    write_report([tmp_path / "capped"], tmp_path / "capped.html")
    opened = browse(tmp_path / "capped.html")
    opened.page.locator("#explain-all summary").click()
    table = opened.page.locator("#explain-all table")
    assert "uncapped" in table.inner_text().lower()
    table.get_by_role("button", name=f"client {cut.id}", exact=True).click()
    assert "cut by the cap to 24" in opened.text("explain-body")
    assert claim.text in opened.text("explain-body")


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
    plan = make_plan({"seeds": [3, 4], "base": base, "row": [{"name": "FedAvg"}], "references": True, "targets": []})
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
    assert [text.partition(":")[0].partition(" (")[0] for text in warned] == ["FedAvg", "alone", "pooled"]
    shown = opened.page.locator("#weights-run").evaluate("(select) => select.selectedOptions[0].text")
    assert shown == "FedAvg, seed 3"  # no weights are earned by clients that train alone
    assert not opened.page.locator("#targets").is_visible()


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
