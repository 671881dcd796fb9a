"""Notebooks as pages: executed in a folder that is thrown away, cells as Markdown, what they print below them."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

SECONDS = 300
"""How long one cell may take."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def executed(path: Path) -> Any:
    """A notebook with its outputs; an error in a cell ends the build."""
    book = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        local = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})  # sockets, no network
        client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=place, config=local)
        client.execute()
    return book


def output_text(output: Any) -> str:
    """What a cell shows, as Markdown: text as it is, tables and pictures as HTML."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return f"<div class='output'>{re.sub(r'<[?!].*?>', '', data['image/svg+xml'], flags=re.S)}</div>"
    if "image/png" in data:
        raise ValueError("a picture needs words beside it: draw SVG, with a title")
    if "text/html" in data:
        whole = "\n".join(line for line in data["text/html"].splitlines() if line.strip())
        return f'<div class="output" tabindex="0">{re.sub("<style.*?</style>", "", whole, flags=re.S)}</div>'
    text = output.get("text") or data.get("text/plain", "")
    return f'<pre class="output" tabindex="0">{html.escape(COLOURS.sub("", text.rstrip()))}</pre>'


def to_markdown(book: Any) -> str:
    """The cells in order, each with what it shows."""
    parts = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [output_text(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def pages(paths: list[Path], execute: bool) -> list[str]:
    """The notebooks as Markdown, two executed at a time; without `execute` they show no outputs."""
    if not execute:
        return [to_markdown(nbformat.read(path, as_version=4)) for path in paths]
    with ThreadPoolExecutor(2) as pool:
        return [to_markdown(book) for book in pool.map(executed, paths)]
