"""Every public name says what it is, with an example that runs; so do the examples of the whole core."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import fedmerit
from fedmerit.core.criteria.criterion import FunctionCriterion
from fedmerit.core.criteria.nearness import ModelNearness

PACKAGE = Path(fedmerit.__file__).parent
CORE = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in (PACKAGE / "core").rglob("[a-z]*.py")
)
VALUES = (FunctionCriterion, ModelNearness)
"""Classes of the criteria that are values."""


def explained_by(name: str) -> Any:
    """What has the docstring of a public name: itself, or the class of a criterion such as DS, which has `about`."""
    value = getattr(fedmerit, name)
    return type(value) if isinstance(value, VALUES) else value


def run_examples(examples: list[doctest.DocTest]) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    printed: list[str] = []
    for example in examples:
        runner.run(example, out=printed.append)
    assert "".join(printed) == ""


@pytest.mark.parametrize("name", fedmerit.__all__)
def test_a_public_name_has_a_summary_and_an_example(name: str) -> None:
    doc = inspect.getdoc(explained_by(name)) or ""
    assert not doc.partition("\n\n")[0].count("\n"), "the summary is one line, for the table in docs/api.md"
    assert ">>> " in doc
    value = getattr(fedmerit, name)
    if isinstance(value, VALUES):
        assert value.about


@pytest.mark.parametrize("name", sorted({explained_by(name).__name__ for name in fedmerit.__all__}))
def test_the_example_of_a_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {kind.__name__: kind for kind in VALUES}.get(name) or getattr(fedmerit, name)
    monkeypatch.chdir(tmp_path)  # examples write to runs/
    module = importlib.import_module(value.__module__)
    (example, *_) = doctest.DocTestFinder(recurse=False).find(value, name, module, dict(vars(module)))
    run_examples([example])


@pytest.mark.parametrize("name", CORE)
def test_the_examples_of_the_core_run(name: str) -> None:
    run_examples(doctest.DocTestFinder().find(importlib.import_module(f"fedmerit.{name}")))


@pytest.mark.parametrize("name", ["grid", "tuning", "fairness"])
def test_the_examples_of_tuning_run(name: str) -> None:
    run_examples(doctest.DocTestFinder().find(importlib.import_module(f"fedmerit.study.{name}")))
