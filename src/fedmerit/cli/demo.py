"""The demo: FedAvg against two priorities on embedded data, paired over seeds."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from rich.console import Console

from fedmerit.report.html import write_report
from fedmerit.store.run_folder import check_new
from fedmerit.study.output import progress
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import compare
from fedmerit.study.study_folder import members
from fedmerit.study.tables import reached_tables, saved_table, summary_table

SEEDS = 5
EXPLAINED = "LD > DS"


def demo_plan(rounds: int, seed: int) -> Plan:
    """scikit-learn's digits, spread over 20 unlike clients."""
    return make_plan(
        {
            "name": "demo",
            "seeds": list(range(seed, seed + SEEDS)),
            "targets": [0.8],
            "base": {
                "task": {"data": "digits", "partition": "dirichlet", "alpha": 0.3, "clients": 20},
                "train": {"lr": 0.5, "epochs": 5, "batch": "full"},
                "run": {"rounds": rounds, "fraction": 0.5, "workers": 1},  # too small for workers to pay
            },
            "row": [
                {"name": "FedAvg", "recipe": {"name": "fedavg"}},
                *(
                    {"name": order, "recipe": {"name": "prioritized", "priority": order, "normalise": "max"}}
                    for order in (EXPLAINED, "DS > LD > MW")
                ),
            ],
        }
    )


def run_demo(console: Console, out: Path, rounds: int, seed: int) -> None:
    """Each recipe with the same seeds: same clients' data, same first model, same draw of clients."""
    check_new(out)
    began = perf_counter()
    console.print(f"scikit-learn's digits, 20 unlike clients, {rounds} rounds, {SEEDS} paired seeds each")
    plan = demo_plan(rounds, seed)
    runs = members(plan, out)
    with progress(console, runs) as on_step:
        study = compare(plan, out, on_step=on_step)
    for table in (summary_table(study), *reached_tables(study), saved_table(study)):
        console.print(table.screen(), "")
    example = next(one.folder for one in runs if one.row == EXPLAINED)
    console.print(f"why these weights: fedmerit explain {example} --round {rounds}", markup=False, soft_wrap=True)
    write_report([out], out / "report.html")
    console.print(f"report: {out / 'report.html'}   ({perf_counter() - began:.0f} s)", markup=False)
