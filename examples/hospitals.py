"""Eight hospitals, one file and a torch module: compare three recipes over ten seeds, write a report, explain a weight.

    python examples/hospitals.py hospitals.parquet runs/hospitals

The file has one row per patient and the columns hospital, died and sex; the remaining columns are features.
"""

from __future__ import annotations

import sys

from safetensors.torch import load_file
from torch import nn

from fedmerit import compare
from fedmerit.study.plan import make_plan


def network(inputs: int, classes: int) -> nn.Module:
    """Any torch module; fedmerit passes the number of inputs that the columns become."""
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, classes))


def main(file: str, out: str, seeds: int = 10, rounds: int = 10) -> nn.Module:
    """Compare, write the report, explain one weight, and load the model as plain torch."""
    task = {"data": f"table:{file}", "client": "hospital", "label": "died", "attributes": ["sex"], "test": 0.25}
    task["model"] = "hospitals:network"
    base = {"task": task, "train": {"lr": 0.3}, "run": {"rounds": rounds, "fraction": 1.0}}
    rows = [{"name": order, "recipe": {"name": "prioritized", "criteria": order}} for order in ("CB > DS", "DS > CB")]
    study = compare(make_plan({"seeds": seeds, "base": base, "row": [{"name": "FedAvg"}, *rows]}), out)
    accuracy = study.compared[study.compared["measure"] == "accuracy"]
    print(accuracy[["row", "mean", "difference", "low", "high", "verdict"]].to_string(index=False))
    study.report(f"{out}/page.html")
    print(study.run("CB > DS", 1).why(client="hospital 3"))
    tensors = load_file(f"{study.run('CB > DS', 1).folder}/model.safetensors")
    model = network(tensors["0.weight"].shape[1], classes=2)
    model.load_state_dict(tensors)
    return model


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
