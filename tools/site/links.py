"""Links of the built pages: each leads to a page and an anchor that are there, and no page fetches from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}
"""What a browser loads by itself."""
SELDOM = ("canonical", "prev", "next", "alternate", "edit")
"""Links in a page's head that nobody loads."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in FETCHED and values.get("rel") not in SELDOM and values.get(FETCHED[tag]):
            self.loads.append(values[FETCHED[tag]])


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def broken(site: Path) -> Iterator[str]:
    """Links and files of pages that are not there; those to other sites are not tried."""
    for path in _pages(site):
        page = _read(path)
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link} leads nowhere"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _read(target).ids:
                yield f"{path.relative_to(site)}: {link} names an anchor that is not there"


def foreign(site: Path) -> Iterator[str]:
    """What pages would fetch over the network while they are read."""
    for path in _pages(site):
        for link in _read(path).loads:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site)}: {link} would be fetched from elsewhere"
