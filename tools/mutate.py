"""Mutation score of core/: small faults planted one at a time, and whether the tests of that file notice.

    PYTHONPATH=src python tools/mutate.py --sample 200 --seed 1
    PYTHONPATH=src python tools/mutate.py --sample 200 --seed 1 --start 80    # goes on after line 79
    PYTHONPATH=src python tools/mutate.py --files scores,weights --sample 50
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
from collections.abc import Iterator
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = {
    "adaptive_clip": ("core/test_adaptive_clip.py",),
    "aggregation": (
        *("laws/test_weight_laws.py", "laws/test_zero_laws.py", "core/test_search.py", "core/test_round.py"),
        *("engine/test_device_aware.py", "core/test_boldest.py", "core/test_private_search.py"),
    ),
    "aggregators": ("golden/test_robust_vectors.py", "core/test_aggregators.py"),
    "attacks": ("core/test_attacks.py", "tasks/test_attackers.py"),
    "attention": ("core/test_attention.py",),
    "backtracking": ("core/test_search.py",),
    "beside": ("engine/test_rivals.py",),
    "boldest": ("core/test_boldest.py",),
    "capacity": ("laws/test_choquet_laws.py", "golden/test_operator_vectors.py", "core/test_operator_errors.py"),
    "caps": ("core/test_caps.py", "laws/test_cap_laws.py"),
    "centring": ("core/test_centring.py", "core/test_private_centring.py"),
    "check": ("core/test_check.py", "core/test_own_facts.py"),
    "choices": ("engine/test_hypotheses.py",),
    "claims": ("core/test_claims.py",),
    "clip": ("core/test_clip.py",),
    "company": ("core/test_company.py",),
    "computation": ("core/test_criteria.py", "fleet/test_budget.py"),
    "consistency": ("core/test_consistency.py", "core/test_results.py"),
    "contribution": ("core/test_contribution.py",),
    "controls": ("laws/test_control_laws.py", "fleet/test_controls.py"),
    "criteria": ("core/test_criteria.py", "golden/test_paper_examples.py"),
    "facts": ("core/test_facts.py", "core/test_criteria.py"),
    "fleet": ("core/test_server.py", "core/test_round.py", "engine/test_other_targets.py", "engine/test_fedval.py"),
    "groups": ("core/test_groups.py", "core/test_group_splits.py", "core/test_attention.py"),
    "hypotheses": ("engine/test_hypotheses.py",),
    "lateness": ("core/test_lateness.py",),
    "learner": ("core/test_targets.py",),
    "lengths": ("core/test_clip.py", "core/test_robust_criteria.py"),
    "measures": ("core/test_measures.py",),
    "mixtures": ("core/test_boldest.py",),
    "objectives": ("core/test_objectives.py",),
    "observations": ("core/test_observations.py",),
    "own_facts": ("core/test_own_facts.py",),
    "panel": ("core/test_panel.py", "core/test_search.py", "core/test_own_search.py"),
    "privacy": ("core/test_privacy.py", "engine/test_private_runs.py"),
    "private_centring": ("core/test_private_centring.py",),
    "private_search": ("core/test_private_search.py",),
    "ranking": ("core/test_ranking.py",),
    "reasons": ("laws/test_reason_laws.py",),
    "recipe": ("core/test_recipe_rules.py", "core/test_scales.py", "core/test_own_search.py", "core/test_claims.py"),
    "recipe_json": ("core/test_recipe_json.py",),
    "recipes": (
        "core/test_recipe_rules.py",
        "config/test_recipes_by_name.py",
        "core/test_guarded.py",
        "core/test_fedval_reading.py",
    ),
    "results": ("core/test_results.py",),
    "reputation": ("core/test_reputation.py",),
    "rewards": ("core/test_rewards.py", "fleet/test_rewarding.py"),
    "robust_criteria": ("core/test_robust_criteria.py", "core/test_company.py"),
    "round": ("core/test_round.py", "core/test_caps.py", "core/test_results.py", "core/test_check.py"),
    "scales": ("core/test_scales.py",),
    "schedules": ("core/test_schedules.py", "laws/test_control_laws.py"),
    "scores": (
        "core/test_scores.py",
        "golden/test_operator_vectors.py",
        "laws/test_prioritized_laws.py",
        *("core/test_terms.py", "laws/test_owa_laws.py", "core/test_operator_errors.py"),
    ),
    "search": ("core/test_search.py", "core/test_own_search.py"),
    "seeds": ("core/test_seeds.py", "core/test_attacks.py", "tasks/test_partition.py"),
    "selection": ("core/test_selection.py",),
    "showing": ("core/test_showing.py",),
    "splits": ("core/test_group_splits.py",),
    "stale": ("engine/test_stale_updates.py",),
    "state": ("core/test_state.py", "core/test_round.py"),
    "steps": ("core/test_steps.py",),
    "suspects": ("core/test_suspects.py",),
    "system": ("core/test_system.py",),
    "targets": ("core/test_targets.py",),
    "types": ("core/test_types.py",),
    "updates": ("core/test_updates.py", "core/test_aggregators.py"),
    "validation": (
        "engine/test_fedval.py",
        "core/test_results.py",
        "core/test_contribution.py",
        "core/test_robust_criteria.py",
    ),
    "votes": ("laws/test_vote_laws.py",),
    "weights": (
        "core/test_weights.py",
        "laws/test_weight_laws.py",
        "laws/test_zero_laws.py",
        "laws/test_note_laws.py",
        "core/test_scales.py",
    ),
}
"""Files of core/ and the tests that speak of them, below tests/."""
OF_ALL = ("core/test_defaults.py", "core/test_bounds.py", "core/test_constants.py")
"""Tests that speak of parts of many files."""

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


def noticed(module: str, source: str, tests: tuple[str, ...]) -> bool:
    """Whether the tests fail, or hang, with this source in place of the module's."""
    child = os.fork()
    if not child:
        import pytest

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        sys.meta_path.insert(0, Mutated(f"fedmerit.core.{module}", ROOT / f"src/fedmerit/core/{module}.py", source))
        if examples_fail(f"fedmerit.core.{module}"):
            os._exit(1)
        paths = [str(ROOT / "tests" / test) for test in (*tests, *OF_ALL)]
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
    parser.add_argument("--files", default=",".join(TESTS), help="files of core/, without .py")
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
    if alone := {path.stem for path in (ROOT / "src/fedmerit/core").glob("[!_]*.py")} ^ TESTS.keys():
        raise SystemExit(f"TESTS and core/ differ in {', '.join(sorted(alone))}: name the tests of every file")
    trees = {name: parsed((ROOT / f"src/fedmerit/core/{name}.py").read_text()) for name in names}
    places = [(name, place) for name, tree in trees.items() for place in range(len(list(sites(tree))))]
    random.Random(chosen.seed).shuffle(places)  # whatever was tried when it is stopped is a sample, too
    drawn = places[chosen.start :][: chosen.sample]
    found: list[bool] = []
    tried: set[str] = set()
    try:
        for number, (name, place) in enumerate(drawn, chosen.start):
            if not chosen.green and name not in tried and noticed(name, ast.unparse(trees[name]), TESTS[name]):
                raise SystemExit(f"the tests of {name} fail without a fault")
            tried.add(name)
            tree, line, fault = planted(trees[name], place)
            found.append(noticed(name, ast.unparse(tree), TESTS[name]))
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
