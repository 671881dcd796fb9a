"""The report as a file: complete, offline, harmless, and never half written."""

import base64
import hashlib
import re
import sqlite3
import sys
from pathlib import Path

import pytest
from helpers import CommandLine, one_line
from report_runs import HOSTILE, Page, inflated, make_run

from fedmerit.errors import ConfigError, FolderError
from fedmerit.report import html
from fedmerit.report.html import DETAIL_BUDGET, PAGE, SCRIPTS, STYLES, called_at_once, read_plotly, write_report

SECTIONS = (
    *("runs", "accuracy", "targets", "fairness", "weights", "explain"),
    *("search", "groups", "notes", "settings"),
)
PAGE_FILES = Path(html.__file__).parent / "page"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A report of two runs, one of them with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    write_report([make_run(folder / "one"), make_run(folder / "two", names=HOSTILE)], folder / "report.html")
    return Page(folder / "report.html")


def test_sections_headings_and_landmarks(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == 1
    assert {"header", "nav", "main", "footer"} <= set(tags)
    for section in SECTIONS:
        assert ("a", {"href": f"#{section}"}) in page.elements
        assert ("section", {"id": section, "aria-labelledby": f"{section}-title"}) in page.elements
        assert f"{section}-title" in page.ids()


def test_every_label_and_control_is_reachable(page: Page) -> None:
    for _, attributes in page.elements:
        for reference in ("aria-labelledby", "aria-describedby", "for"):
            assert attributes.get(reference, "main") in page.ids()
        if attributes.get("role") in ("region", "application"):
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"


def test_scripts_name_only_places_the_page_has(page: Page) -> None:
    wanted = set(re.findall(r'\$\("([a-z-]+)"\)', page.scripts["main"]))
    assert wanted
    assert wanted <= page.ids()


def test_file_makes_no_network_request(page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    policy = next(has["content"] for tag, has in page.elements if tag == "meta" and "http-equiv" in has)
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page.source.split("</style>")[0]


def test_policy_lets_only_our_two_scripts_run(page: Page) -> None:
    scripts = [inflated(page.scripts["plotly"]), page.scripts["main"]]
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.source[:2000]
    kinds = [(has.get("id"), has.get("type")) for tag, has in page.elements if tag == "script"]
    plain = ("data", "run-0", "run-1", "plotly")
    assert kinds == [*((place, "text/plain") for place in plain), (None, None)]


def test_hostile_names_stay_data(page: Page) -> None:
    assert page.detail(1)["names"] == list(HOSTILE)
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", page.scripts[place]) for place in ("data", "run-0", "run-1", "plotly"))
    assert not any(name in page.text for name in HOSTILE)


def test_our_scripts_write_text_never_markup() -> None:
    ours = "".join((PAGE_FILES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    for way_in in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http://",
    ):
        assert way_in not in ours.replace("http://www.w3.org/2000/svg", "")


def test_every_page_file_is_used() -> None:
    used = {PAGE, *STYLES, *(f"{name}.js" for name in SCRIPTS)}
    assert {path.name for path in PAGE_FILES.iterdir()} == used


def test_same_ledgers_same_bytes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    write_report([folder], tmp_path / "a.html")
    write_report([folder], tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="at least one run folder"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE weights",
        "UPDATE weights SET facts = '{'",
        "UPDATE weights SET criteria = '{}'",
        "UPDATE rounds SET seconds = '[]'",
        "UPDATE evaluations SET client = 99 WHERE client = 3",
        "UPDATE meta SET value = '{' WHERE key = 'config'",
        "DELETE FROM clients",
    ],
)
def test_damaged_ledger(tmp_path: Path, damage: str) -> None:
    with sqlite3.connect(make_run(tmp_path / "run") / "ledger.db") as ledger:
        ledger.execute(damage)
    ledger.close()
    with pytest.raises(FolderError, match=r"run/ledger\.db is (damaged: .*fedmerit verify|not a ledger)"):
        write_report([tmp_path / "run"], tmp_path / "report.html")


def test_ledger_cut_off_and_no_ledger_at_all(tmp_path: Path) -> None:
    ledger = make_run(tmp_path / "run") / "ledger.db"
    ledger.write_bytes(ledger.read_bytes()[:9000])
    with pytest.raises(FolderError, match="ledger"):
        write_report([tmp_path / "run"], tmp_path / "report.html")
    ledger.write_text("no ledger")
    with pytest.raises(FolderError, match="is not a ledger"):
        write_report([tmp_path / "run"], tmp_path / "report.html")


def test_mistakes_on_the_command_line_are_one_line(cli: CommandLine, tmp_path: Path) -> None:
    run, out = make_run(tmp_path / "run"), tmp_path / "report.html"
    assert "no run in" in one_line(cli("report", run, tmp_path / "nothing", "--out", out))
    assert "holds run folders" in one_line(cli("report", tmp_path, "--out", out))
    (run / "ledger.db").write_bytes(b"x" * 10_000)
    assert "is not a ledger" in one_line(cli("report", run, "--out", out))
    assert not out.exists()


def test_never_writes_over_a_file(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    with pytest.raises(FolderError, match=r"exists; .* choose another --out"):
        write_report([make_run(tmp_path / "run")], out)
    assert out.read_text() == "mine"


def test_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no folder"):
        write_report([make_run(tmp_path / "run")], tmp_path / "not" / "there.html")


def test_nothing_is_left_behind_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FolderError, match="No space left"):
        write_report([folder], tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_plotly_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    read_plotly.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'fedmerit\[report\]'"):
        write_report([make_run(tmp_path / "run")], tmp_path / "report.html")


def test_a_script_is_put_in_parentheses_only_where_its_form_is_known() -> None:
    known = "(function(root, make) { root.it = make(); } (this, () => {\nreturn 1;\n}));"
    assert called_at_once(known) == "(function(root, make) { root.it = make(); } (this, (() => {\nreturn 1;\n})));\n"
    for other in ("var it = 1;", known + " more", " " * 1000 + known):
        assert called_at_once(other) == other


def test_large_run_stays_small(tmp_path: Path) -> None:
    """A fiftieth of 1,000 clients x 500 rounds with all clients in every round: the whole stays under 10 MB."""
    names = [f"hospital-{i:04d}" for i in range(1000)]
    folder = make_run(tmp_path / "run", names=names, rounds=10, drawn=1000)
    write_report([folder], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    detail = len(page.scripts["run-0"])
    assert detail < DETAIL_BUDGET / 50
    assert len(page.source) - detail < 10_000_000 - DETAIL_BUDGET
