"""A look at built pages in Chromium: barriers that axe-core finds, errors, requests to elsewhere, the search."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

AXE = Path(__file__).parents[1] / "axe" / "node_modules" / "axe-core" / "axe.min.js"
LOOKED_AT = (
    "index.html",
    "first-weights.html",
    "papers.html",
    "configuration.html",
    "api.html",
    "notebooks/hospital-3.html",
    "results/index.html",
)
DEVICES = {"desktop": (1280, 900, "light"), "phone": (390, 844, "dark")}
NOT_OURS = ("landmark-unique",)
"""What the theme itself breaks: it names a part of its navigation twice."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def browse(site: Path, version: str) -> Iterator[str]:
    """What is wrong with some pages on a desktop and on a phone; skipped, saying so, without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no chromium: pages were not opened (apt-get install chromium)")
        return
    if not AXE.exists():
        print("no axe-core: barriers were not looked for (npm ci --prefix tools/axe)")
    from playwright.sync_api import sync_playwright

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for device, (width, height, look) in DEVICES.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look)  # type: ignore[arg-type]
            for name in LOOKED_AT:
                place = f"http://127.0.0.1:{server.server_port}/{version}/{name}"
                yield from (f"{name} on a {device}: {what}" for what in _look(context.new_page(), place))
            context.close()
        yield from _search(browser.new_page(), (site / version / "index.html").as_uri())
        browser.close()
    server.shutdown()


def _look(page: Any, place: str) -> Iterator[str]:
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(f"error {error}"))
    page.on("request", lambda request: _elsewhere(request.url) and found.append(f"asks {request.url}"))
    page.goto(place, wait_until="load")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
        found.append("it is wider than the screen")
    if AXE.exists():
        page.add_script_tag(path=str(AXE))
        barriers = page.evaluate(
            "async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes[0].target.join(' ')])"
        )
        found += [f"axe: {rule} at {where}" for rule, where in barriers if rule not in NOT_OURS]
    yield from found
    page.close()


def _elsewhere(url: str) -> bool:
    return url.startswith("http") and not url.startswith("http://127.0.0.1:")


def _search(page: Any, place: str) -> Iterator[str]:
    """The search finds a word where the pages are opened from disk."""
    page.goto(place)
    page.wait_for_load_state("load")
    query = page.locator("[data-md-component=search-query]")
    query.click()
    query.press_sequentially("priority", delay=100)  # as people do: a word that is there at once is not heard
    try:
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
    except Exception:
        yield "index.html, opened from disk: the search finds nothing"
