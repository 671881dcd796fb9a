"""The demo: two fifths of the clients learn wrong labels; what they weigh in FedAvg, FedVal and robust."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from rich.console import Console

from fedmerit.report.html import write_report
from fedmerit.store.run_folder import check_new
from fedmerit.study.output import progress
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import Study, compare
from fedmerit.study.study_folder import members
from fedmerit.study.tables import saved_table, summary_table
from fedmerit.study.text_table import TextTable

SEEDS = 7
ATTACKERS = 0.4
EXPLAINED = "FedVal top"


def demo_plan(rounds: int, seed: int) -> Plan:
    """scikit-learn's digits, spread over 20 unlike clients, of whom 8 have flipped labels; 200 rows for the server."""
    fedval = {"name": "fedval", "criteria": "validated:accuracy", "score": {"rank": "top"}}
    return make_plan(
        {
            "name": "demo",
            "seeds": list(range(seed, seed + SEEDS)),
            "targets": [0.8],
            "base": {
                "task": {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": 20}
                | {"server": 200, "attack": {"kind": "label-flip", "share": ATTACKERS}},
                "train": {"lr": 0.5, "epochs": 5, "batch": "full"},
                "run": {"rounds": rounds, "fraction": 0.5, "workers": 1},  # too small for workers to pay
            },
            "row": [
                {"name": "FedAvg", "recipe": "fedavg"},
                {"name": EXPLAINED, "recipe": fedval},
                {"name": "robust", "recipe": "robust"},
            ],
        }
    )


def run_demo(console: Console, out: Path, rounds: int, seed: int) -> None:
    """Each recipe with the same seeds: same clients' data, same attackers, same first model, same draw of clients."""
    check_new(out)
    began = perf_counter()
    console.print(
        f"scikit-learn's digits, 20 unlike clients, {ATTACKERS:.0%} of them with flipped labels; {rounds} rounds, "
        f"{SEEDS} paired seeds each"
    )
    plan = demo_plan(rounds, seed)
    runs = members(plan, out)
    with progress(console, runs) as on_step:
        study = compare(plan, out, on_step=on_step)
    for table in (held_table(study), summary_table(study), saved_table(study)):
        console.print(table.screen(), "")
    example = next(one.folder for one in runs if one.row == EXPLAINED)
    console.print(f"why these weights: fedmerit explain {example} --round {rounds}", markup=False, soft_wrap=True)
    write_report([out], out / "report.html")
    console.print(f"report: {out / 'report.html'}   ({perf_counter() - began:.0f} s)", markup=False)


def held_table(study: Study) -> TextTable:
    """What attackers hold of the weight in each row: means over rounds and seeds."""
    means = study.metrics.groupby("row")[["attack weight", "attack clients"]].mean()
    rows = [(row, *(f"{share:.1%}" for share in means.loc[row])) for row in study.rows]
    below = ("the server does not know the attackers; FedVal uses the server's 200 rows, robust the clients' updates",)
    return TextTable("attackers' share", ("row", "of the weight", "of the clients"), tuple(rows), below)
