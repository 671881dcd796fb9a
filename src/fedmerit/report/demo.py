"""The demo: FedAvg against two priorities on embedded data, paired over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from scipy import stats

from fedmerit.config import Config, make_config
from fedmerit.folder import check_new
from fedmerit.report.html import write_report
from fedmerit.report.screen import list_table, progress
from fedmerit.run import Run, run_config

SEEDS = 5
TARGET, SHARE = 0.8, 0.9
BASE = {
    "task": {"data": "digits", "partition": "dirichlet", "alpha": 0.3, "clients": 20},
    "train": {"lr": 0.5, "epochs": 5, "batch": "full"},
}
ROWS: Mapping[str, Mapping[str, object]] = {
    "FedAvg": {"name": "fedavg"},
    "LD > DS": {"name": "prioritized", "priority": "LD > DS", "normalise": "max"},
    "DS > LD > MW": {"name": "prioritized", "priority": "DS > LD > MW", "normalise": "max"},
}


def run_demo(console: Console, out: Path, rounds: int, seed: int) -> None:
    """Each recipe with the same seeds: same clients' data, same first model, same draw of clients."""
    check_new(out)
    began = perf_counter()
    console.print(f"scikit-learn's digits, 20 unlike clients, {rounds} rounds, {SEEDS} paired seeds each")
    runs: dict[str, list[Run]] = {label: [] for label in ROWS}
    for label, recipe in ROWS.items():
        with progress(console, rounds * SEEDS, label, every=rounds) as on_record:
            for number in range(seed, seed + SEEDS):
                runs[label].append(run_config(_config(recipe, rounds, number), out / _folder(label, number), on_record))
    console.print(_table(runs))
    example = out / _folder("LD > DS", seed)
    console.print(f"why these weights: fedmerit explain {example} --round {rounds}", markup=False, soft_wrap=True)
    write_report([out / _folder(label, seed) for label in ROWS], out / "report.html")
    console.print(f"report: {out / 'report.html'}   ({perf_counter() - began:.0f} s)", markup=False)


def _config(recipe: Mapping[str, object], rounds: int, seed: int) -> Config:
    run = {"rounds": rounds, "fraction": 0.5, "seed": seed, "workers": 1}  # too small for workers to pay
    return make_config(BASE | {"recipe": dict(recipe), "run": run})


def _folder(label: str, seed: int) -> str:
    return f"{label.lower().replace(' > ', '-')}-seed{seed}"


def _table(runs: Mapping[str, Sequence[Run]]) -> object:
    baseline = np.array([run.accuracy for run in runs["FedAvg"]])
    rows = []
    for label, done in runs.items():
        accuracy = np.array([run.accuracy for run in done])
        worst = np.array([run.ledger.rounds()[-1]["p10"] for run in done])
        reached = [run.rounds_to_target(TARGET, SHARE) for run in done]
        difference = "baseline" if label == "FedAvg" else _difference(accuracy - baseline)
        rows.append((label, f"{accuracy.mean():.3f}", difference, f"{worst.mean():.3f}", _rounds(reached)))
    header = ("weights by", "accuracy", "against FedAvg, 95 % interval", "10th pct.", "rounds")
    title = f"means over {SEEDS} paired seeds; rounds until {SHARE:.0%} of the devices are above {TARGET:.0%}"
    return list_table(title, header, rows)


def _difference(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Mean paired difference with its t interval, and whether it stands out of the noise."""
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    verdict = "inside the noise" if abs(values.mean()) <= half else "better" if values.mean() > 0 else "worse"
    return f"{values.mean():+.3f} ± {half:.3f}, {verdict}"


def _rounds(reached: Sequence[int | None]) -> str:
    """Median where all seeds arrived, else how many did."""
    known = [value for value in reached if value is not None]
    if len(known) < len(reached):
        return f"{len(known)}/{len(reached)} arrived"
    return f"{np.median(known):g}"
