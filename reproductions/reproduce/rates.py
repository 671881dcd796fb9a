"""The papers' learning rate: a grid on the baseline alone, by rounds to target; all rows then take the best rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmerit.errors import ConfigError, RunFailed
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import Study, compare
from fedmerit.study.tuning import Tuned
from fedmerit.study.workers import OnStep
from reproductions.reproduce.reproduction import WHOLE, Reproduction

RATE = "train.lr"
ROW = "rate"
SEEDS = 3
LONGEST = 100
"""Rounds after which a run of the search ends, as in the authors' scripts."""


def rate_plan(reproduction: Reproduction, scale: str) -> Plan:
    """The grid on the baseline; what brings half of the devices above the last target first wins [PMCFL, sec. 5.3]."""
    setting = reproduction.setting(scale)
    if not setting.rates:
        raise ConfigError(
            f"{reproduction.name} has no search for a learning rate: its paper tells of none; leave out --tune-rate"
        )
    base: dict[str, Any] = {key: dict(part) for key, part in setting.bases[WHOLE].items()}
    del base["train"]["lr"]
    base["run"]["rounds"] = min(setting.rounds, LONGEST)
    base["recipe"] = reproduction.rows[0]["recipe"]
    row = {"name": ROW, "tune": {RATE: list(setting.rates)}}
    return make_plan({"seeds": 1, "base": base, "row": [row], "tune": {"seeds": SEEDS, "target": setting.targets[-1]}})


def rate_folder(out: Path) -> Path:
    """Where the search lies: beside the folder of the reproduction, which is a study's own."""
    return out.with_name(f"{out.name}-rate")


def read_rate(out: Path) -> Tuned:
    """The search beside the folder of a reproduction, as far as it got."""
    return Study.load(rate_folder(out)).tunings[ROW]


def search_rate(plan: Plan, out: Path, *, jobs: int | None = None, on_step: OnStep | None = None) -> Tuned:
    """Run what the search still lacks; it ends with a best rate, or says which run failed."""
    study = compare(plan, rate_folder(out), jobs=jobs, on_step=on_step)
    for run, reason in study.failed.items():
        raise RunFailed(f"the search for a learning rate is not decided: {run} failed: {reason}")
    return study.tunings[ROW]
