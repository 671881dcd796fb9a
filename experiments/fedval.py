"""FedVal on Adult: the poster's three questions, and how much the server's rows matter (SPEC A4, C).

    .venv/bin/python experiments/fedval.py      # minutes on 2 cores; writes docs/results/fedval.tables.md and figures

Five paired seeds: the same partition, planted clients, first model and draws in every row of a table.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedmerit import Recipe, Samples, Task, agnostic, fedavg, federate, fedval, load_task, qffl

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
CACHE = ROOT / "runs" / "fedval"
AUDIT = ("accuracy", "parity:sex", "opportunity:sex")
BOTH = ("accuracy", "opportunity:sex")
ROUNDS, CLIENTS = 20, 20

RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "FedAvg": fedavg,
    "q-FFL, q = 1": lambda: qffl(1.0),
    "agnostic, eta = 0.1": lambda: agnostic(0.1),
    "FedVal, unranked": lambda: fedval(*BOTH),
    "FedVal, Borda": lambda: fedval(*BOTH, rank="borda"),
    "FedVal, squared": lambda: fedval(*BOTH, rank="squared"),
    "FedVal, squared, rho 1": lambda: fedval(*BOTH, rank="squared", rho=1.0),
    "accuracy alone": lambda: fedval("accuracy", rank="squared", rho=1.0),
    "parity alone": lambda: fedval("parity:sex", rank="squared", rho=1.0),
    "opportunity alone": lambda: fedval("opportunity:sex", rank="squared", rho=1.0),
    "accuracy and parity": lambda: fedval("accuracy", "parity:sex", rank="squared", rho=1.0),
    "accuracy, parity, opportunity": lambda: fedval(*AUDIT, rank="squared", rho=1.0),
}
BASELINES = (
    "FedAvg",
    "q-FFL, q = 1",
    "agnostic, eta = 0.1",
    "FedVal, unranked",
    "FedVal, Borda",
    "FedVal, squared",
    "FedVal, squared, rho 1",
)
OBJECTIVES = (
    "FedAvg",
    "accuracy alone",
    "parity alone",
    "opportunity alone",
    "accuracy and parity",
    "FedVal, squared, rho 1",
    "accuracy, parity, opportunity",
)
RATIOS = ("FedAvg", "FedVal, unranked", "FedVal, squared", "FedVal, squared, rho 1")
SIZES = (100, 300, 1000, 5000)


def main() -> None:
    """Run what is not in the cache, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    jobs = [(job, seed) for seed in seeds for job in _jobs()]
    CACHE.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.processes) as pool:
        for number, _ in enumerate(pool.map(_cached, jobs), start=1):
            print(f"\r{number} of {len(jobs)}", end="", flush=True)
    print()
    tell(list(seeds))


Job = tuple[str, float, int, float]
"""A recipe's name, the share of poisoned clients, the server's rows, and the share of women taken out of these."""


def _jobs() -> list[Job]:
    jobs = [(name, 0.4, 1000, 0.0) for name in dict.fromkeys((*BASELINES, *OBJECTIVES))]
    jobs += [(name, share, 1000, 0.0) for name in RATIOS for share in (0.0, 0.2, 0.6)]
    best = RATIOS[-1]
    jobs += [(best, 0.4, size, 0.0) for size in SIZES]
    jobs += [(best, 0.4, 1000, gone) for gone in (0.5, 0.9)]
    return list(dict.fromkeys(jobs))


def _cached(work: tuple[Job, int]) -> dict[str, float]:
    job, seed = work
    path = CACHE / f"{'-'.join(map(str, job)).replace(' ', '_').replace(',', '')}-{seed}.json"
    if not path.exists():
        path.write_text(json.dumps(run(*job, seed)))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def run(name: str, poisoned: float, rows: int, gone: float, seed: int) -> dict[str, float]:
    """One run; measured on all test rows together, which the server never sees."""
    task = load_task(
        "adult",
        seed=seed,
        partition="dirichlet",
        alpha=1.0,
        clients=CLIENTS,
        server=rows,
        kinds={"poisoned": poisoned} if poisoned else {},
        train={"lr": 0.05, "epochs": 2, "batch": 32},
    )
    task = _biased(task, gone, seed)
    done = federate(task, RECIPES[name](), rounds=ROUNDS, fraction=1.0, seed=seed, evaluate_every=ROUNDS)
    test = task.federation.test
    predicted = task.learner.predict(done.model, test.x)
    women, positive = test.attributes["sex"] == 0, predicted == 1
    bad = {place for place, client in enumerate(task.federation.names) if "poisoned" in client}
    weights = [sum(one.weight for one in done.explain(r) if one.id in bad) for r in range(1, ROUNDS + 1)]
    return {
        "accuracy": float((predicted == test.y).mean()),
        "parity difference": float(abs(positive[women].mean() - positive[~women].mean())),
        "opportunity difference": float(
            abs(positive[women & (test.y == 1)].mean() - positive[~women & (test.y == 1)].mean())
        ),
        "weight of the poisoned": float(np.mean(weights)),
    }


