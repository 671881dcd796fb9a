"""Does a step that clients judge save rounds? `adaptive` against five tuned servers, each task a study.

python -m reproductions.experiments.steps run                       # resumes what was stopped; needs FEDMERIT_DATA
python -m reproductions.experiments.steps run --tasks digits,adult
python -m reproductions.experiments.steps tell                      # prints the tables
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit import Study, compare
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.statistics import paired

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "steps"
SEEDS, TUNING_SEEDS = (1, 2, 3, 4, 5), (201, 202)
SHARES = (0.5, 0.7)

FEMNIST = {"data": "femnist", "partition": "natural", "clients": 100, "model": "femnist-mlp", "validation": 0.1}
PICTURES = {"model": "mnist-mlp", "clients": 100, "validation": 0.1}
TENTH = {"fraction": 0.1, "rounds": 40}
ONCE, FIVE = {"epochs": 1, "batch": 10}, {"epochs": 5, "batch": 10}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "femnist-lr-0.01": {"task": FEMNIST, "train": FIVE, "run": TENTH, "targets": (0.4, 0.5), "lr": [0.01]},
    "femnist-negatives": {
        "task": FEMNIST | {"data": "reproductions.data:FEMNIST_NEGATIVES"},
        "train": FIVE,
        "run": TENTH,
        "targets": (0.6, 0.7),
        "lr": [0.01, 0.03, 0.1],
    },
    "mnist-shards": {
        "task": PICTURES | {"data": "mnist", "partition": "shards"},
        "train": ONCE,
        "run": TENTH,
        "targets": (0.7, 0.8),
        "lr": [0.02, 0.05, 0.1],
    },
    "fashion-dirichlet-0.1": {
        "task": PICTURES | {"data": "fashion-mnist", "partition": "dirichlet", "alpha": 0.1},
        "train": ONCE,
        "run": TENTH,
        "targets": (0.6, 0.7),
        "lr": [0.01, 0.03, 0.1],
    },
    "digits": {
        "task": {"data": "digits", "partition": "dirichlet", "alpha": 0.3, "clients": 20, "validation": 0.2},
        "train": FIVE,
        "run": {"fraction": 0.25, "rounds": 40},
        "targets": (0.8, 0.85),
        "lr": [0.03, 0.1, 0.3],
    },
    "adult": {
        "task": {"data": "adult", "partition": "dirichlet", "alpha": 0.3, "clients": 50, "validation": 0.1},
        "train": {"epochs": 1, "batch": 20},
        "run": {"fraction": 0.2, "rounds": 40},
        "targets": (0.8, 0.82),
        "lr": [0.01, 0.03, 0.1],
    },
}
OPTIMIZER = "recipe.server.optimizer"
MOMENTA, SERVER_RATES, RATES = [0.5, 0.7, 0.9], [0.5, 1.0], [0.003, 0.01, 0.03]


def with_optimizer(name: str, **settings: Any) -> dict[str, Any]:
    """FedAvg with this server optimizer."""
    return {"name": "fedavg", "server": {"optimizer": {"name": name, **settings}}}


ROWS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FedAvg": ({"name": "fedavg"}, {}),
    "FedAvgM": (with_optimizer("momentum"), {f"{OPTIMIZER}.momentum": MOMENTA, f"{OPTIMIZER}.lr": SERVER_RATES}),
    "FedAdam": (with_optimizer("adam", correct=True), {f"{OPTIMIZER}.lr": RATES}),
    "FedYogi": (with_optimizer("yogi"), {f"{OPTIMIZER}.lr": RATES}),
    "FedExP": (with_optimizer("fedexp"), {}),
    "adaptive": ({"name": "adaptive"}, {}),
    "adaptive, no cap": ({"name": "adaptive", "limits": []}, {}),
}
Rounds: TypeAlias = NDArray[np.float64]
Column: TypeAlias = tuple[float, float]
"""A target accuracy, and the share of the devices that have to be above it."""
BASELINES = ("FedAvg", "FedAvgM", "FedAdam", "FedYogi", "FedExP")


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    if options.what == "tell":
        print("\n".join(page()))
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
            "targets": list(task["targets"]),
            "shares": list(SHARES),
            "base": {"task": task["task"], "train": task["train"], "run": task["run"]},
            "tune": {"seeds": list(TUNING_SEEDS), "target": task["targets"][-1], "share": SHARES[0]},
            "row": rows,
        }
    )


def _train_and_grid(lr: Sequence[float], grid: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rate of a row and what is tuned; a single rate is not."""
    if len(lr) > 1:
        return {"tune": {"train.lr": lr, **grid}}
    return {"train": {"lr": lr[0]}, **({"tune": dict(grid)} if grid else {})}


