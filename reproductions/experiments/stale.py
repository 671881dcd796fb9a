"""What becomes of late clients: dropped, used, used at a discount, or more asked than needed; accuracy and time.

python -m reproductions.experiments.stale  # prints the second table of docs/results/late.md

Digits over 20 unlike clients (Dirichlet, alpha 0.5), 10 needed in each of 20 rounds, ten paired seeds. A client answers
after 30 s, a delayed one 120 s later on average.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from scipy.stats import t as student

from fedmerit import run_config
from fedmerit.config.privacy import recipe_of
from fedmerit.config.run import make_collect
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.late import Delayed
from fedmerit.store.ledger import Ledger

CLIENTS, ROUNDS, SEEDS = 20, 20, range(100, 110)
WAIT: dict[str, Any] = {"min_fraction": 0.8, "seconds": 60.0}
FEDAVG: dict[str, Any] = {"name": "fedavg"}
DISCOUNTED = {"name": "prioritized", "criteria": ["DS", "Staleness"], "normalise": "max", "score": "product"}
RULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "waited for": (WAIT | {"min_fraction": 1.0}, FEDAVG),
    "dropped": (WAIT, FEDAVG),
    "used": (WAIT | {"late": "use"}, FEDAVG),
    "used, weighed by DS x Staleness": (WAIT | {"late": "use"}, DISCOUNTED),
    "dropped, `overselect = 1.3`": (WAIT | {"overselect": 1.3}, FEDAVG),
    "used x Staleness, `overselect = 1.3`": (WAIT | {"overselect": 1.3, "late": "use"}, DISCOUNTED),
}


def settings(seed: int, share: float, wait: dict[str, Any], recipe: dict[str, Any]) -> Config:
    """One run."""
    run: dict[str, Any] = {"rounds": ROUNDS, "fraction": 0.5, "seed": seed, "workers": 1, "evaluate_every": ROUNDS}
    run |= {"wait": wait, "delays": {"share": share, "seconds": 120.0, "base_seconds": 30.0}}
    task = {"partition": "dirichlet", "alpha": 0.5, "clients": CLIENTS, "model": "digits-linear"}
    return make_config({"task": task, "train": {"lr": 0.5, "epochs": 1, "batch": "full"}, "recipe": recipe, "run": run})


def seconds_of(ledger: Ledger, delays: Delayed, seed: int) -> float:
    """How long the rounds took in the simulation, by who was asked in each: not those still busy."""
    total = 0.0
    for index in range(1, ROUNDS + 1):
        away = {one.client: one.text for one in ledger.events(index) if one.kind == "left-out"}
        stale = {one.client for one in ledger.events(index) if one.kind == "stale"}
        came = {one.id for one in ledger.weights(index)} - stale
        asked = came | {client for client, why in away.items() if client is not None and "still busy" not in why}
        total += delays.ends(list(delays.arrivals(index, sorted(asked), seed).values()))
    return total


def play(seed: int, share: float, rule: str) -> tuple[float, float, float]:
    """Accuracy, minutes, updates per round."""
    wait, recipe = RULES[rule]
    config = settings(seed, share, wait, recipe)
    delays = make_collect(config.run, recipe_of(config))
    assert isinstance(delays, Delayed)  # every rule has delays
    with TemporaryDirectory() as folder:
        run = run_config(config, Path(folder) / "run")
        updates = mean(len(run.explain(index)) for index in range(1, ROUNDS + 1))
        return run.accuracy, seconds_of(run.ledger, delays, seed) / 60, updates


def main() -> None:
    """Print the table."""
    print("| delayed | late answers | accuracy | less those waited for, 95 % | updates per round | minutes |")
    print("| --- | --- | --- | --- | --- | --- |")
    for share in (0.2, 0.4):
        base: list[float] = []
        for rule in RULES:
            accuracies, minutes, updates = zip(*(play(seed, share, rule) for seed in SEEDS), strict=True)
            base = base or list(accuracies)
            gains = [one - other for one, other in zip(accuracies, base, strict=True)]
            half = student.ppf(0.975, len(gains) - 1) * stdev(gains) / sqrt(len(gains))
            paired = "-" if rule == "waited for" else f"{mean(gains):+.4f} ± {half:.4f}"
            row = f"{mean(accuracies):.4f} | {paired} | {mean(updates):.1f} | {mean(minutes):.0f}"
            print(f"| {share:.0%} | {rule} | {row} |", flush=True)


if __name__ == "__main__":
    main()
