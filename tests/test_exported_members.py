"""The public names are there, and naming them costs no heavy import."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import fedmerit
from fedmerit import cli

HEAVY = ["torch", "sklearn", "pandas", "flwr", "plotly", "matplotlib"]


def test_every_public_name_exists_and_is_named_once():
    assert all(hasattr(fedmerit, name) for name in fedmerit.__all__)
    assert len(set(fedmerit.__all__)) == len(fedmerit.__all__)


def test_what_is_public_is_listed():
    modules = {name for name in vars(fedmerit) if f"fedmerit.{name}" in sys.modules}
    tools = {"annotations", "importlib", "Any", "TYPE_CHECKING"}
    assert {name for name in vars(fedmerit) if not name.startswith("_")} - modules - tools <= set(fedmerit.__all__)


def test_naming_everything_public_imports_nothing_heavy():
    code = f"""
import json, sys
import pytest

import fedmerit
for name in fedmerit.__all__:
    if name != "TorchLearner":  # needs torch by its nature
        getattr(fedmerit, name)
import fedmerit.cli
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_command_fedmerit_is_the_command_line():
    (script,) = entry_points(group="console_scripts", name="fedmerit")
    assert script.load() is cli.main
    assert version("fedmerit")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("fedmerit", {"numpy", "pydantic", "scipy"}),
        ("fedmerit.cli", {"numpy", "pydantic", "scipy"}),
        ("fedmerit.core.weights.scores", {"pydantic", "rich", "safetensors"}),
        ("fedmerit.core.round", {"pydantic", "rich", "safetensors", "scipy.stats", "scipy.special"}),
        ("fedmerit.tasks.registry", {"torch", "sklearn", "pandas"}),
        ("fedmerit.flower.clientapp", {"torch", "sklearn", "pandas", "matplotlib"}),
    ],
)
def test_a_room_imports_only_what_it_needs(module: str, absent: set[str]):
    code = f"import sys, json, {module}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert absent & set(json.loads(done.stdout)) == set()
