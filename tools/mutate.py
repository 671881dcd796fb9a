"""Mutation score of core/: small faults planted one at a time, and whether the tests of that file notice.

    PYTHONPATH=src python tools/mutate.py --sample 200 --seed 1
    PYTHONPATH=src python tools/mutate.py --sample 200 --seed 1 --start 80    # goes on after line 79
    PYTHONPATH=src python tools/mutate.py --files weights/scores,round --sample 50
    PYTHONPATH=src python tools/mutate.py --green    # after the whole suite passed: takes their word for it

Faults: `<` for `<=`, `+` for `-`, `and` for `or`, a number plus one, True for False, a condition turned round. Texts of
errors and documentation are left alone, and so are zip's `strict` and constants for speed alone. A mutant lives in a
forked process; no file changes. Its own examples are tried first, as tests/test_public_names.py does, then the files of
tests that speak of it: a fault that only some other test notices counts as missed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import doctest
import gc
import importlib
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE, TESTS = ROOT / "src/fedmerit/core", ROOT / "tests"
KINDS_OF_TESTS = ("core", "laws", "golden", "fleet", "engine", "config", "tasks")
"""Folders of tests that are searched; of tests that speak as much of a file, those in an earlier folder are run."""
MOST_TESTS = 5
"""Files of tests that are run for a file of core/, besides those that have its name."""
ALSO: dict[str, tuple[str, ...]] = {
    "criteria/table": ("core/test_criteria.py", "core/test_round.py", "core/test_round_spec.py"),
    "criteria/validated": ("engine/test_fedval.py", "core/test_fedval_reading.py"),
    "models/personal": ("engine/test_m2f.py", "fleet/test_personal_models.py", "golden/test_golden_rounds.py"),
    "models/shared": ("core/test_round.py", "fleet/test_controls.py", "golden/test_golden_rounds.py"),
    "search/search": ("core/test_round_spec.py", "engine/test_device_aware.py"),
    "server/server": ("core/test_optimizers.py", "core/test_aggregators.py", "engine/test_device_aware.py"),
    "state": ("core/test_groups.py", "core/test_round.py", "core/test_claims.py"),
    "types": ("core/test_groups.py", "core/test_rewards.py", "core/test_round.py"),
    "weights/scores": ("golden/test_operator_vectors.py", "laws/test_prioritized_laws.py", "core/test_ranking.py"),
    "weights/weigh": (
        *("core/test_normalise.py", "laws/test_weight_laws.py", "laws/test_zero_laws.py", "laws/test_note_laws.py"),
    ),
}
"""More tests of a file of core/, which reach it through other files."""

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
FOR_SPEED = {
    *("AT_A_TIME", "COLUMNS", "LEAST_COLUMNS", "PRODUCT", "RELEASE_BYTES", "ROWS", "SMALL_BYTES", "SORTED", "WIDE")
}
"""Constants of core/ that decide how much is worked on at a time and nothing else: another value is no fault."""
PATIENCE = 60
"""Seconds of the processor after which a mutant that hangs counts as noticed."""


def parsed(source: str) -> ast.Module:
    """The tree, with an operator of its own in every place: Python's parser has one `<` for all of them."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
            node.op = type(node.op)()
        elif isinstance(node, ast.Compare):
            node.ops = [type(operator)() for operator in node.ops]
    return tree


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """The places where a fault can be planted; none inside errors, annotations and documentation."""
    if isinstance(node, ast.Assign) and FOR_SPEED & {
        target.id for target in node.targets if isinstance(target, ast.Name)
    }:
        return
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


def core_files() -> list[str]:
    """The files of core/, as `scores` or `weights/scores`."""
    return sorted(path.relative_to(CORE).with_suffix("").as_posix() for path in CORE.rglob("[!_]*.py"))


def module_of(name: str) -> str:
    """The module of a file of core/."""
    return f"fedmerit.core.{name.replace('/', '.')}"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports with `from`, as pairs of a module and a name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@cache
def mentions() -> dict[str, Counter[str]]:
    """How many names each file of tests imports from each module; names of the package count for their module."""
    public = {name: module for module, name in imports(ROOT / "src/fedmerit/__init__.py")}
    files = [path for kind in KINDS_OF_TESTS for path in sorted((TESTS / kind).rglob("test_*.py"))]
    return {
        path.relative_to(TESTS).as_posix(): Counter(
            public.get(name, module) if module == "fedmerit" else module for module, name in imports(path)
        )
        for path in files
    }


