"""DAFL's experiment (SPEC A2, C): FEMNIST, single criteria, six orders, and the order adjusted in every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmerit.papers.reproduce.dafl_tables import FINAL, ORDERS, SINGLE, tell
from fedmerit.papers.reproduce.entry import WHOLE, Base, Reproduction, Setting

PAPER = "DAFL: Anelli, Deldjoo, Di Noia, Ferrara, Towards Effective Device-Aware Federated Learning"
CRITERIA = {"Ds": "DS", "Ld": "LD", "Md": "MW"}
SHARES = (0.2, 0.3, 0.4, 0.5, 0.7, 0.75)
TARGETS = (0.75, 0.8)


def _row(name: str, order: str) -> Mapping[str, Any]:
    """Normalised by the sum, and adjusted on the test rows, as in the paper."""
    recipe: dict[str, Any] = {"name": "prioritized", "normalise": "sum"}
    recipe["priority"] = [CRITERIA[criterion] for criterion in order.split(">")]
    if name.startswith(FINAL):
        recipe |= {"name": "device_aware", "search": {"adjust_on": "test"}}
    return {"name": name, "recipe": recipe}


ROWS = (
    *(_row(name, name) for name in (*SINGLE, *ORDERS)),
    *(_row(f"{FINAL} {order}", order) for order in ORDERS),
)


def _writers(model: str, train: Mapping[str, Any], rounds: int, **task: Any) -> dict[str, Base]:
    kept = {"data": "femnist", "partition": "natural", "model": model, "test": "slices"}
    run = {"rounds": rounds, "fraction": 0.1}
    return {WHOLE: {"task": kept | task, "train": {"batch": 10, **train}, "run": run}}


DAFL = Reproduction(
    name="dafl-table1",
    paper=PAPER,
    about="FEMNIST by writer: single criteria, six orders, orders adjusted online; rounds to target (Table 1)",
    rows=ROWS,
    settings={
        "small": Setting(
            _writers("femnist-mlp", {"lr": 0.01, "epochs": 5}, 40, clients=100),
            0.12,
            (
                "100 of the 300 writers of FEDMERIT_DATA, mostly digits, in place of 371 of all of FEMNIST",
                "a network 784-64-62 in place of two convolutions",
                "40 rounds in place of 1,000",
                "lower targets, which this network reaches in that time",
            ),
            (0.4, 0.5),
        ),
        "medium": Setting(
            _writers("femnist-cnn", {"lr": 0.02, "epochs": 2}, 60, clients=100),
            6,
            (
                "100 of the 300 writers of FEDMERIT_DATA, mostly digits, in place of 371 of all of FEMNIST",
                "2 epochs at 0.02 in place of 5 at 0.01",
                "60 rounds in place of 1,000",
            ),
            TARGETS,
        ),
        "paper": Setting(
            _writers("femnist-cnn", {"lr": 0.01, "epochs": 5}, 1000, source="hub", sample=0.1),
            60,
            ("writers are drawn by the seed: about 375, in the paper 371",),
            TARGETS,
        ),
    },
    tell=tell,
    shares=SHARES,
    see=("femnist.md",),
)
