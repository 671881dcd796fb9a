"""Methods of WeighBench: every module of this folder with a table `METHODS` takes part."""

from importlib import import_module
from pathlib import Path

from benchmarks.weighbench.method import Method


def all_methods() -> dict[str, Method]:
    """Methods by name, FedAvg first."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    modules = [import_module(f"{__name__}.{name}") for name in sorted(names, key=lambda name: name != "fedavg")]
    return {name: method for module in modules for name, method in module.METHODS.items()}
