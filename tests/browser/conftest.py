"""A browser, real runs and their reports, each made once; skipped, saying so, where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_runs import play

from fedmerit.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PATIENCE = 60_000
"""Milliseconds: no test measures time, and machines may be busy."""


@dataclass
class Opened:
    """A report in a browser; `said` is all that it complained of, `asked` all that it asked the network for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, place: str) -> str:
        return self.page.locator(f"#{place}").inner_text()

    def choose(self, place: str, label: str) -> None:
        """A run, or whatever else there is to choose; a run is chosen in all panels at once."""
        self.page.locator(f"#{place}").select_option(label=label)
        if place.endswith("-run"):
            told = "(label) => document.getElementById('explain-run').selectedOptions[0].text === label"
            self.page.wait_for_function(told, arg=label)

    def changed(self, place: str, before: str) -> None:
        """Wait until a text is another one."""
        self.page.wait_for_function(
            "([place, before]) => document.getElementById(place).innerText !== before", arg=[place, before]
        )

    def drawn(self, place: str) -> None:
        """Wait until a chart is there."""
        self.page.locator(f"#{place}").scroll_into_view_if_needed()
        self.page.locator(f"#{place} .main-svg").first.wait_for()

    def point(self, place: str, x: float, y: float) -> None:
        """Click on the point of a chart that has these values."""
        self.drawn(place)
        at = self.page.evaluate(
            """([place, x, y]) => {
                const { xaxis, yaxis } = document.getElementById(place)._fullLayout;
                return [xaxis._offset + xaxis.d2p(x), yaxis._offset + yaxis.d2p(y)];
            }""",
            [place, x, y],
        )
        self.page.locator(f"#{place}").click(position={"x": at[0], "y": at[1]})


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


def go(browser: Browser, path: Path, **context: Any) -> Opened:
    """A report, opened in a window of its own, with the charts in sight drawn."""
    made = browser.new_context(**(DESKTOP | context))
    made.set_default_timeout(PATIENCE)
    opened = Opened(made.new_page())
    page = opened.page
    page.on("console", lambda message: opened.said.append(message.text))
    page.on("pageerror", lambda error: opened.said.append(str(error)))
    page.on("dialog", lambda dialog: opened.said.append(dialog.message))
    page.on("request", lambda request: opened.asked.append(request.url))
    page.goto(path.as_uri())
    page.locator("html[data-ready]").wait_for(state="attached")
    return opened


def check(opened: Opened) -> None:
    """It has complained of nothing, and asked for nothing but itself."""
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in opened.asked if url.startswith("file:")]) == 1


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