def page() -> Iterator[str]:
    """The tables of all finished studies."""
    studies = {name: Study.load(RUNS / name) for name in TASKS if (RUNS / name / "study.toml").exists()}
    for name, study in studies.items():
        if study.unfinished:
            continue
        yield from (f"## {name}", "", *told(name, study), "")


def told(name: str, study: Study) -> Iterator[str]:
    """A table of one study, and how `adaptive` compares with the best tuned baseline of each column."""
    columns = [(target, share) for target in TASKS[name]["targets"] for share in SHARES]
    rounds = {(row, column): reached(study, row, *column) for row in ROWS for column in columns}
    heads = [f"{share:.0%} above {target:.0%}" for target, share in columns]
    yield f"Rounds until a share of the devices is above an accuracy, mean over {len(SEEDS)} seeds; not reached counts"
    yield f"as {study.horizon + 1}. Costs are per round. Tuned on seeds {' and '.join(map(str, TUNING_SEEDS))}."
    yield ""
    yield f"| row | chosen | {' | '.join(heads)} | accuracy | exchanges | MB down | client tests |"
    yield f"| --- | --- {'| ---: ' * (len(heads) + 4)}|"
    for row in ROWS:
        best = study.tunings[row].best if row in study.tunings else None
        chosen = ", ".join(f"{key.split('.')[-1]} {value:g}" for key, value in (best or {}).items()) or "nothing"
        cells = [f"{rounds[row, column].mean():.1f}" for column in columns]
        yield f"| {row} | {chosen} | {' | '.join((*cells, *costs(study, row)))} |"
    yield ""
    yield "| adaptive against | " + " | ".join(heads) + " |"
    yield "| --- " * (len(heads) + 1) + "|"
    yield "| FedAvg | " + " | ".join(against(rounds, "FedAvg", column) for column in columns) + " |"
    yield "| FedAvgM | " + " | ".join(against(rounds, "FedAvgM", column) for column in columns) + " |"
    best_of = {column: min((rounds[row, column].mean(), row) for row in BASELINES)[1] for column in columns}
    cells = [f"{best_of[column]}: {against(rounds, best_of[column], column)}" for column in columns]
    yield "| the best tuned of five | " + " | ".join(cells) + " |"


def against(rounds: Mapping[tuple[str, Column], Rounds], other: str, column: Column) -> str:
    """How many times fewer rounds `adaptive` needs, and the rounds it saves with their interval."""
    ours, theirs = rounds["adaptive", column], rounds[other, column]
    saved = paired(theirs - ours)
    if not (theirs - ours).any():
        return "the same"
    times = theirs.mean() / ours.mean()
    return f"{times:.2f} x fewer; saved {saved.difference:+.1f} [{saved.low:+.1f}, {saved.high:+.1f}]"


def reached(study: Study, row: str, target: float, share: float) -> Rounds:
    """Rounds to target, by seed; one more than were played where it was not reached."""
    needed = [study.run(row, seed).rounds_to_target(target, share) for seed in SEEDS]
    return np.array([study.horizon + 1 if one is None else one for one in needed], dtype=np.float64)


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
