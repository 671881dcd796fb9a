"""How values show themselves: short in a terminal, as a table in a notebook; text of strangers without tricks."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

MOST_TEXT = 500
"""Characters of what others wrote that are kept and shown."""


def printable(text: str, most: int = MOST_TEXT) -> str:
    r"""One line of at most so many printable characters; others, as those that steer a terminal, become escapes.

    >>> printable("a" + chr(27) + "[31mred"), printable("x" * 900, 8)
    ('a\\x1b[31mred', 'xxxxx...')
    """
    start = text[: most + 1]
    shown = "".join(map(_escaped, start))
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def visible(text: str) -> str:
    """The same text with control characters as escapes, but for the ends of lines.

    >>> visible("one" + chr(27) + "[2J").count(chr(92)), visible("two") == "two"
    (1, True)
    """
    if text.isprintable():
        return text
    return "\n".join("".join(map(_escaped, line)) for line in text.split("\n"))


def _escaped(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode()


def short_repr(part: Any) -> str:
    """A dataclass with the settings that are not its defaults.

    >>> from fedmerit import DS, LD, prioritized
    >>> prioritized(LD, DS, normalise="max")
    Recipe(criteria=(LD, DS), normalise='max')
    """
    settings = ", ".join(f"{name}={value!r}" for name, value in chosen_settings(part))
    return f"{type(part).__name__}({settings})"


def settings_html(part: Any) -> str:
    """The same for a notebook: a line per setting."""
    rows = [(name, repr(value)) for name, value in chosen_settings(part)]
    return html_table(type(part).__name__, ("setting", "value"), rows)


def chosen_settings(part: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the fields that are not at their defaults."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is MISSING or value != field.default:
            yield field.name, value


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a notebook; every text is escaped."""
    head, body = _row(header, "th"), "".join(_row(cells, "td") for cells in rows)
    title = f"<caption>{html.escape(caption)}</caption>"
    return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
