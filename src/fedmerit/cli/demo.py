"""`fedmerit demo`: the weight and the damage of clients with flipped labels, under three recipes."""

from pathlib import Path

from rich.console import Console

from fedmerit.report.html import write_report
from fedmerit.store.run_folder import check_new
from fedmerit.study.output import progress
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import Study, compare
from fedmerit.study.study_folder import members
from fedmerit.study.tables import saved_table, summary_table
from fedmerit.study.text_table import TextTable

SEEDS = 10
ATTACKERS = 0.4
OURS = "ours (FedVal)"


def demo_plan(rounds: int, seed: int) -> Plan:
    """Plan scikit-learn's digits on 20 non-IID clients, 8 of them with flipped labels, and 200 rows for the server."""
    fedval = {"name": "fedval", "criteria": "validated:accuracy", "score": {"rank": "top"}}
    return make_plan(
        {
            "name": f"{ATTACKERS:.0%} of the clients have flipped labels",
            "seeds": list(range(seed, seed + SEEDS)),
            "targets": [0.8],
            "base": {
                "task": {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": 20}
                | {"server": 200, "attack": {"kind": "label-flip", "share": ATTACKERS}},
                "train": {"lr": 0.3, "epochs": 5},
                "run": {"rounds": rounds, "fraction": 0.5, "workers": 1},  # the task is too small for more
            },
            "row": [
                {"name": "FedAvg", "recipe": "fedavg"},
                {"name": OURS, "recipe": fedval},
                {"name": "ours (robust)", "recipe": "robust"},
            ],
        }
    )


def run_demo(console: Console, out: Path, rounds: int, seed: int) -> None:
    """Run each recipe with the same seeds: the same data, attackers, first model and selected clients."""
    check_new(out)
    console.print(
        f"scikit-learn's digits on 20 non-IID clients, {ATTACKERS:.0%} of them with flipped labels: "
        f"{rounds} rounds, {SEEDS} paired seeds"
    )
    plan = demo_plan(rounds, seed)
    with progress(console, members(plan, out)) as on_step:
        study = compare(plan, out, on_step=on_step)
    for table in (weight_table(study), summary_table(study), saved_table(study)):
        console.print(table.screen(), "")
    page = out / "report.html"
    write_report([out], page)
    means = study.metrics.groupby("row")[["attack weight", "accuracy"]].mean()
    (fedavg, accuracy), (ours, better) = means.loc["FedAvg"], means.loc[OURS]
    for line in (
        f"The attackers had {fedavg:.0%} of the weight under FedAvg and {ours:.0%} under {OURS}: "
        f"accuracy {accuracy:.3f} and {better:.3f} on test rows that no recipe saw.",
        f"Open {page} to see every weight and its reason.",
        "Your own data: fedmerit init my.toml --data FILE.csv, then fedmerit run my.toml --out runs/mine",
    ):
        console.print(line, markup=False, soft_wrap=True)


def weight_table(study: Study) -> TextTable:
    """Tabulate the attackers' share of the weight in each row: means over rounds and seeds."""
    means = study.metrics.groupby("row")[["attack weight", "attack clients"]].mean()
    rows = [(row, *(f"{share:.1%}" for share in means.loc[row])) for row in study.rows]
    below = (
        "The server does not know the attackers: ours (FedVal) scores models on 200 rows of the server, ours (robust) "
        "compares updates.",
    )
    return TextTable("attackers' share", ("row", "of the weight", "of the clients"), tuple(rows), below)
