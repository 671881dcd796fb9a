"""Reproductions on a few rows of embedded data: the real rows and tables, in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reproductions.reproduce import find_reproduction
from reproductions.reproduce.reproduction import WHOLE, Reproduction, Setting
from reproductions.reproduce.runner import Reproduced, reproduce

DIGITS: dict[str, Any] = {
    "task": {"data": "digits", "partition": "iid", "clients": 10},
    "train": {"lr": 0.5, "epochs": 1},
}


def tiny(
    name: str, targets: tuple[float, ...], *, task: Any = None, run: Any = None, train: Any = None
) -> Reproduction:
    """The reproduction of that name with a scale `small` on the digits."""
    base = {
        "task": DIGITS["task"] | (task or {}),
        "train": DIGITS["train"] | (train or {}),
        "run": {"rounds": 3, "fraction": 0.3} | (run or {}),
    }
    return replace(find_reproduction(name), settings={"small": Setting({WHOLE: base}, 0.1, ("digits",), targets)})


def run(reproduction: Reproduction, out: Path, seeds: int = 2, rows: tuple[str, ...] = ()) -> Reproduced:
    return reproduce(reproduction, "small", reproduction.plans("small", seeds, rows), out, jobs=1)
