"""A report in a browser: opened, and checked for complaints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
