"""Eight hospitals, one file and a torch module: three recipes x five seeds, a page, and why hospital 3 got its weight.

    python examples/hospitals.py hospitals.parquet runs/hospitals

The file has a row per patient and the columns hospital, died and sex; all other columns are learned from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import nn

from fedmerit import compare
from fedmerit.report.html import write_report
from fedmerit.study.plan import make_plan


def network(inputs: int, classes: int) -> nn.Module:
    """Any torch module; how many inputs the columns become is known when the file is read."""
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, classes))


def main(file: str, out: str, seeds: int = 5, rounds: int = 10) -> None:
    """Compare, write the page, and say why."""
    task = {"data": f"table:{file}", "client": "hospital", "label": "died", "attributes": ["sex"], "test": 0.25}
    task["model"] = "hospitals:network"
    base = {"task": task, "train": {"lr": 0.3}, "run": {"rounds": rounds, "fraction": 1.0}}
    merit = {"name": "prioritized", "normalise": "max"}
    balance = {"name": "balance first", "recipe": merit | {"priority": "CB > DS"}}
    size = {"name": "size first", "recipe": merit | {"priority": "DS > CB"}}
    study = compare(make_plan({"seeds": seeds, "base": base, "row": [{"name": "FedAvg"}, balance, size]}), out)
    accuracy = study.compared[study.compared["measure"] == "accuracy"]
    print(accuracy[["row", "mean", "difference", "low", "high", "verdict"]].to_string(index=False))
    write_report([Path(out)], Path(out) / "page.html")
    third = study.run("balance first", 1).explain(rounds)[2]
    print(f"hospital 3 has {third.weight:.1%} of round {rounds}: {dict(third.criteria)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
