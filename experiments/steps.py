"""Does a step that clients judge save rounds? `adaptive` against five tuned servers, each task a study.

.venv/bin/python experiments/steps.py run                      # resumes what was stopped; FEDMERIT_DATA names the data
.venv/bin/python experiments/steps.py run --tasks digits,adult
.venv/bin/python experiments/steps.py tell                     # writes docs/results/steps.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit import Study, compare
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.statistics import paired

ROOT = Path(__file__).parents[1]
RUNS, PAGE = ROOT / "runs" / "steps", ROOT / "docs" / "results" / "steps.md"
SEEDS, TUNING_SEEDS = (1, 2, 3, 4, 5), (201, 202)
SHARES = (0.5, 0.7)

FEMNIST = {"data": "femnist", "partition": "natural", "clients": 100, "model": "femnist-mlp", "validation": 0.1}
PICTURES = {"model": "mnist-mlp", "clients": 100, "validation": 0.1}
TENTH = {"fraction": 0.1, "rounds": 40}
ONCE, FIVE = {"epochs": 1, "batch": 10}, {"epochs": 5, "batch": 10}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "femnist-lr-0.01": {"task": FEMNIST, "train": FIVE, "run": TENTH, "target": 0.5, "lr": [0.01]},
    "femnist": {"task": FEMNIST, "train": FIVE, "run": TENTH, "target": 0.6, "lr": [0.01, 0.03, 0.1]},
    "femnist-centred": {
        "task": FEMNIST | {"centre": "mean"},
        "train": FIVE,
        "run": TENTH,
        "target": 0.7,
        "lr": [0.01, 0.03, 0.1],
    },
    "mnist-shards": {
        "task": PICTURES | {"data": "mnist", "partition": "shards"},
        "train": ONCE,
        "run": TENTH,
        "target": 0.8,
        "lr": [0.02, 0.05, 0.1],
    },
    "fashion-dirichlet-0.1": {
        "task": PICTURES | {"data": "fashion-mnist", "partition": "dirichlet", "alpha": 0.1},
        "train": ONCE,
        "run": TENTH,
        "target": 0.7,
        "lr": [0.01, 0.03, 0.1],
    },
    "digits": {
        "task": {"data": "digits", "partition": "dirichlet", "alpha": 0.3, "clients": 20, "validation": 0.2},
        "train": FIVE,
        "run": {"fraction": 0.25, "rounds": 40},
        "target": 0.85,
        "lr": [0.03, 0.1, 0.3],
    },
    "adult": {
        "task": {"data": "adult", "partition": "dirichlet", "alpha": 0.3, "clients": 50, "validation": 0.1},
        "train": {"epochs": 1, "batch": 20},
        "run": {"fraction": 0.2, "rounds": 40},
        "target": 0.82,
        "lr": [0.01, 0.03, 0.1],
    },
}
CARRIES, LENGTHS, RATES = [0.5, 0.7, 0.9], [0.5, 1.0], [0.003, 0.01, 0.03]
ROWS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FedAvg": ({"name": "fedavg"}, {}),
    "null: FedAvg, other rounding": ({"name": "prioritized", "priority": "DS", "normalise": "max"}, {}),
    "FedAvgM": (
        {"name": "fedavg", "step": {"name": "momentum"}},
        {"recipe.step.carry": CARRIES, "recipe.step.length": LENGTHS},
    ),
    "FedAdam": ({"name": "fedavg", "step": {"name": "adam"}}, {"recipe.step.length": RATES}),
    "FedYogi": ({"name": "fedavg", "step": {"name": "yogi"}}, {"recipe.step.length": RATES}),
    "FedExP": ({"name": "fedavg", "step": {"name": "extrapolated"}}, {}),
    "adaptive": ({"name": "adaptive"}, {}),
}
BASELINES = ("FedAvg", "FedAvgM", "FedAdam", "FedYogi", "FedExP")


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    if options.what == "tell":
        PAGE.write_text("\n".join(page()) + "\n")
        print(PAGE)
        return
    for name in options.tasks.split(","):
        study = compare(plan_of(name), RUNS / name)
        print(name, study)


def plan_of(name: str) -> Plan:
    """A study of one task: every row tuned on its own grid, by rounds to the target for half of the devices."""
    task = TASKS[name]
    rows = [{"name": row, "recipe": recipe} | _train_and_grid(task["lr"], grid) for row, (recipe, grid) in ROWS.items()]
    return make_plan(
        {
            "name": name,
            "seeds": list(SEEDS),
            "targets": [task["target"]],
            "shares": list(SHARES),
            "base": {"task": task["task"], "train": task["train"], "run": task["run"]},
            "tune": {"seeds": list(TUNING_SEEDS), "target": task["target"], "share": SHARES[0]},
            "row": rows,
        }
    )


def _train_and_grid(lr: Sequence[float], grid: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rate of a row and what is tuned; a single rate is not."""
    if len(lr) > 1:
        return {"tune": {"train.lr": lr, **grid}}
    return {"train": {"lr": lr[0]}, **({"tune": dict(grid)} if grid else {})}


