"""How bad does the worst attack get for each recipe, and what does each recipe cost where all clients are honest?

python -m reproductions.experiments.attack_grid --seeds 1 2 3 --workers 2 --out runs/grid.csv  # resumes
python -m reproductions.experiments.attack_grid --seeds 1 2 3 --out runs/grid.csv --table      # prints the table
python -m reproductions.experiments.attack_grid --attacks none --seeds 21 22 23 --out runs/price.csv
python -m reproductions.experiments.attack_grid --out runs/price.csv --price                   # all tasks in the file

20 clients, half of them per round, 25 rounds, 200 rows at the server, full batches, 5 local epochs. Each run is a line
of the CSV file; runs that the file has are skipped. Dirichlet partitions of other tasks than digits use at most 3,000
training rows. Two labels do not suffice for 20 clients at Dirichlet 0.1: "by group" splits by label, sex and race.
NATURAL tasks have their own clients, share of clients per round and learning rate.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedmerit import Task, federate
from fedmerit.config.attack import KINDS
from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import make_config
from fedmerit.core.host import predict_rows
from fedmerit.core.measures import worst_mean
from fedmerit.core.objectives import find_objective
from fedmerit.core.recipes import RECIPES
from fedmerit.core.seeds import derive, generator
from fedmerit.core.types import Matrix, Model, Samples, Vector
from fedmerit.study.attacks import measure_attack, weight_held
from fedmerit.study.statistics import paired
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task

ROUNDS, CLIENTS, FRACTION, MOST_ROWS = 25, 20, 0.5, 3000
ALONE, NONE = "server alone", "none"
MIXED_AND_TRIMMED = {"aggregator": {"name": "nnm", "of": {"name": "trimmed-mean", "share": 0.4}, "share": 0.4}}
ROWS: Mapping[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "ARC + NNM + trimmed mean": {
        "name": "fedavg",
        "criteria": ["Equal"],
        "stages": [{"name": "arc", "share": 0.4}],
        "server": MIXED_AND_TRIMMED,
    },
    "last answers": {"name": "last_answers"},
    **{name: {"name": name} for name in ("robust", "robust_server") if name in RECIPES},
    "alignment": {"name": "prioritized", "criteria": ["Alignment"], "stages": ["clip"]},
    "fedval, better half": {
        "name": "fedval",
        "criteria": ["validated:accuracy"],
        "score": {"name": "weighted-mean", "rank": "top"},
    },
    "fedval, better half by recall and gain": {
        "name": "fedval",
        "criteria": ["validated:worst_recall", {"name": "validated:loss", "marginal": True}],
        "score": {"name": "weighted-mean", "rank": "top"},
    },
    ALONE: {},
}
ATTACKS = (NONE, *(kind for kind in KINDS if kind != "sleeper"), "sleeper 10", "sleeper 15", "sleeper 20")
TASKS: Mapping[str, dict[str, Any]] = {
    "digits": {},
    "mnist": {"model": "mnist-mlp", "test": "slices"},
    "fashion-mnist": {"model": "mnist-mlp", "test": "slices"},
    "adult": {"model": "adult-mlp", "test": "slices"},
    "adult by group": {"data": "adult", "partition": "attribute-label", "attribute": "sex+race"},
    "compas by group": {"data": "compas", "partition": "attribute-label", "attribute": "sex+race"},
    "femnist": {"data": "reproductions.data:FEMNIST_NEGATIVES", "model": "femnist-mlp", "clients": 40},
    "heart-disease": {"clients": 4, "server": 50},
    "medpar": {"clients": 50, "server": 100},  # of 54 hospitals: some have a single patient, whom the server may get
}
NATURAL: Mapping[str, float] = {"femnist": 0.25, "heart-disease": 1.0, "medpar": 0.5}
"""Tasks with natural clients, with the share of the clients per round."""
RATES = {"fashion-mnist": 0.2, "compas by group": 0.2, "femnist": 0.3, "heart-disease": 0.1, "medpar": 0.1}
"""Learning rates other than 0.5. The first two are FedAvg's best of 0.1, 0.2 and 0.5 on seed 101.

With 0.5 FedAvg is unstable there: on Fashion-MNIST at Dirichlet 0.1 it reaches 0.20, with 0.2 it reaches 0.67.
"""
CELL = ("task", "alpha", "share", "draw", "row", "attack", "seed")
VALUES = (
    *("accuracy", "worst_recall", "erased_recall", "success", "decile", "weight", "dropped", "seconds"),
    *("label_decile", "rare_dropped"),
)


def settings(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run; sleepers have their first bad round in their name."""
    kind, _, first = cell["attack"].partition(" ")
    attack: dict[str, Any] = {"kind": kind, "share": cell["share"], "draw": cell["draw"]}
    attack |= {"from_round": int(first)} if first else {}
    attack |= {"facts": {"samples": 10.0}} if kind == "liar" else {}
    attack |= {"target": erased(cell["task"])} if kind == "eraser" else {}
    task = {"data": cell["task"], "clients": CLIENTS, "server": 200}
    natural, made = {"partition": "natural"}, {"partition": "dirichlet", "alpha": cell["alpha"]}
    task |= natural if cell["task"] in NATURAL else made
    task |= TASKS[cell["task"]] | ({} if kind == NONE else {"attack": attack})
    train = {"lr": RATES.get(cell["task"], 0.5), "epochs": 5, "batch": "full"}
    return {
        "task": task,
        "train": train,
        "recipe": ROWS[cell["row"]] or {"name": "fedavg"},
        "run": {"seed": cell["seed"]},
    }


