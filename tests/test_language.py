"""Plain English: ten idioms that readers have to decode stay out of what users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
IDIOMS = re.compile(
    r"\bso many\b|\b(?:go|goes) by\b|\bas ever\b|\bset apart\b|\bmeanwhile\b|(?-i:\bis none\b)|\bmend(?:s|ed|ing)?\b"
    r"|\btold\b|\bbeside\b"
    r"|\bof (?:its|their|(?:a|the) \w+'s) own(?=[^\w ]|$| (?:and|are|has|have|in|is|need|that|to)\b)",
    re.IGNORECASE,
)


def strings_of(path: Path) -> Iterator[str]:
    """Texts of a module: docstrings and attributes' texts by their first lines, all other strings whole."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and "CREATE TABLE" not in node.value
        ):
            yield node.value.partition("\n")[0] if node in bare else node.value


def test_no_rare_idiom_is_in_what_users_read():
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    texts = {path: path.read_text(encoding="utf-8").splitlines() for path in pages}
    texts |= {path: list(strings_of(path)) for path in (ROOT / "src").rglob("*.py")}
    found = [f"{path.relative_to(ROOT)}: {text}" for path in texts for text in texts[path] if IDIOMS.search(text)]
    assert sorted(found) == []
