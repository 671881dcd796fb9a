"""Size of the project in one table: statements, lines, keys, commands, words.

    python tools/balance.py

A statement is a node `ast.stmt` that is no docstring, so that explaining costs nothing. A key is a name that a user can
write in a configuration: those of the sections, the fields of [recipe], and the settings of parts, once for each slot.
Not counted are settings that a name has (validated:OBJECTIVE) and those of the private sum, which [privacy] makes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedmerit.cli.app import app
from fedmerit.config.recipe import HIDDEN, IN_THE_NAME
from fedmerit.config.schema import Config
from fedmerit.core.parts import PARTS, load_parts, settings
from fedmerit.core.recipe import Recipe

ROOT = Path(__file__).parents[1]
WITHIN = (("criterion", "of"), ("score", "score"))
"""Settings that a name has (reputation:CB), or that stand around the others (rank = "borda")."""


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is only a text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def statements(path: Path) -> int:
    """Statements of a file without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in ast.walk(tree))


def size(folder: str) -> str:
    """Statements, lines and files below a folder."""
    files = sorted((ROOT / folder).rglob("*.py"))
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    return f"{sum(map(statements, files)):,} statements, {lines:,} lines, {len(files)} files"


def section_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The keys of a section and of the sections in it."""
    for name, field in section.model_fields.items():
        inner = [one for one in _types(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        if name == "recipe":
            continue
        if not inner:
            yield f"{prefix}{name}"
        for one in inner:
            yield from section_keys(one, f"{prefix}{name}.")


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _types(one)


def part_keys() -> set[str]:
    """The fields of [recipe], and the settings of parts by slot."""
    load_parts()
    slots = {slot: table for slot, table in PARTS.items() if slot not in ("collect", "selection", "control")}
    found = {
        f"{slot}.{key}"
        for slot, table in slots.items()
        for name, kind in table.items()
        for key in settings(kind)
        if name not in HIDDEN and key not in IN_THE_NAME and (slot, key) not in WITHIN
    }
    return {f"recipe.{name}" for name in ("name", *Recipe.__dataclass_fields__)} | found


def words(*patterns: str) -> int:
    """Words of documents."""
    return sum(len(path.read_text(encoding="utf-8").split()) for pattern in patterns for path in ROOT.glob(pattern))


def main() -> None:
    """Print the table."""
    sections, parts = set(section_keys(Config)), part_keys()
    print("package           ", size("src/fedmerit"))
    print("core              ", size("src/fedmerit/core"))
    print("tests             ", size("tests"))
    print("reproductions     ", size("reproductions"))
    print("keys              ", f"{len(sections) + len(parts)} ({len(sections)} of sections, {len(parts)} of recipes)")
    print("commands          ", len(app.registered_commands) + len(app.registered_groups))
    print("words of README   ", f"{words('README.md'):,}")
    print("words of guides   ", f"{words('docs/*.md'):,}")
    print("words of results  ", f"{words('docs/results/*.md'):,}")


if __name__ == "__main__":
    main()
