"""M2F's two experiments on MNIST [M2F, sec. 5]: clients that differ in diligence, and in size and speed too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproductions.reproduce.m2f_figures import figures
from reproductions.reproduce.m2f_tables import ClientTable
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Scale, Setting

PAPER = "M2F: Deng, Chen, Chan, Ngai, M2F: Multi-centered Fairness-Aware Federated Learning Framework"
ROUNDS = 100
UNSTATED = "learning rate, batch, sigma and the cut of groups: the paper states none (docs/papers.md)"
DRAWN = "sizes and epochs of the clients are drawn anew for each seed, from the paper's ranges"


def _recipe(training: str) -> Mapping[str, Any]:
    return {
        "name": "m2f",
        "criteria": ["Participation", "SimulatedComputation", "DataRatio"],
        "normalise": "max",
        "models": {
            "grouping": {"over": "round", "cut": "gap"},
            "reward": {"share": "sum"},
            "training": training,
            "sigma": 0.05,
        },
    }


ROWS: tuple[Mapping[str, Any], ...] = (
    {"name": "keep", "recipe": _recipe("keep")},
    {"name": "reset", "recipe": _recipe("reset")},
    {"name": "fedavg", "recipe": {"name": "fedavg", "normalise": "sum"}},
)


def _base(model: str, size: int, lr: float, smallest: float, epochs: int | list[int]) -> dict[str, Base]:
    task = {"data": "mnist-two-groups", "alpha": 1.0, "size": [round(smallest * size), size], "model": model}
    schedule = {"rates": [[0.2, 6], [0.5, 6], [1.0, 8]], "epochs": epochs}
    run = {"rounds": ROUNDS, "schedule": schedule}
    return {WHOLE: {"task": task | {"validation": 0.1}, "train": {"lr": lr, "batch": 10}, "run": run}}


def _settings(smallest: float, epochs: int | list[int], *differs: str) -> dict[Scale, Setting]:
    fewer, few = (f"{rows} rows per client in place of 1,500" for rows in (300, 150))
    dense = "a network 784-64-10 in place of two convolutions"
    return {
        "small": Setting(_base("mnist-mlp", 150, 0.05, smallest, epochs), 0.5, (dense, few, UNSTATED, *differs)),
        "medium": Setting(_base("m2f-cnn", 300, 0.01, smallest, epochs), 20, (fewer, UNSTATED, *differs)),
        "paper": Setting(_base("m2f-cnn", 1500, 0.01, smallest, epochs), 100, (UNSTATED, *differs)),
    }


def _table(number: int, group: str) -> Reproduction:
    return Reproduction(
        name=f"m2f-table{number}",
        paper=PAPER,
        about=f"MNIST, 40 clients of unlike size, speed and diligence: six with the digits {group} (Table {number})",
        rows=ROWS,
        settings=_settings(0.5, [1, 3], DRAWN),
        make_result=ClientTable(number),
        study="m2f, second experiment",  # both tables come from the same runs: with the same --out they run once
    )


M2F = (
    _table(2, "1 to 5"),
    _table(3, "0 and 6 to 9"),
    Reproduction(
        name="m2f-figures",
        paper=PAPER,
        about="MNIST, 40 clients: curves of lazy, normal, diligent clients and FedAvg (Figures 2, 3)",
        rows=ROWS,
        settings=_settings(1.0, 3),
        make_result=figures,
    ),
)