def erased(task: str) -> int:
    """The class that an eraser erases: not the easiest."""
    return 3 if task in ("digits", "mnist", "fashion-mnist", "femnist") else 1


def smaller(task: Task, seed: int) -> Task:
    """The task with at most MOST_ROWS training rows: the same share of each client's rows, at least four."""
    train, random = task.federation.train, generator(seed, "grid")
    if len(train.y) <= MOST_ROWS:
        return task
    part, taken = MOST_ROWS / len(train.y), []
    for client, size in enumerate(train.sizes.tolist()):
        drawn = random.permutation(size)[: max(4, round(part * size))]
        taken.append(train.rows(client).start + np.sort(drawn))
    offsets, rows = np.cumsum([0, *map(len, taken)]), np.concatenate(taken)
    attributes = {name: column[rows] for name, column in train.attributes.items()}
    split = Split(train.x[rows], train.y[rows], offsets.astype(np.int64), attributes)
    return replace(task, federation=replace(task.federation, train=split))


def alone(task: Task, seed: int) -> Model:
    """A model that the server trains on its rows, as often as clients train in a run."""
    server = task.server()
    assert server.train is not None
    model = server.first_model(derive(seed, "model"))
    for index in range(ROUNDS):
        model = server.train(model, derive(seed, "alone", index))
    return model


def label_shares(task: Task) -> Matrix:
    """The share of each label (column) among the training rows of each client (row)."""
    train, classes = task.federation.train, task.federation.classes
    counts = [np.bincount(train.y[train.rows(client)], minlength=classes) for client in range(len(train.sizes))]
    return np.array(counts) / train.sizes[:, None]


