"""The HTML report: one or several runs in one file that opens offline and makes no network request."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from zlib import compress

from fedmerit.errors import ConfigError, FolderError
from fedmerit.report.data import collect
from fedmerit.store.files import check_new_file, write_new_file

PAGE = "report.html"
DETAIL = '<script type="text/plain" id="run-{}">{}</script>'
STYLES = (
    *("colours.css", "report.css", "tables.css", "controls.css", "explain.css", "verdict.css", "notes.css", "now.css"),
    "print.css",
)
SCRIPTS = (
    *("text", "inflate", "data", "theme", "charts", "overview", "verdict", "curves", "accuracy", "targets", "fairness"),
    *("cells", "weights", "bars", "terms", "reasons", "glossary", "explain", "links", "search", "groups", "rewards"),
    *("notes", "suspects", "dataset", "settings", "tuning", "report", "now", "live"),
)
"""Joined in this order into one script: later files use what earlier ones define."""

LEVEL = 6
"""Of compression: 9 takes three times as long for two per cent."""
DETAIL_BUDGET = 7_000_000
"""Characters for the detail of runs; with the rest of the page, a file stays under 10 MB."""


def write_report(folders: Sequence[Path], out: Path, *, force: bool = False) -> None:
    """Write a new file about runs and studies, completely or not at all."""
    if not folders:
        raise FolderError("a report needs at least one run folder; got none: give folders made by `fedmerit run`")
    check_new_file(out, "another --out", force=force)
    plotly = read_plotly()
    write_new_file(out, render(*collect(folders, DETAIL_BUDGET, embed), plotly), "another --out")


def render(data: Mapping[str, Any], details: Mapping[int, str], plotly: str, *, live: bool = False) -> str:
    """The page; its policy lets only our two scripts run and forbids every request, but for those to where it is live.

    A page in a file has all data in it; a live one gets the details of runs, and what changes, from its server.
    """
    script = _join(SCRIPTS)
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (plotly, script))
    return Template(read_part(PAGE)).substitute(
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {hashes}" + "; connect-src 'self'" * live,
        live=' data-live="yes"' if live else "",
        style="\n".join(map(read_part, STYLES)),
        data=embed(data),
        details="\n".join(DETAIL.format(place, text) for place, text in details.items()),
        plotly=_packed(plotly),
        script=script,
    )


def embed(data: Any) -> str:
    """Data as the page holds it: compressed JSON."""
    return deflate(json.dumps(data, separators=(",", ":"), allow_nan=False))


@cache
def _packed(plotly: str) -> str:
    return deflate(plotly)


def deflate(text: str) -> str:
    """Deflated and in base64: a third of the size, with no character that could end the element around it."""
    return b64encode(compress(text.encode(), LEVEL)).decode()


@cache
def read_plotly() -> str:
    """Plotly's JavaScript, from the installed wheel."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            "the HTML report needs plotly, which is not installed: pip install 'fedmerit[report]'"
        ) from None
    return called_at_once(str(get_plotlyjs()))


def called_at_once(script: str) -> str:
    """The script with its one large function, which is passed on to be called, in parentheses; else unchanged.

    Chromium parses a function twice, first to find its end, unless parentheses say that it is called at once. For
    plotly's 4.8 MB that takes a sixth of the time to the first chart.
    """
    begin, end = ", () => {\n", "}));"
    before, match, body = script.rstrip().partition(begin)
    if not match or len(before) > 1000 or not body.endswith(end):
        return script
    return f"{before}, (() => {{\n{body.removesuffix(end)}}})));\n"


def _join(names: Sequence[str]) -> str:
    """The scripts in one async scope, so that they can wait for data."""
    return '"use strict";\n(async () => {\n' + "\n".join(read_part(f"{name}.js") for name in names) + "})();\n"


def read_part(name: str) -> str:
    """A file that pages are made of."""
    return (files("fedmerit.report") / "page" / name).read_text(encoding="utf-8")
