"""Short representations for terminals, tables for notebooks, and escaping of untrusted text."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

MOST_TEXT = 500
"""Length to which text from outside is shortened, in characters."""


def printable(text: str, most: int = MOST_TEXT) -> str:
    r"""Shorten text to one line of at most `most` characters and escape the rest, such as terminal control codes.

    >>> printable("a" + chr(27) + "[31mred"), printable("x" * 900, 8)
    ('a\\x1b[31mred', 'xxxxx...')
    """
    start = text[: most + 1]
    shown = "".join(map(_escaped, start))
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def visible(text: str) -> str:
    """Escape control characters except line ends.

    >>> visible("one" + chr(27) + "[2J").count(chr(92)), visible("two") == "two"
    (1, True)
    """
    if text.isprintable():
        return text
    return "\n".join("".join(map(_escaped, line)) for line in text.split("\n"))


def shown(words: Sequence[str]) -> str:
    """List the first few words, and the number of the rest.

    >>> shown(["age", "sex"]), shown([*map(str, range(12))])
    ('age, sex', '0, 1, 2, 3, 4, 5, 6 and 5 more')
    """
    text = ", ".join(words) if len(words) <= 8 else f"{', '.join(words[:7])} and {len(words) - 7} more"
    return " ".join(text.split())  # a cell may have line breaks


def _escaped(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode()


def short_repr(part: Any) -> str:
    """Show a dataclass with the settings that differ from their defaults.

    >>> from fedmerit import DS, LD, prioritized
    >>> prioritized(LD, DS, normalise="sum")
    Recipe(criteria=(LD, DS), normalise='sum')
    """
    settings = ", ".join(f"{name}={value!r}" for name, value in chosen_settings(part))
    return f"{type(part).__name__}({settings})"


def settings_html(part: Any) -> str:
    """Show the same as an HTML table for notebooks, one row per setting."""
    rows = [(name, repr(value)) for name, value in chosen_settings(part)]
    return html_table(type(part).__name__, ("setting", "value"), rows)


def chosen_settings(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the fields that differ from their defaults."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is MISSING or value != field.default:
            yield field.name, value


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Build an HTML table for notebooks; every text is escaped."""
    head, body = _row(header, "th"), "".join(_row(cells, "td") for cells in rows)
    title = f"<caption>{html.escape(caption)}</caption>"
    return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
