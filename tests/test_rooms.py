"""The rooms of the house: each imports only those that stand before it, also inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedmerit

SOURCE = Path(fedmerit.__file__).parent
ROOMS = (
    "errors",
    "core",
    "config",
    "store",
    "learn",
    "tasks",
    "fleet",
    "engine",
    "flower",
    "checks",
    "study",
    "report",
    "cli",
)
"""In the order of DESIGN: a room may import those to its left, and itself."""

CORE_NEEDS = {"annotated_types", "numpy", "scipy", "threadpoolctl", "fedmerit"}


def imported(text: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, at the top, inside functions or for types alone."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "fedmerit" else [module]
            yield from ((node.lineno, name) for name in names)


def wrong_imports(room: str, text: str) -> list[str]:
    """The imports of a file in a room that go to a room behind it, or out of the package to `reproductions`."""
    place = ROOMS.index(room)
    found = []
    for line, module in imported(text):
        parts = module.split(".")
        behind = len(parts) < 2 or parts[1] not in ROOMS or ROOMS.index(parts[1]) > place
        if parts[0] == "reproductions" or (parts[0] == "fedmerit" and behind):
            found.append(f"line {line}: {room} imports {module}")
    return found


def files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path not in (SOURCE / "__init__.py", SOURCE / "__main__.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_before_it(path: Path) -> None:
    assert wrong_imports(room_of(path), path.read_text(encoding="utf-8")) == []


def test_one_line_that_breaks_the_order_is_found() -> None:
    assert wrong_imports("core", "def late():\n    from fedmerit.store.ledger import Ledger\n") == [
        "line 2: core imports fedmerit.store.ledger"
    ]
    assert wrong_imports("study", "from fedmerit import report\n") == ["line 1: study imports fedmerit.report"]
    assert wrong_imports("cli", "import reproductions.published\n") == ["line 1: cli imports reproductions.published"]
    assert wrong_imports("fleet", "import fedmerit\n") == ["line 1: fleet imports fedmerit"]
    assert wrong_imports("engine", "from fedmerit.core.round import run_round\nimport fedmerit.engine.run\n") == []


def test_the_core_needs_numpy_and_scipy_only() -> None:
    import sys

    for path in (SOURCE / "core").rglob("*.py"):
        roots = {module.split(".")[0] for _, module in imported(path.read_text(encoding="utf-8"))}
        assert roots <= CORE_NEEDS | sys.stdlib_module_names, path


def test_nothing_but_rooms_lies_in_the_package() -> None:
    lying = {path.name for path in SOURCE.iterdir() if not path.name.startswith("__pycache__")}
    assert lying == {
        "__init__.py",
        "__main__.py",
        "py.typed",
        "errors.py",
        *(room for room in ROOMS if room != "errors"),
    }
