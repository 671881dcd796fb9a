"""A browser, real runs and their reports, each made once; skipped, saying so, where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_runs import play
from opened_report import Opened, check, go

from fedmerit.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'fedmerit[dev]'")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium for the browser tests: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of real runs."""
    folder = tmp_path_factory.mktemp("runs")
    play(folder)
    return folder


@pytest.fixture(scope="session")
def report(runs: Path) -> Path:
    """A report of all of them."""
    out = runs.parent / f"{runs.name}.html"
    write_report(sorted(runs.iterdir()), out)
    return out


@pytest.fixture(scope="session")
def window(chromium: Browser, report: Path) -> Iterator[Opened]:
    opened = go(chromium, report)
    yield opened
    opened.page.context.close()


@pytest.fixture
def opened(window: Opened) -> Iterator[Opened]:
    """The report of all runs on a desktop; tests choose the run they look at."""
    yield window
    check(window)


@pytest.fixture
def browse(chromium: Browser) -> Iterator[Callable[..., Opened]]:
    """Another report, or on another device."""
    found: list[Opened] = []

    def open_one(path: Path, **context: Any) -> Opened:
        found.append(go(chromium, path, **context))
        return found[-1]

    yield open_one
    for one in found:
        check(one)
        one.page.context.close()