def tests_of(name: str) -> tuple[str, ...]:
    """The tests of a file of core/: those with its name, and those that import the most names from it."""
    module, stem = module_of(name), Path(name).name
    named = {f"core/test_{stem}.py", f"core/{name.rpartition('/')[0]}/test_{stem}.py", f"laws/test_{stem}_laws.py"}
    called = [path for path in mentions() if path in named]
    counts = {path: found[module] for path, found in mentions().items() if found[module] and path not in called}
    most = sorted(counts, key=lambda path: -counts[path])[:MOST_TESTS]
    return tuple(dict.fromkeys((*called, *most, *ALSO.get(name, ()))))


def noticed(name: str, source: str, tests: tuple[str, ...]) -> bool:
    """Whether the tests fail, or hang, with this source in place of the file's."""
    module = module_of(name)
    child = os.fork()
    if not child:
        import pytest

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        sys.meta_path.insert(0, Mutated(module, CORE / f"{name}.py", source))
        if examples_fail(module):
            os._exit(1)
        paths = [str(TESTS / test) for test in tests]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *paths]))
    return os.waitpid(child, 0)[1] != 0


def examples_fail(module: str) -> bool:
    """Whether the module cannot be imported, or an example in its documentation does not hold."""
    try:
        return doctest.testmod(importlib.import_module(module)).failed > 0
    except Exception:
        return True


def main() -> None:
    """Plant a sample of all faults, tell those that nobody noticed, and the share that somebody did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", default=",".join(core_files()), help="files of core/, such as weights/scores")
    parser.add_argument("--start", type=int, default=0, help="leave out so many of the draw, which were tried before")
    parser.add_argument("--green", action="store_true", help="the tests are known to pass without a fault")
    chosen = parser.parse_args()
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HYPOTHESIS_PROFILE": "mutants"}
    import hypothesis.extra.numpy  # what all tests import is imported once, before the forks
    import numpy as np
    import pandas as pd  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import safetensors.numpy  # noqa: F401
    import scipy.stats
    import sklearn.metrics  # noqa: F401
    import torch
    import typer.core  # noqa: F401

    torch.set_num_threads(1)  # no threads that a fork would lose
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        max_examples=60,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        database=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # that it fails is enough, however long the case
    )
    gc.freeze()  # nor does a fork look through all of it for rubbish

    names = chosen.files.split(",")
    trees = {name: parsed((CORE / f"{name}.py").read_text()) for name in names}
    if untested := [name for name, tree in trees.items() if not tests_of(name) and any(sites(tree))]:
        raise SystemExit(f"no tests import from {', '.join(untested)}: name some in ALSO")
    if missing := [test for tests in ALSO.values() for test in tests if not (TESTS / test).is_file()]:
        raise SystemExit(f"ALSO names tests that do not exist: {', '.join(missing)}")
    places = [(name, place) for name, tree in trees.items() for place in range(len(list(sites(tree))))]
    random.Random(chosen.seed).shuffle(places)  # whatever was tried when it is stopped is a sample, too
    drawn = places[chosen.start :][: chosen.sample]
    found: list[bool] = []
    tried: set[str] = set()
    try:
        for number, (name, place) in enumerate(drawn, chosen.start):
            if not chosen.green and name not in tried and noticed(name, ast.unparse(trees[name]), tests_of(name)):
                raise SystemExit(f"the tests of {name} fail without a fault")
            tried.add(name)
            tree, line, fault = planted(trees[name], place)
            found.append(noticed(name, ast.unparse(tree), tests_of(name)))
            print(f"{number} {'noticed' if found[-1] else 'survived'}: core/{name}.py:{line}: {fault}", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    likely = scipy.stats.binomtest(sum(found), len(found)).proportion_ci(method="wilson")
    print(
        f"{sum(found)} of {len(found)} mutants noticed ({np.mean(found):.0%}, 95 % interval {likely.low:.0%} to "
        f"{likely.high:.0%}), drawn from {len(places)} in {len(names)} files"
    )


if __name__ == "__main__":
    main()
