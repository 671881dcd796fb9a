"""The report as a file: complete, offline, harmless, and never half written."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
import sys
from pathlib import Path

import pytest
from report_runs import HOSTILE, Page, make_run

from fedmerit.errors import ConfigError, FolderError
from fedmerit.report import html
from fedmerit.report.html import PAGE, SCRIPTS, STYLES, write_report

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
    for section in ("runs", "accuracy", "targets", "weights", "explain", "notes", "settings"):
        assert ("a", {"href": f"#{section}"}) in page.elements
        assert ("section", {"id": section, "aria-labelledby": f"{section}-title"}) in page.elements
        assert f"{section}-title" in page.ids()


def test_every_label_and_control_is_reachable(page: Page) -> None:
    attributes = [dict(found) for _, found in page.elements]
    for found in attributes:
        for reference in ("aria-labelledby", "aria-describedby", "for"):
            assert found.get(reference, "main") in page.ids()
        if found.get("role") in ("region", "application"):
            assert found["aria-label"]
            assert found["tabindex"] == "0"


def test_scripts_name_only_places_the_page_has(page: Page) -> None:
    wanted = set(re.findall(r'\$\("([a-z-]+)"\)', page.scripts["main"]))
    assert wanted
    assert wanted <= page.ids()


def test_file_asks_nothing_of_any_network(page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    policy = next(found["content"] for tag, found in page.elements if tag == "meta" and "http-equiv" in found)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page.source.split("</style>")[0]


def test_policy_lets_only_our_two_scripts_run(page: Page) -> None:
    scripts = [page.scripts["plotly"], page.scripts["main"]]
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.source[:2000]
    assert [found.get("type") for tag, found in page.elements if tag == "script"] == [
        "application/json",
        "text/plain",
        None,
    ]


def test_hostile_names_stay_data(page: Page) -> None:
    assert page.data["runs"][1]["names"] == list(HOSTILE)
    embedded = page.scripts["data"]
    assert not set("<>&\u2028\u2029\u202e") & set(embedded)
    assert not any(name in page.text for name in HOSTILE)
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 3


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


def test_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no run in"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_damaged_ledger(tmp_path: Path) -> None:
    ledger = sqlite3.connect(make_run(tmp_path / "run") / "ledger.db")
    ledger.execute("DROP TABLE earned")
    ledger.close()
    with pytest.raises(FolderError, match="cannot read the ledger"):
        write_report([tmp_path / "run"], tmp_path / "report.html")


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
    with pytest.raises(ConfigError, match=r"pip install 'fedmerit\[report\]'"):
        write_report([make_run(tmp_path / "run")], tmp_path / "report.html")


def test_large_run_stays_small(tmp_path: Path) -> None:
    """A tenth of 1,000 clients x 500 rounds with 100 clients a round: its data must stay under half a megabyte."""
    names = [f"hospital-{i:04d}" for i in range(1000)]
    folder = make_run(tmp_path / "run", names=names, rounds=50, drawn=100)
    write_report([folder], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert len(page.scripts["data"]) < 500_000
    assert len(page.source) - len(page.scripts["plotly"]) - len(page.scripts["data"]) < 100_000
