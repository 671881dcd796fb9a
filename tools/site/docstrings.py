"""Docstrings as they stand in the code, for the reference: examples and columns of names as Markdown has them."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w[\w, .*]{0,30}?)(?: {2,})(\S.*)$")


def as_markdown(text: str) -> str:
    """`name   what it is` becomes an item of a list, an example a block of code; brackets make no links."""
    return "\n\n".join(_paragraph(part) for part in text.split("\n\n"))


def _paragraph(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return f"```pycon\n{text.strip()}\n```"
    if text.startswith("    "):
        return text
    lines: list[str] = []
    inside = False
    for line in text.replace("][", "]\\[").splitlines():
        entry = ENTRY.match(line)
        if entry:
            lines += [] if inside else [""]
            lines.append(f"- `{entry[1].strip()}`: {entry[2]}")
            inside = True
        elif inside and line.startswith("  "):
            lines.append(f"    {line.strip()}")
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)


class Columns(griffe.Extension):
    """Rewrites each docstring before it is shown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