def page() -> Iterator[str]:
    """The page of all studies that are finished."""
    studies = {name: Study.load(RUNS / name) for name in TASKS if (RUNS / name / "study.toml").exists()}
    yield (PAGE.parent / "steps.head.md").read_text().rstrip()
    for name, study in studies.items():
        yield from ("", f"## {name}", "", *told(name, study))


def told(name: str, study: Study) -> Iterator[str]:
    """A table of one study, and how `adaptive` compares with the best tuned baseline."""
    target = TASKS[name]["target"]
    rounds = {(row, share): reached(study, row, target, share) for row in ROWS for share in SHARES}
    best = {share: min(BASELINES, key=lambda row: rounds[row, share].mean()) for share in SHARES}
    yield f"Rounds until 50 and 70 % of the devices are above {target:.0%}, mean over {len(SEEDS)} seeds; not reached"
    yield f"counts as {study.horizon + 1}. Costs are per round. Tuned on seeds {', '.join(map(str, TUNING_SEEDS))}."
    yield ""
    yield "| row | chosen | 50 % | 70 % | accuracy | exchanges | MB down | client tests |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in ROWS:
        best_point = study.tunings[row].best if row in study.tunings else None
        chosen = ", ".join(f"{key.split('.')[-1]} {value:g}" for key, value in (best_point or {}).items()) or "nothing"
        half, most = (f"{rounds[row, share].mean():.1f}" for share in SHARES)
        yield f"| {row} | {chosen} | {half} | {most} | {' | '.join(costs(study, row))} |"
    yield ""
    for share in SHARES:
        for other in dict.fromkeys(("FedAvg", "FedAvgM", best[share])):
            ours, theirs = rounds["adaptive", share], rounds[other, share]
            found = paired(theirs - ours)
            which = " (the best tuned baseline)" if other == best[share] else ""
            yield (
                f"- {share:.0%} of the devices, adaptive against {other}{which}: {theirs.mean() / ours.mean():.2f} x"
                f" fewer rounds; saved {found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
            )


def reached(study: Study, row: str, target: float, share: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rounds to target, by seed; one more than were played where it was not reached."""
    frame = study.reached
    lines = frame[(frame["row"] == row) & (frame["target"] == target) & (frame["share"] == share)]
    return np.asarray(lines.sort_values("seed")["rounds"].fillna(study.horizon + 1), dtype=np.float64)


def costs(study: Study, row: str) -> Sequence[str]:
    """Final accuracy; exchanges, megabytes sent out and tests by clients, per round."""
    runs = [study.run(row, seed) for seed in SEEDS]
    rounds = [one for run in runs for one in run.ledger.rounds()]
    mean = {key: np.mean([one[key] for one in rounds]) for key in ("exchanges", "bytes_down", "tests")}
    accuracy = np.mean([run.accuracy for run in runs])
    return (
        f"{accuracy:.4f}",
        f"{1 + mean['exchanges']:.1f}",
        f"{mean['bytes_down'] / 1e6:.1f}",
        f"{mean['tests']:.0f}",
    )


if __name__ == "__main__":
    main()
