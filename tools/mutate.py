"""Mutation score of core/: small faults planted one at a time, and whether the tests of that file notice.

    PYTHONPATH=src python tools/mutate.py --sample 200 --seed 1

Faults: `<` for `<=`, `+` for `-`, `and` for `or`, a number plus one, True for False, a condition turned round. Texts of
errors and documentation are left alone, and so is zip's `strict`. A mutant lives in a forked process; no file changes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import resource
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = {
    "backtracking": ("core/test_search.py",),
    "caps": ("core/test_caps.py", "laws/test_cap_laws.py"),
    "check": ("core/test_check.py",),
    "criteria": ("core/test_criteria.py", "golden/test_paper_examples.py"),
    "groups": ("core/test_groups.py",),
    "measures": ("core/test_measures.py",),
    "objectives": ("core/test_objectives.py",),
    "ranking": ("core/test_ranking.py",),
    "rewards": ("core/test_rewards.py", "fleet/test_rewarding.py"),
    "scores": ("golden/test_operator_vectors.py", "laws/test_prioritized_laws.py", "core/test_terms.py"),
    "search": ("core/test_search.py",),
    "selection": ("core/test_selection.py",),
    "weights": ("laws/test_weight_laws.py", "laws/test_zero_laws.py", "laws/test_note_laws.py", "core/test_scales.py"),
}
"""Files of core/ and the tests that speak of them, below tests/."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PATIENCE = 60
"""Seconds of the processor after which a mutant that hangs counts as noticed."""


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """The places where a fault can be planted; none inside errors, annotations and documentation."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or (
            isinstance(node, ast.keyword) and node.arg == "strict"
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            number = isinstance(child, ast.Constant) and isinstance(child.value, int | float)
            if type(child) in SWAPPED or number or isinstance(child, ast.IfExp | ast.If):
                yield child
            yield from sites(child)


def planted(tree: ast.Module, place: int) -> tuple[ast.Module, int, str]:
    """The tree with a fault in that place; its line, and the fault in words."""
    tree = copy.deepcopy(tree)
    parents = {id(child): parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    node = list(sites(tree))[place]
    line = getattr(node, "lineno", None) or parents[id(node)].lineno  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant):
        before, node.value = node.value, not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
        return tree, line, f"{before} -> {node.value}"
    if isinstance(node, ast.IfExp | ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return ast.fix_missing_locations(tree), line, "condition turned round"
    name, other = type(node).__name__, SWAPPED[type(node)]
    _replace(parents[id(node)], node, other())
    return tree, line, f"{name} -> {other.__name__}"


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            setattr(parent, field, [new if one is old else one for one in value])


class Mutated(SourceLoader, MetaPathFinder):
    """Imports one module from other source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """For that module alone."""
        return spec_from_loader(name, self, origin=str(self._path)) if name == self._name else None

    def get_data(self, path: str) -> bytes:
        """The other source."""
        return self._source.encode()

    def get_filename(self, fullname: str) -> str:
        """Where it would lie."""
        return str(self._path)


def noticed(module: str, source: str, tests: tuple[str, ...], *, quiet: bool = True) -> bool:
    """Whether the tests fail, or hang, with this source in place of the module's."""
    child = os.fork()
    if not child:
        import pytest

        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        sys.meta_path.insert(0, Mutated(f"fedmerit.core.{module}", ROOT / f"src/fedmerit/core/{module}.py", source))
        paths = [str(ROOT / "tests" / test) for test in tests]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *paths]))
    return os.waitpid(child, 0)[1] != 0


def main() -> None:
    """Plant a sample of all faults, tell those that nobody noticed, and the share that somebody did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    import scipy.stats  # noqa: F401 - what all tests import is imported once, before the forks
    import sklearn.metrics  # noqa: F401

    trees = {name: ast.parse((ROOT / f"src/fedmerit/core/{name}.py").read_text()) for name in TESTS}
    for name in TESTS:
        if noticed(name, ast.unparse(trees[name]), TESTS[name], quiet=False):
            raise SystemExit(f"the tests of {name} fail without a fault")
    places = [(name, place) for name, tree in trees.items() for place in range(len(list(sites(tree))))]
    drawn = sorted(random.Random(chosen.seed).sample(places, min(chosen.sample, len(places))))
    killed = 0
    for name, place in drawn:
        tree, line, fault = planted(trees[name], place)
        found = noticed(name, ast.unparse(tree), TESTS[name])
        killed += found
        if not found:
            print(f"survived: core/{name}.py:{line}: {fault}", flush=True)
    print(f"{killed} of {len(drawn)} mutants noticed ({killed / len(drawn):.0%}), drawn from {len(places)}")


if __name__ == "__main__":
    main()
