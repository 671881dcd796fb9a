"""Tables of WeighBench from its cells: worth (who is worth more?) and weight (what does a weighting gain?)."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.weighbench.cells import HONEST, make_cell
from benchmarks.weighbench.measure import BEST, FINAL_SEEDS, NULL, ORACLE, TRUTH_SEEDS
from benchmarks.weighbench.methods import all_methods

FEDAVG = "rows (FedAvg)"


def load(out: Path) -> list[dict[str, Any]]:
    """Cells of a folder, each with its key."""
    cells = []
    for path in sorted(out.glob("*.json")):
        *name, clients, split = path.stem.split("-")
        cell = json.loads(path.read_text(encoding="utf-8"))
        cell |= {"task": name[0], "kind": "-".join(name[1:]), "clients": int(clients), "split": int(split)}
        values = np.array(cell["truth"]["shapley_accuracy"])
        halves = correlation(spearmanr, values[:2].mean(axis=0), values[2:].mean(axis=0))
        # The mean of two independent truths with correlation r has reliability 2 r / (1 + r): no method can
        # correlate more with it than the root of that.
        cell |= {"value": values.mean(axis=0), "ceiling": float(np.sqrt(max(2 * halves / (1 + halves), 0)))}
        cells.append(cell)
    return cells


def correlation(rule: Any, first: Any, second: Any) -> float:
    """Correlation; 0 where one side is constant."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    return float(rule(first, second)[0]) if np.ptp(first) > 0 and np.ptp(second) > 0 else 0.0


def interval(values: Sequence[float], of: Callable[..., Any] = np.mean) -> tuple[float, float, float]:
    """Statistic and its 95 % bootstrap interval over cells."""
    found = np.asarray(values, float)
    drawn = np.random.default_rng(0).integers(len(found), size=(2000, len(found)))
    low, high = np.quantile(of(found[drawn], axis=1), [0.025, 0.975])
    return float(of(found)), float(low), float(high)


def text(values: Sequence[float], digits: int = 2, sign: str = "", of: Callable[..., Any] = np.mean) -> str:
    """`0.83 [0.80, 0.86]`."""
    if not len(values):
        return "-"
    middle, low, high = interval(values, of)
    return f"{middle:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def worth_table(cells: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Correlation of each method's worth with the true value."""
    tasks = sorted({cell["task"] for cell in cells})
    honest, bad = ([cell for cell in cells if (cell["kind"] in HONEST) == is_honest] for is_honest in (True, False))
    lines = []
    for name in all_methods():
        kept = [cell for cell in honest if name in cell["methods"]]
        found = [correlation(spearmanr, cell["methods"][name]["worth"], cell["value"]) for cell in kept]
        line = [name, text(found)]
        for task in tasks:
            ours = [value for value, cell in zip(found, kept, strict=True) if cell["task"] == task]
            line.append(f"{np.mean(ours):.2f}" if ours else "-")
        line.append(_mean(correlation(pearsonr, cell["methods"][name]["worth"], cell["value"]) for cell in kept))
        others = [cell for cell in bad if name in cell["methods"]]
        line.append(text([correlation(spearmanr, cell["methods"][name]["worth"], cell["value"]) for cell in others]))
        lines.append((np.mean(found) if found else -1, line))
    best = ["*ceiling*", text([cell["ceiling"] for cell in honest])]
    best += [_mean(cell["ceiling"] for cell in honest if cell["task"] == task) for task in tasks]
    best += ["", text([cell["ceiling"] for cell in bad])]
    header = ["method", "honest clients", *tasks, "Pearson", "bad clients among them"]
    return header, [best, *(line for _, line in sorted(lines, key=lambda pair: -pair[0]))]


