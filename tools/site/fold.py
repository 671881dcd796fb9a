"""Fold long lines of Markdown to 120 characters: `python tools/site/fold.py docs/results/*.md`.

Paragraphs and items of lists with a longer line are folded anew; tables, headings, pictures and code stay as they are.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

WIDTH = 120
ITEM = re.compile(r"^ *(?:[-*+]|\d+[.)]) +")
FIXED = re.compile(r"^(?:\||#|!\[|<|```|    |---)")
"""How a line begins that is not folded."""
MARK = re.compile(r"^ *(?:[-*+#>|]|\d+[.)])(?: |$)")
"""How no folded line may go on: Markdown would take it for the beginning of something."""


def folded(text: str) -> str:
    """The same document in shorter lines."""
    lines: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*text.split("\n"), ""]:
        fenced ^= line.startswith("```")
        if not line.strip() or fenced or (FIXED.match(line) and not block) or ITEM.match(line):
            lines += _fold(block)
            block = []
        if not line.strip() or fenced or (FIXED.match(line) and not block):
            lines.append(line)
        else:
            block.append(line)
    return "\n".join(lines[:-1])


def _fold(block: list[str]) -> list[str]:
    """One paragraph or item; as it is where all of its lines are short enough."""
    if all(len(line) <= WIDTH for line in block):
        return block
    item = ITEM.match(block[0])
    indent = item[0] if item else re.match(" *", block[0])[0]  # type: ignore[index]
    words = " ".join([block[0][len(indent) :], *(line.strip() for line in block[1:])])
    for width in range(WIDTH, WIDTH // 2, -1):
        made = textwrap.wrap(
            words,
            width,
            initial_indent=indent,
            subsequent_indent=" " * len(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if not any(MARK.match(line) for line in made[1:]):
            return made
    return block


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(folded(path.read_text(encoding="utf-8")), encoding="utf-8")
