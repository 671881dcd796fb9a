"""Measure one cell: the true values of its clients, the best constant weighting, and every method against both."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.weighbench.cells import METHOD_SEED, ROUNDS, Array, Cell, make_cell
from benchmarks.weighbench.method import Method, positive
from benchmarks.weighbench.methods import all_methods
from fedmerit import Recipe, federate
from fedmerit.study.coalitions import ClientValues, coalitions_of, train_weightings

TRUTH_SEEDS = (1, 2, 3, 4)
"""Seeds 1 and 2 are judged on the first half of the held-out rows, 3 and 4 on the second: two independent truths."""
SEARCH_SEEDS, FINAL_SEEDS = (1, 2), (11, 12, 13, 14)
"""The best weighting is searched on the first half, and all weightings are compared on the second under new seeds."""
BEST, NULL, ORACLE = "best constant", "FedAvg, other seeds (null)", "true value"
Key = tuple[str, str, int, int]
"""Task, kind, clients, split."""
STEP = 0.1
"""Share of the weight that moves to one client where the slope is measured."""


def truth(cell: Cell) -> dict[str, Any]:
    """Shapley and Banzhaf values of all coalitions by accuracy and loss, and how reliable they are."""
    members = coalitions_of(cell.number)
    weights = members * cell.task.federation.train.sizes.astype(float)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1)
    begun = time.process_time()
    tables = {"accuracy": [], "loss": []}
    for seed in TRUTH_SEEDS:
        models, half = train_weightings(cell.task, weights, ROUNDS, seed), cell.held[seed > 2]
        tables["accuracy"].append(cell.accuracy(models, half))
        tables["loss"].append(-cell.loss(models, half))
    seconds = (time.process_time() - begun) / len(TRUTH_SEEDS)
    stacked = {name: np.array(by_seed) for name, by_seed in tables.items()}
    values = ClientValues(cell.task.federation.names, TRUTH_SEEDS, members, stacked)
    found = {f"shapley_{name}": values.shapley(name) for name in tables}
    return {"seconds": seconds, **found, **{f"banzhaf_{name}": values.banzhaf(name) for name in tables}}


def slopes(cell: Cell) -> Array:
    """Change of the held-out accuracy if a tenth of the weight moves to one client: (2 seeds, n)."""
    moved = (1 - STEP) * cell.shares + STEP * np.eye(cell.number)
    found = [
        cell.accuracy(train_weightings(cell.task, np.vstack([cell.shares, moved]), ROUNDS, seed), cell.held[0])
        for seed in SEARCH_SEEDS
    ]
    return np.array([(one[1:] - one[0]) / STEP for one in found])


def search(cell: Cell, known: Array) -> Array:
    """Best constant weighting by accuracy on the first half, with a little loss as the tie-break.

    Random and perturbed weightings, then two generations of mixtures of the best twelve; the mean of the best ten is
    returned, which is steadier than the best one.
    """
    random, number, rows = np.random.default_rng(cell.split), cell.number, cell.shares
    drawn = [random.dirichlet(np.ones(number)) for _ in range(30)]
    drawn += [random.dirichlet(rows * around + 0.05) for around in (8, 30) for _ in range(20)]
    drawn += [random.dirichlet(np.full(number, 4.0)) for _ in range(20)]
    drawn += [positive(np.where(np.arange(number) == left_out, 0, rows)) for left_out in range(number)]
    tried = np.vstack([known, drawn])
    scores = _score(cell, tried)
    for children in (40, 30):
        best = tried[np.argsort(-scores)[:12]]
        pairs = best[random.integers(len(best), size=(children, 2))]
        share = random.random((children, 1))
        mixed = (share * pairs[:, 0] + (1 - share) * pairs[:, 1]) * np.exp(random.normal(0, 0.35, (children, number)))
        new = np.vstack([mixed / mixed.sum(axis=1, keepdims=True), best.mean(axis=0)])
        tried, scores = np.vstack([tried, new]), np.append(scores, _score(cell, new))
    return tried[np.argsort(-scores)[:10]].mean(axis=0)


def _score(cell: Cell, weights: Array) -> Array:
    models = [train_weightings(cell.task, weights, ROUNDS, seed) for seed in SEARCH_SEEDS]
    return np.mean([cell.accuracy(m, cell.held[0]) - 0.05 * cell.loss(m, cell.held[0]) for m in models], axis=0)


def final_models(cell: Cell, weighting: Recipe | Any, seed: int) -> tuple[np.ndarray, Array]:
    """Train a weighting that is not constant under one seed: the model, and the mean weights."""
    if not isinstance(weighting, Recipe):
        return cell.loop(weighting(), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = federate(cell.task, weighting, rounds=ROUNDS, seed=seed, fraction=1.0, evaluate_every=ROUNDS)
    weights = np.zeros(cell.number)
    for index in range(1, ROUNDS + 1):
        columns = run.ledger.weight_columns(index)
        weights[list(columns.ids)] += np.asarray(columns.weights) / ROUNDS
    return run.model, weights


def weigh(cell: Cell, method: Method, seed: int = METHOD_SEED) -> Array:
    """(Mean) weights that a method gives."""
    if method.weighting is None:
        assert method.worth is not None
        return positive(method.worth(cell))
    chosen = method.weighting(cell)
    return np.asarray(chosen) if isinstance(chosen, np.ndarray) else final_models(cell, chosen, seed)[1]


def measure_cell(cell: Cell, methods: dict[str, Method], *, regret: bool = True, liars: bool = False) -> dict[str, Any]:
    """Everything that the tables need of one cell."""
    known = truth(cell)
    found: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        begun = time.process_time()
        weights = weigh(cell, method)
        worth = weights if method.worth is None else method.worth(cell)
        found[name] = {"worth": worth, "weights": weights, "seconds": time.process_time() - begun}
        if liars:
            liar = int(np.argsort(cell.rows)[cell.number // 2])
            lied = weigh(cell.lying(liar), method)[liar]
            found[name]["lie"] = lied / max(weights[liar], 1e-12) if lied > 1e-12 else 1.0
    result = {"truth": known, "methods": found, "rows": cell.rows, "bad": cell.bad}
    if not regret:
        return result
    result["slopes"] = slopes(cell)
    constant = {name: one["weights"] for name, one in found.items() if _is_constant(cell, methods[name])}
    best = search(cell, np.array(list(constant.values())))
    constant[ORACLE] = oracle(known)
    for seed in FINAL_SEEDS:
        models = train_weightings(cell.task, np.vstack([*constant.values(), best]), ROUNDS, seed)
        for name, model in zip([*constant, BEST], models, strict=True):
            _judge(cell, found.setdefault(name, {"weights": constant.get(name, best)}), model)
        for name in found:
            if name not in constant and name not in (BEST, NULL):
                _judge(cell, found[name], final_models(cell, methods[name].weighting(cell), seed)[0])
        again = train_weightings(cell.task, cell.shares[np.newaxis], ROUNDS, seed + 10)
        _judge(cell, found.setdefault(NULL, {"weights": cell.shares}), again[0])
    return result


def oracle(known: dict[str, Any]) -> Array:
    """Weights in proportion to the true values, of the seeds that were judged on the first half."""
    return positive(known["shapley_accuracy"][:2].mean(axis=0))


def _is_constant(cell: Cell, method: Method) -> bool:
    return method.weighting is None or isinstance(method.weighting(cell), np.ndarray)


def _judge(cell: Cell, into: dict[str, Any], model: np.ndarray) -> None:
    """Add accuracy on the second half, overall and of the client with the lowest expected accuracy.

    A client's expected accuracy is that of its label shares: sum over labels of share * recall.
    """
    rows = cell.held[1]
    right = cell.probabilities(model, rows)[0].argmax(axis=1) == rows.y
    recalls = np.array(
        [right[rows.y == label].mean() if (rows.y == label).any() else 0 for label in range(rows.classes)]
    )
    honest = cell.bad == 0
    shares = cell.labels[honest] / cell.labels[honest].sum(axis=1, keepdims=True)
    into.setdefault("accuracy", []).append(float(right.mean()))
    into.setdefault("worst", []).append(float((shares @ recalls).min()))


def path_of(out: Path, key: Key) -> Path:
    """File of a cell."""
    return out / ("-".join(map(str, key)) + ".json")


def measure(key: Key, out: Path, only: str) -> str:
    """Measure a cell and write its file."""
    torch.set_num_threads(1)  # the other core measures another cell
    begun, (name, kind, number, split) = time.process_time(), key
    methods = {name: method for name, method in all_methods().items() if only in name}
    result = measure_cell(make_cell(name, kind, split, number), methods, liars=split == 0)
    result["cpu_seconds"] = time.process_time() - begun
    part = path_of(out, key).with_suffix(".part")
    part.write_text(json.dumps(result, default=plain), encoding="utf-8")
    part.replace(path_of(out, key))
    return f"{name} {kind} {number} clients, split {split}: {result['cpu_seconds']:.0f} CPU s"


def plain(value: Any) -> Any:
    """Arrays as lists."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