def rarest(task: Task, clients: Sequence[int]) -> list[int]:
    """The half of the clients with the rarest labels.

    A client's rarity is the mean over its training rows of 1 / share of the row's label in the federation.
    """
    counts = np.bincount(task.federation.train.y, minlength=task.federation.classes)
    rarity = label_shares(task) @ (counts.sum() / np.maximum(counts, 1))
    return sorted(clients, key=lambda client: -rarity[client])[: len(clients) // 2]


def run(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Run a cell of the grid and return its line."""
    warnings.simplefilter("ignore")
    begun, config, seed = perf_counter(), make_config(settings(cell)), int(cell["seed"])
    task = make_task(config)
    if cell["task"] not in NATURAL:
        task = smaller(task, seed)
    test, held, dropped, rare_dropped = task.federation.test, math.nan, math.nan, math.nan
    clients = range(len(task.federation.names))
    honest = [client for client in clients if client not in task.attackers.members]
    if cell["row"] == ALONE:
        model = alone(task, seed)
    else:
        done = federate(
            task,
            recipe_of(config),
            rounds=ROUNDS,
            fraction=NATURAL.get(cell["task"], FRACTION),
            seed=seed,
            evaluate_every=ROUNDS,
            measure="accuracy",
        )
        model = done.model
        held, _, dropped = weight_held(done.ledger, task.attackers)
        rare = rarest(task, honest)
        remaining = dict.fromkeys((client for client in clients if client not in rare), 0)
        *_, rare_dropped = weight_held(done.ledger, replace(task.attackers, members=remaining))
    right = task.learner.predict(model, test.x) == test.y
    local = np.array([right[test.rows(client)].mean() if test.sizes[client] else math.nan for client in honest])
    rows_of, right_of = (np.bincount(test.y, weights, task.federation.classes) for weights in (None, right))
    # A client's test slice does not have its labels: the recalls are weighted by the labels of its training rows.
    by_label = label_shares(task)[honest] @ (right_of / np.maximum(rows_of, 1))
    predictions = predict_rows(task.learner, Samples(test.x, test.y, task.federation.classes), [model])
    measured = measure_attack(task, model)
    values = (
        *(
            float(right.mean()),
            measured["worst class"],
            float(find_objective(f"recall:{erased(cell['task'])}")(predictions)[0]),
        ),
        *(measured["success"], worst_mean(local), held, dropped, perf_counter() - begun),
        *(worst_mean(by_label), rare_dropped),
    )
    return {**cell, **{name: f"{value:.4f}" for name, value in zip(VALUES, values, strict=True)}}


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All cells in the order of the seeds; the server alone cannot be attacked."""
    about = {name: getattr(options, name) for name in ("task", "alpha", "share", "draw")}
    about |= {"alpha": "natural"} if options.task in NATURAL else {}
    for seed in options.seeds:
        for attack in options.attacks:
            for row in options.rows:
                if row != ALONE or attack == NONE:
                    yield {**about, "row": row, "attack": attack, "seed": seed}


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measure(options: argparse.Namespace) -> None:
    """Run the cells that the file does not have, and append a line for each."""
    lines = read(options.out)
    finished = {tuple(line[name] for name in CELL) for line in lines}
    missing = [cell for cell in cells(options) if tuple(str(cell[name]) for name in CELL) not in finished]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as file, multiprocessing.Pool(options.workers) as pool:
        columns = tuple(lines[0]) if lines else (*CELL, *VALUES)  # a file of an earlier version has fewer
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        if not finished:
            writer.writeheader()
        for line in pool.imap_unordered(run, missing):
            writer.writerow(line)
            file.flush()
            print(*line.values(), flush=True)


def table(options: argparse.Namespace) -> None:
    """Print means over the seeds: accuracy under the worst attack, and what accuracy does not show."""
    wanted = {tuple(str(cell[name]) for name in CELL) for cell in cells(options)}
    values: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in read(options.out):
        if tuple(line[name] for name in CELL) in wanted:
            values.setdefault((line["row"], line["attack"]), []).append(line)

    def mean(row: str, attack: str, name: str = "accuracy") -> float:
        lines = values.get((row, attack), [])
        return float(np.mean([float(line[name]) for line in lines])) if lines else math.nan

    def some(row: str, attacks: Sequence[str], name: str = "accuracy") -> str:
        return " / ".join("-" if math.isnan(one := mean(row, attack, name)) else f"{one:.3f}" for attack in attacks)

    print(
        "| row | no attack | worst accuracy | by | rule-aware | sleeper 10 / 15 / 20 | eraser: recall | trigger: "
        "backdoor / pooled / split | dropped, no attack | seeds |"
    )
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in options.rows:
        attacked = {
            attack: mean(row, attack) for attack in options.attacks if attack != NONE and (row, attack) in values
        }
        worst = min(attacked, key=lambda attack: attacked[attack], default="")
        accuracy = f"{attacked[worst]:.3f}" if worst else "-"
        sleepers = [attack for attack in ATTACKS if attack.startswith("sleeper")]
        erased, dropped = some(row, ["eraser"], "erased_recall"), some(row, [NONE], "dropped")
        triggers = some(row, ("backdoor", "pooled-backdoor", "split-trigger"), "success")
        print(
            f"| {row} | {some(row, [NONE])} | {accuracy} | {worst} | {some(row, ['rule-aware'])} "
            f"| {some(row, sleepers)} | {erased} | {triggers} | {dropped} "
            f"| {len(values.get((row, NONE), []))} |"
        )


def price(options: argparse.Namespace) -> None:
    """Print what each row costs where nobody attacks: paired differences to FedAvg, in points with 95 % interval."""
    runs: dict[tuple[str, str], dict[tuple[str, str], dict[str, str]]] = {}
    for line in read(options.out):
        if line["attack"] == NONE:
            runs.setdefault((line["task"], line["alpha"]), {})[line["row"], line["seed"]] = line
    print("| task | alpha | FedAvg | row | accuracy | worst decile | dropped | of rare labels | seeds |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for (task, alpha), lines in runs.items():
        decile = "decile" if task in NATURAL else "label_decile"
        for row in (row for row in ROWS if row != "FedAvg"):
            seeds = [seed for other, seed in lines if other == row and ("FedAvg", seed) in lines]
            if not seeds:
                continue

            def values(row: str, name: str, seeds: Sequence[str] = seeds, lines: Any = lines) -> Vector:
                return 100 * np.array([float(lines[row, seed][name]) for seed in seeds])

            base = f"{values('FedAvg', 'accuracy').mean():.1f} / {values('FedAvg', decile).mean():.1f}"
            differences = []
            for name in ("accuracy", decile):
                lost = paired(values(row, name) - values("FedAvg", name))
                differences.append(f"{lost.difference:+.2f} [{lost.low:+.2f}, {lost.high:+.2f}]")
            dropped = [f"{values(row, name).mean():.1f} %" for name in ("dropped", "rare_dropped")]
            print("|", " | ".join([task, alpha, base, row, *differences, *dropped, str(len(seeds))]), "|")


def main() -> None:
    """Run the grid, or print one of its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--task", choices=[*TASKS], default="digits")
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--draw", choices=["natural", "fixed"], default="natural")
    parser.add_argument("--rows", nargs="+", choices=[*ROWS], default=[*ROWS])
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=[*ATTACKS])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--price", action="store_true")
    options = parser.parse_args()
    (price if options.price else table if options.table else measure)(options)


if __name__ == "__main__":
    main()