def _biased(task: Task, gone: float, seed: int) -> Task:
    """The server's rows with that share of the women taken out."""
    server = task.federation.server
    if not gone or server is None:
        return task
    stay = (server.attributes["sex"] == 1) | (np.random.default_rng(seed).random(len(server)) >= gone)
    attributes = {name: column[stay] for name, column in server.attributes.items()}
    fewer = Samples(server.x[stay], server.y[stay], server.classes, attributes)
    return Task(replace(task.federation, server=fewer), task.learner)


MEASURES = ("accuracy", "parity difference", "opportunity difference", "weight of the poisoned")


def tell(seeds: Sequence[int]) -> None:
    """The tables and figures."""
    lines = _table(
        "Against baselines (40 % of the clients poisoned)",
        [(name, (name, 0.4, 1000, 0.0)) for name in BASELINES],
        seeds,
    )
    lines += _table(
        "Different objectives (40 % poisoned; squared ranks, rho 1)",
        [(name, (name, 0.4, 1000, 0.0)) for name in OBJECTIVES],
        seeds,
    )
    ratios = [(f"{share:.0%}: {name}", (name, share, 1000, 0.0)) for share in (0.0, 0.2, 0.4, 0.6) for name in RATIOS]
    lines += _table("Different client ratios", ratios, seeds, every=len(RATIOS))
    best = RATIOS[-1]
    rows = [(f"{size} rows", (best, 0.4, size, 0.0)) for size in SIZES]
    rows += [(f"1000 rows, {gone:.0%} of the women taken out", (best, 0.4, 1000, gone)) for gone in (0.5, 0.9)]
    lines += _table("The server's rows (40 % poisoned; FedVal, squared, rho 1)", rows, seeds, paired=False)
    (RESULTS / "fedval.tables.md").write_text("\n".join(lines) + "\n")
    _figures(seeds)
    print(RESULTS / "fedval.tables.md")


def _table(
    title: str, rows: Sequence[tuple[str, Job]], seeds: Sequence[int], every: int = 0, paired: bool = True
) -> list[str]:
    """Means with 95 % intervals, and the paired difference to the first row of a block of `every` rows."""
    lines = [f"## {title}", "", "| | " + " | ".join(MEASURES) + " |", "| --- " * (len(MEASURES) + 1) + "|"]
    values = [{m: np.array([_cached((job, seed))[m] for seed in seeds]) for m in MEASURES} for _, job in rows]
    for place, (name, _) in enumerate(rows):
        first = values[place - place % every] if every else values[0]
        cells = [_cell(values[place][m], first[m] if paired and values[place] is not first else None) for m in MEASURES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(found: Any, base: Any) -> str:
    half = stats.t.ppf(0.975, len(found) - 1) * stats.sem(found) if len(found) > 1 and np.ptp(found) else 0.0
    text = f"{found.mean():.3f} ± {half:.3f}"
    if base is None or not np.ptp(found - base):
        return text
    change = found - base
    noise = stats.t.ppf(0.975, len(change) - 1) * stats.sem(change)
    return f"{text} ({change.mean():+.3f}{'' if abs(change.mean()) > noise else ', in the noise'})"


def _figures(seeds: Sequence[int]) -> None:
    """One bar chart per question: accuracy and opportunity difference of each row."""
    blocks = {
        "baselines": [(name, (name, 0.4, 1000, 0.0)) for name in BASELINES],
        "objectives": [(name, (name, 0.4, 1000, 0.0)) for name in OBJECTIVES],
        "ratios": [(f"{s:.0%} {n}", (n, s, 1000, 0.0)) for s in (0.0, 0.2, 0.4, 0.6) for n in (RATIOS[0], RATIOS[-1])],
    }
    for name, rows in blocks.items():
        means = {
            label: [float(np.mean([_cached((job, seed))[m] for seed in seeds])) for m in MEASURES[:3]]
            for label, job in rows
        }
        (RESULTS / f"fedval-{name}.svg").write_text(_bars(means))


def _bars(rows: Mapping[str, Sequence[float]]) -> str:
    """Per row three bars: error, parity difference, opportunity difference; shorter is better."""
    height, parts = 30 + 52 * len(rows), []
    colours = {"error": "#555555", "parity difference": "#e08214", "opportunity difference": "#2166ac"}
    for place, (label, (accuracy, parity, opportunity)) in enumerate(rows.items()):
        top = 30 + 52 * place
        parts.append(f'<text x="200" y="{top + 26}" text-anchor="end">{label}</text>')
        for bar, (value, colour) in enumerate(zip((1 - accuracy, parity, opportunity), colours.values(), strict=True)):
            y = top + 14 * bar
            parts.append(f'<rect x="210" y="{y}" width="{value * 700:.1f}" height="12" fill="{colour}"/>')
            parts.append(f'<text x="{216 + value * 700:.1f}" y="{y + 10}" font-size="10">{value:.3f}</text>')
    legend = "".join(
        f'<text x="{210 + 140 * place}" y="18" fill="{colour}">{name}</text>'
        for place, (name, colour) in enumerate(colours.items())
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" font-size="12">'
    )
    return f'{head}<rect width="720" height="{height}" fill="white"/>{legend}{"".join(parts)}</svg>\n'


if __name__ == "__main__":
    main()
