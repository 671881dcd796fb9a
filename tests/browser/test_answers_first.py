"""The page answers first: verdict, differences, the reason beside the map, links, print, and nothing that axe finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_runs import TASK, TRAIN
from opened_report import Opened, check, go

from fedmerit import Run, Study, compare
from fedmerit.report.html import write_report
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.plan import make_plan
from fedmerit.study.suspects import planted_attackers

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Browse = Callable[..., Opened]
AXE = Path(__file__).parents[2] / "tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
ROWS = [
    {"name": "FedAvg"},
    {"name": "LD > DS", "recipe": {"name": "prioritized", "criteria": "LD,DS", "normalise": "max"}},
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    run = {"rounds": 2, "fraction": 0.75, "workers": 1, "audit": ["accuracy"]}
    task = TASK | {"attack": {"kind": "label-flip", "share": 0.25}}
    plan = make_plan({"seeds": 2, "base": {"task": task, "train": TRAIN, "run": run}, "row": ROWS})
    return compare(plan, tmp_path_factory.mktemp("studies") / "study", jobs=1)


@pytest.fixture(scope="module")
def page(study: Study) -> Path:
    out = study.folder.parent / "report.html"
    write_report([study.folder], out)
    return out


@pytest.fixture(scope="module")
def answers(chromium: Browser, page: Path) -> Iterator[Opened]:
    opened = go(chromium, page)
    yield opened
    check(opened)
    opened.page.context.close()


def test_the_title_is_the_verdict_of_the_study(answers: Opened, study: Study) -> None:
    frame = study.compared
    (line,) = frame[(frame["measure"] == "accuracy") & (frame["row"] == "LD > DS")].to_dict("records")
    difference, low, high = (f"{100 * line[key]:+.2f}".replace("-", "−") for key in ("difference", "low", "high"))
    title = answers.text("title")
    assert f"differs from FedAvg by {difference} points of accuracy when 25 % of the clients have" in title
    assert answers.text("lead").endswith("2 rows compared in 4 runs. The rows differ in the recipe.")
    assert f"[{low}, {high}]" in answers.text("verdict-table")
    assert line["verdict"] in answers.text("verdict-table")
    assert answers.page.locator("#verdict-table svg.paired circle").count() == 2


def sections(opened: Opened) -> list[str | None]:
    return [one.get_attribute("id") for one in opened.page.locator("main > section:visible").all()]


def test_the_map_opens_on_the_row_of_the_title_with_its_attackers(answers: Opened, study: Study) -> None:
    assert sections(answers)[:2] == ["verdict", "weights"]
    shown = answers.page.locator("#weights-run").evaluate("(select) => select.selectedOptions[0].text")
    assert shown == "LD > DS, seed 1"
    answers.drawn("weights-plot")
    run = next(one.folder for one in study.runs if (one.row, one.seed) == ("LD > DS", 1))
    with open_ledger(run) as ledger:
        attackers = sorted(planted_attackers(ledger).members)
    names = answers.page.locator("#weights-plot .ytick text").all_text_contents()
    assert [name for name in names if name.startswith("▲")] == [f"▲ {client}" for client in attackers] == names[-2:]
    assert answers.text("weights-says").startswith("2 of 8 clients are attackers. They hold ")


def test_a_single_run_begins_with_who_got_what_and_why(browse: Browse, study: Study, tmp_path: Path) -> None:
    write_report([study.runs[0].folder], tmp_path / "report.html")
    opened = browse(tmp_path / "report.html")
    assert re.fullmatch("Who got what weight in .*, and why", opened.text("title"))
    assert sections(opened)[:2] == ["weights", "explain"]
    assert " got " in opened.text("reason-says")


def test_the_verdict_fits_on_a_phone(browse: Browse, page: Path) -> None:
    table = browse(page, **(PHONE | {"viewport": {"width": 400, "height": 850}})).page.locator("#verdict-table")
    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth")
    assert "too few seeds" in table.inner_text()


def test_names_of_targets_and_rows_are_whole_on_a_phone(browse: Browse, page: Path) -> None:
    names = browse(page, **(PHONE | {"viewport": {"width": 400, "height": 850}})).page.locator(".targets tbody th")
    assert names.count() > 0
    assert not any("…" in name for name in names.all_inner_texts())
    assert all(names.evaluate_all("(all) => all.map((one) => one.scrollWidth <= one.clientWidth)"))


def test_criteria_are_spelt_out_in_the_glossary(answers: Opened) -> None:
    words = answers.text("glossary-list")
    assert "DS: dataset size" in words
    assert "number of distinct labels" in words


def test_fairness_opens_on_the_audits_and_settings_are_folded(answers: Opened) -> None:
    chosen = answers.page.locator("#fairness-measure").evaluate("(select) => select.selectedOptions[0].text")
    assert chosen.startswith("audit: accuracy")
    assert answers.page.locator("#settings-runs details[open]").count() == 0


def test_an_address_leads_to_one_reason(browse: Browse, page: Path, study: Study) -> None:
    run = Run.load(next(member.folder for member in study.runs if (member.row, member.seed) == ("LD > DS", 1)))
    client = run.explain(2)[0].id
    opened = browse(page)
    place = opened.page.locator("#weights-run option", has_text="LD > DS, seed 1").get_attribute("value")
    opened.page.evaluate("(hash) => { window.location.hash = hash; }", f"#{place}/2/{client}")
    said, *_ = run.why(2, client).splitlines()
    opened.page.locator("#reason-says", has_text=said[:30]).wait_for()
    assert opened.page.locator("#reason-link").get_attribute("href") == f"#{place}/2/{client}"
    opened.page.reload()
    opened.page.locator("html[data-ready]").wait_for(state="attached")
    assert said[:30] in opened.text("reason-says")
    opened.page.locator("#weights-plot").focus()
    opened.page.keyboard.press("ArrowLeft")
    opened.page.wait_for_function(f"window.location.hash === '#{place}/1/{client}'")
    opened.asked.clear()  # the page was asked for twice: it was opened twice
    opened.asked.append(page.as_uri())


def test_the_reason_stands_beside_the_map_and_on_a_phone_in_a_drawer(browse: Browse, page: Path) -> None:
    wide = browse(page)
    wide.point("weights-plot", 2, 0)
    wide.page.locator("#reason").wait_for()
    beside = "document.getElementById('reason').getBoundingClientRect().left"
    assert wide.page.evaluate(beside) > wide.page.evaluate("window.innerWidth / 2")
    phone = browse(page, **PHONE)
    drawer = phone.page.locator("#reason")
    assert not drawer.is_visible()
    phone.point("weights-plot", 2, 0)
    drawer.wait_for()
    assert phone.page.evaluate("document.getElementById('reason').getBoundingClientRect().bottom") == 844
    phone.page.locator("#reason-close").click()
    assert not drawer.is_visible()


def test_paper_has_every_chart_though_nobody_scrolled(browse: Browse, page: Path) -> None:
    opened = browse(page)
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every((plot) => plot.closest('[hidden]') || plot.querySelector('svg'))"
    )
    assert opened.page.locator("#settings-runs details:not([open])").count() == 0
    opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert opened.page.locator("#settings-runs details[open]").count() == 0


LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "every panel": ("report", {}),
    "phone": ("page", PHONE),
    "dark": ("page", {"color_scheme": "dark"}),
}


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(browse: Browse, request: pytest.FixtureRequest, look: str) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core: npm ci --prefix tools/axe")
    path, context = LOOKS[look]
    opened = browse(request.getfixturevalue(path), **context)
    for place in ("accuracy", "fairness", "final", "weights", "explain"):
        opened.drawn(f"{place}-plot")
    opened.page.evaluate(AXE.read_text())
    found = opened.page.evaluate(
        "async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes.map((node) => node.target)])"
    )
    assert found == []
