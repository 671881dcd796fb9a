"""Which normalisation and which operator? Four of each, on four tasks, ten seeds; FedAvg, a null row, equal weights.

python -m reproductions.experiments.operators run                       # resumes what was stopped; needs FEDMERIT_DATA
python -m reproductions.experiments.operators run --tasks digits,adult
python -m reproductions.experiments.operators tell                      # prints the tables
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit import Study, compare
from fedmerit.core.types import Vector
from fedmerit.store.run_folder import environment
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.text_table import MARKDOWN, TextTable
from reproductions.reproduce.cells import (
    CENSORED,
    LEGEND,
    Times,
    difference_cell,
    gain_cell,
    mean_cell,
    rounds_cell,
    times,
)
from reproductions.reproduce.output import ESCAPED

ROOT = Path(__file__).parents[2]
SEEDS, SHARE = 10, 0.5
NORMALISE = ("sum", "max", "minmax", "scale")
SHARES_OF_CRITERIA = [1 / 2, 1 / 3, 1 / 6]
"""How much each criterion counts for operators that do not take it from the order."""
OPERATORS = ("prioritized", "weighted mean", "OWA", "Choquet")
FEDAVG, NULL, EQUAL = "FedAvg", "null", "equal weights"

TASKS: Mapping[str, Mapping[str, Any]] = {
    "digits": {
        "task": {"data": "digits", "partition": "dirichlet", "alpha": 0.3, "clients": 20},
        "train": {"lr": 0.1, "epochs": 2, "batch": 10},
        "run": {"rounds": 20, "fraction": 0.5},
        "criteria": ("DS", "LD", "MW"),
        "scales": {"DS": 150, "LD": 10},
        "target": 0.8,
    },
    "mnist": {
        "task": {"data": "mnist", "partition": "dirichlet", "alpha": 0.3, "clients": 100, "model": "mnist-mlp"},
        "train": {"lr": 0.03, "epochs": 1, "batch": 20},
        "run": {"rounds": 10, "fraction": 0.1},
        "criteria": ("DS", "LD", "MW"),
        "scales": {"DS": 600, "LD": 10},
        "target": 0.7,
    },
    "femnist": {
        "task": {"data": "femnist", "partition": "natural", "clients": 100, "model": "femnist-mlp", "test": "slices"},
        "train": {"lr": 0.01, "epochs": 5, "batch": 10},
        "run": {"rounds": 15, "fraction": 0.1},
        "criteria": ("DS", "LD", "MW"),
        "scales": {"DS": 300, "LD": 62},
        "target": 0.3,
    },
    "adult": {
        "task": {"data": "adult", "partition": "dirichlet", "alpha": 0.3, "clients": 50, "model": "adult-mlp"},
        "train": {"lr": 0.03, "epochs": 1, "batch": 20},
        "run": {"rounds": 10, "fraction": 0.1},
        "criteria": ("DS", "CB", "MW"),
        "scales": {"DS": 3000},
        "target": 0.8,
    },
}


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "operators", help="where the studies lie")
    parser.add_argument("--jobs", type=int, default=None, help="runs at once")
    options = parser.parse_args()
    if options.what == "tell":
        print("\n".join(page(options.runs)))
        return
    for name in options.tasks.split(","):
        compare(plan_of(name), options.runs / name, jobs=options.jobs)
        print(name, "done", flush=True)


def plan_of(name: str) -> Plan:
    """A study of one task: FedAvg, each operator with each normalisation, a null row, and equal weights."""
    task = TASKS[name]
    rows: list[dict[str, Any]] = [{"name": FEDAVG, "recipe": {"name": "fedavg", "normalise": "sum"}}]
    for operator in OPERATORS:
        for normalise in NORMALISE:
            recipe: dict[str, Any] = {"name": "prioritized", "criteria": list(task["criteria"])}
            bounds = {"name": "scale", "bounds": task["scales"]}
            recipe |= {"normalise": bounds if normalise == "scale" else normalise}
            recipe |= {"score": score(operator, task["criteria"])}
            rows.append({"name": f"{operator}, {normalise}", "recipe": recipe})
    rows.append({"name": NULL, "recipe": {"name": "fedavg", "normalise": "sum"}, "null": True})
    alike = {
        "criteria": ["DS"],
        "normalise": {"name": "scale", "bounds": {"DS": 1}},
    }  # nobody counts for more than a row
    rows.append({"name": EQUAL, "recipe": {"name": "prioritized", **alike}})
    return make_plan(
        {
            "name": f"operators {name}",
            "seeds": SEEDS,
            "targets": [task["target"]],
            "shares": [SHARE],
            "base": {key: task[key] for key in ("task", "train", "run")},
            "row": rows,
        }
    )


def score(operator: str, priority: tuple[str, ...]) -> dict[str, Any]:
    """The operator as `recipe.score`; the Choquet integral also rewards the first two criteria together."""
    if operator == "prioritized":
        return {"name": "prioritized"}
    if operator == "weighted mean":
        return {"name": "weighted-mean", "weights": SHARES_OF_CRITERIA}
    if operator == "OWA":
        met = np.arange(len(priority) + 1) / len(priority)
        most = np.clip((met - 0.3) / 0.5, 0.0, 1.0)  # the quantifier "most" [OWA]
        return {"name": "owa", "weights": np.diff(most).tolist()}
    return {"name": "choquet", "shapley": SHARES_OF_CRITERIA, "interaction": [[0, 1, 0.2]]}


def page(runs: Path) -> Iterator[str]:
    """Runs and machine, then three tables for each finished task."""
    studies = {name: Study.load(runs / name) for name in TASKS if (runs / name / "study.toml").exists()}
    finished = {name: study for name, study in studies.items() if complete(study).any()}
    here = environment()
    versions = ", ".join(f"{name} {here[name]}" for name in ("fedmerit", "python", "numpy", "torch"))
    seconds = sum(float(study.metrics["seconds"].sum()) for study in finished.values())
    number = sum(len(study.rows) * int(complete(study).sum()) for study in finished.values())
    yield f"{number} runs; their rounds add up to {seconds / 60:.0f} minutes. Machine:"
    yield f"{here['cpu']} ({here['machine']}, {here['instructions']}), {here['cores']} cores, {versions}."
    yield from ("", "## Results", "", *(f"- {MARKDOWN.sub(ESCAPED, note)}" for note in (LEGEND, CENSORED)), "")
    for name, study in finished.items():
        yield f"### {name}"
        yield ""
        yield f"{settings(name, study)} Seeds: 1 to {complete(study).sum()}."
        yield ""
        yield rounds_table(name, study).markdown()
        yield accuracy_table(study).markdown()
        yield against_table(study).markdown()


def settings(name: str, study: Study) -> str:
    """What all rows of a task share, in a line."""
    task, train, run = (study.plan.base[key] for key in ("task", "train", "run"))
    shown = [f"{key} {value}" for part in (task, train, run) for key, value in part.items()]
    scales = ", ".join(f"{criterion} {bound}" for criterion, bound in TASKS[name]["scales"].items())
    return f"{' > '.join(TASKS[name]['criteria'])}; {', '.join(shown)}; bounds of `scale`: {scales}."


def rounds_table(name: str, study: Study) -> TextTable:
    """Rounds saved against FedAvg."""
    target = TASKS[name]["target"]
    base = rounds(study, FEDAVG, target)
    lines = [
        (operator, *(gain_cell(base, rounds(study, f"{operator}, {way}", target)) for way in NORMALISE))
        for operator in OPERATORS
    ]
    others = "; ".join(f"{row}: {gain_cell(base, rounds(study, row, target))}" for row in (NULL, EQUAL))
    below = (f"FedAvg: {rounds_cell(base)} rounds; {others}",)
    title = f"Rounds saved against FedAvg until {SHARE:.0%} of the devices are above {target:.0%}"
    return TextTable(title, ("operator", *NORMALISE), tuple(lines), below)


def accuracy_table(study: Study) -> TextTable:
    """Points of accuracy gained on FedAvg."""
    base = accuracy(study, FEDAVG)
    lines = [
        (operator, *(difference_cell(100 * (accuracy(study, f"{operator}, {way}") - base), 2) for way in NORMALISE))
        for operator in OPERATORS
    ]
    others = "; ".join(f"{row}: {difference_cell(100 * (accuracy(study, row) - base), 2)}" for row in (NULL, EQUAL))
    below = (f"FedAvg: {mean_cell(base, 4)}; {others}",)
    return TextTable(
        "Points of accuracy against FedAvg after the last round", ("operator", *NORMALISE), tuple(lines), below
    )


def against_table(study: Study) -> TextTable:
    """Is prioritized better than the others, as DAFL says? Points of accuracy, with the same normalisation."""
    lines = [
        (
            other,
            *(
                difference_cell(100 * (accuracy(study, f"prioritized, {way}") - accuracy(study, f"{other}, {way}")), 2)
                for way in NORMALISE
            ),
        )
        for other in OPERATORS[1:]
    ]
    return TextTable("Points of accuracy of prioritized against", ("operator", *NORMALISE), tuple(lines))


def complete(study: Study) -> NDArray[np.bool_]:
    """Which seeds all rows have finished: only these count, so that all cells are of the same ones."""
    unfinished = {run.seed for run in study.runs if str(run) in study.unfinished}
    return np.array([seed not in unfinished for seed in study.plan.seeds])


def rounds(study: Study, row: str, target: float) -> Times:
    """Rounds of a row to the target, by complete seed."""
    of_row, counts = times(study, row, target, (SHARE,)), complete(study)
    return replace(of_row, values=np.where(counts, of_row.values, np.nan), missed=of_row.missed & counts)


def accuracy(study: Study, row: str) -> Vector:
    """The accuracy of a row after its last round, by complete seed."""
    of_row = study.metrics[study.metrics["row"] == row].set_index("seed")["accuracy"]
    by_seed = of_row.reindex(list(study.plan.seeds)).to_numpy(dtype=np.float64)
    return np.where(complete(study), by_seed, np.nan)


if __name__ == "__main__":
    main()
