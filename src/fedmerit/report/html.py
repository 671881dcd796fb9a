"""The HTML report: one or several runs in one file that opens offline and asks nothing of any network."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fedmerit.errors import ConfigError, FolderError
from fedmerit.new_file import check_new_file, write_new_file
from fedmerit.report.data import collect

PAGE = "report.html"
STYLES = ("colours.css", "report.css", "tables.css", "controls.css", "explain.css", "notes.css", "print.css")
SCRIPTS = (
    *("text", "data", "theme", "overview", "accuracy", "targets", "cells", "weights", "bars", "explain"),
    *("notes", "settings", "report"),
)
"""Joined in this order into one script: later files use what earlier ones define."""

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_report(folders: Sequence[Path], out: Path) -> None:
    """Write a new file; a reader finds all of it or nothing."""
    if not folders:
        raise FolderError("a report needs at least one run folder; got none: give folders made by `fedmerit run`")
    check_new_file(out, "another --out")
    plotly = _plotly()
    write_new_file(out, render(collect(folders), plotly), "another --out")


def render(data: Mapping[str, Any], plotly: str) -> str:
    """The page; its policy lets only our two scripts run and forbids every request."""
    scripts = [_inline(plotly), _inline(_join(SCRIPTS))]
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return Template(_read(PAGE)).substitute(
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {hashes}",
        style="\n".join(map(_read, STYLES)),
        plotly=scripts[0],
        script=scripts[1],
        data=embed(data),
    )


def embed(data: Mapping[str, Any]) -> str:
    """JSON in ASCII that cannot end the element it stands in, nor begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign, escape in ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def _plotly() -> str:
    """Plotly's JavaScript, from the installed wheel."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            "the HTML report needs plotly, which is not installed: pip install 'fedmerit[report]'"
        ) from None
    return str(get_plotlyjs())


def _inline(script: str) -> str:
    """A script as it may stand in a page; line ends as the browser will see them, or the hash would not fit."""
    return script.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _join(names: Sequence[str]) -> str:
    """Files that share one scope of their own."""
    return '"use strict";\n(() => {\n' + "\n".join(_read(f"{name}.js") for name in names) + "})();\n"


def _read(name: str) -> str:
    return (files("fedmerit.report") / "page" / name).read_text(encoding="utf-8")