def weight_table(cells: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """What each weighting costs or gains, in points of accuracy on rows and seeds that no search saw."""
    lines = []
    for name in (*all_methods(), ORACLE, BEST, NULL):
        having = [cell for cell in cells if "accuracy" in cell["methods"].get(name, {})]
        honest = [cell for cell in having if cell["kind"] in HONEST]
        regrets = [_points(cell, BEST, name) for cell in honest]
        by_kind = {kind: [c for c in having if c["kind"] == kind] for kind in ("noisy", "poisoned", "free-riding")}
        slopes = [
            correlation(
                spearmanr,
                np.subtract(cell["methods"][name]["weights"], cell["methods"][FEDAVG]["weights"]),
                np.mean(cell["slopes"], axis=0),
            )
            for cell in honest
        ]
        harmful = [np.dot(cell["methods"][name]["weights"], cell["value"] < 0) for cell in having]
        with_harm = [share for share, cell in zip(harmful, having, strict=True) if (cell["value"] < 0).any()]
        lies = [cell["methods"][name]["lie"] for cell in having if "lie" in cell["methods"][name]]
        seconds = [cell["methods"][name].get("seconds", 0) for cell in having]
        method = all_methods().get(name)
        lines.append(
            [
                name,
                text([_points(cell, name, FEDAVG) for cell in honest], 2, "+"),
                text(regrets, 2, of=np.median),
                f"{np.mean(np.array(regrets) > 1):.0%}" if regrets else "-",
                *(text([_points(cell, name, FEDAVG) for cell in of_kind], 1, "+") for of_kind in by_kind.values()),
                text([_points(cell, name, FEDAVG, "worst") for cell in honest], 1, "+"),
                f"{np.mean(slopes):+.2f}" if name != FEDAVG and name != NULL else "-",
                f"{np.mean(with_harm):.1%}" if with_harm else "-",
                f"{np.median(lies):.1f}" if lies else "-",
                f"{np.mean(seconds):.2f}" if method else "-",
                method.sends if method else "",
            ]
        )
    header = [
        "method",
        "gain over FedAvg, honest",
        "regret, honest (median)",
        "regret > 1",
        "gain, noisy",
        "gain, poisoned",
    ]
    header += [
        "gain, free riding",
        "worst client",
        "slope",
        "weight of harmful",
        "one lie",
        "CPU s",
        "clients also send",
    ]
    return header, lines


def _points(cell: dict[str, Any], name: str, against: str, of: str = "accuracy") -> float:
    """Difference of two methods in points, mean over the paired seeds."""
    return 100 * float(np.mean(np.subtract(cell["methods"][name][of], cell["methods"][against][of])))


def _mean(values: Iterable[float]) -> str:
    found = list(values)
    return f"{np.mean(found):.2f}" if found else "-"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *lines))


def print_tables(out: Path) -> None:
    """Print both tables, and what the truth costs."""
    cells = load(out)
    if not cells:
        print("no cells yet")
        return
    print(f"{len(cells)} cells, {sum(cell['cpu_seconds'] for cell in cells) / 60:.0f} CPU minutes\n")
    print(markdown(*worth_table(cells)), end="\n\n")
    print(markdown(*weight_table(cells)), end="\n\n")
    header = ["task", "clients", "cells", "CPU s per seed", "reliability of the mean, lowest", "mean"]
    lines = []
    for task, clients in sorted({(cell["task"], cell["clients"]) for cell in cells}):
        own = [cell for cell in cells if (cell["task"], cell["clients"]) == (task, clients)]
        known = [cell["ceiling"] ** 2 for cell in own]
        seconds = np.mean([cell["truth"]["seconds"] for cell in own])
        lines.append(
            [task, str(clients), str(len(own)), f"{seconds:.1f}", f"{min(known):.2f}", f"{np.mean(known):.2f}"]
        )
    print(markdown(header, lines))


def write_csv(out: Path, folder: Path) -> None:
    """Write the truth, a line per client with a hash of the cell's rows, and the methods, a line per cell and method.

    Worth and weights of a method are numbers in the order of the clients, separated by blanks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "truth.csv").open("w", newline="", encoding="utf-8") as truth_file,
        (folder / "methods.csv").open("w", newline="", encoding="utf-8") as method_file,
    ):
        truth, methods = csv.writer(truth_file, lineterminator="\n"), csv.writer(method_file, lineterminator="\n")
        key = ["task", "kind", "clients", "split"]
        seeds = [f"shapley_accuracy_seed{seed}" for seed in TRUTH_SEEDS]
        truth.writerow([*key, "client", "rows", "bad", *seeds, "shapley_loss", "banzhaf_accuracy", "sha256"])
        methods.writerow([*key, "method", "worth", "weights", *(f"accuracy_seed{seed}" for seed in FINAL_SEEDS)])
        for cell in load(out):
            place = [cell[name] for name in key]
            values = {name: np.array(cell["truth"][name]) for name in cell["truth"] if name != "seconds"}
            digest = rows_hash(cell)
            for client, (rows, bad) in enumerate(zip(cell["rows"], cell["bad"], strict=True)):
                by_seed = [f"{value:.5f}" for value in values["shapley_accuracy"][:, client]]
                means = [f"{values[name][:, client].mean():.5f}" for name in ("shapley_loss", "banzhaf_accuracy")]
                truth.writerow([*place, client, int(rows), bad, *by_seed, *means, digest])
            for name, found in cell["methods"].items():
                worth, weights = (" ".join(f"{one:.4g}" for one in found.get(of, ())) for of in ("worth", "weights"))
                methods.writerow([*place, name, worth, weights, *(f"{one:.4f}" for one in found.get("accuracy", ()))])


def rows_hash(cell: dict[str, Any]) -> str:
    """Hash of the clients' training rows and labels, to see whether two machines have the same cell."""
    split = make_cell(cell["task"], cell["kind"], cell["split"], cell["clients"]).task.federation.train
    return hashlib.sha256(split.x.tobytes() + split.y.tobytes()).hexdigest()[:16]
