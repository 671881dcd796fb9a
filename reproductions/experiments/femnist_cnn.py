"""DAFL's CNN on FEMNIST, 300 writers: what saves rounds, negatives, the step or the weights?

FEDMERIT_DATA=... python -m reproductions.experiments.femnist_cnn run  # resumes; a round takes half a minute
python -m reproductions.experiments.femnist_cnn tell                   # prints the tables

A run ends when half of the devices are above 75 %, or at its row's horizon. `tune` runs the learning rates of rows
with negatives for a few rounds with a seed that is not reported on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmerit import resume, run_config
from fedmerit.config.schema import make_config
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.state import Record
from fedmerit.store.run_folder import open_ledger

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "femnist-cnn"
TARGET, SHARE = 0.75, 0.5
SEEDS, TUNING_SEED, TUNING_ROUNDS, RATES = (11, 12), 201, 6, (0.03, 0.1, 0.3)
TASK = {"data": "femnist", "partition": "natural", "clients": 300, "model": "femnist-cnn", "validation": 0.1}
TRAIN = {"lr": 0.01, "epochs": 5, "batch": 10}
FEDAVG, ADAPTIVE = {"name": "fedavg"}, {"name": "adaptive"}
MOMENTUM = {"name": "fedavg", "server": {"optimizer": {"name": "momentum", "momentum": 0.7, "lr": 1.0}}}
Row = tuple[dict[str, Any], bool, float, int]
"""Recipe, whether images are inverted to a mean near 0, learning rate, horizon in rounds."""
ROWS: Mapping[str, Row] = {
    "FedAvg, negatives": (FEDAVG, True, 0.3, 40),
    "adaptive, negatives": (ADAPTIVE, True, 0.3, 40),
    "adaptive": (ADAPTIVE, False, 0.01, 45),
    "FedAvgM": (MOMENTUM, False, 0.01, 45),
    "FedAvg": (FEDAVG, False, 0.01, 60),
}


class Reached(Exception):
    """Enough of the devices are above the target."""


def main() -> None:
    """Run, tune or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tune", "tell"))
    parser.add_argument("--rows", help="some rows' names, with ; between them")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    options = parser.parse_args()
    if options.what == "tell":
        print("\n".join(page()))
    elif options.what == "tune":
        for name, recipe in (("FedAvg", FEDAVG), ("adaptive", ADAPTIVE)):
            for rate in RATES:
                play((recipe, True, rate, TUNING_ROUNDS), TUNING_SEED, tuning_folder(name, rate), None)
    else:
        for seed in map(int, options.seeds.split(",")):
            for name in options.rows.split(";") if options.rows else ROWS:
                play(ROWS[name], seed, folder_of(name, seed), stop_at_target)


def tuning_folder(name: str, rate: float) -> Path:
    """Where the run that tries a learning rate lies."""
    return RUNS / f"tune-{name}-{rate}"


def folder_of(name: str, seed: int) -> Path:
    """Where a row's run lies."""
    return RUNS / f"{name.replace(', ', '-').replace(' > ', '-')}-{seed}"


def play(row: Row, seed: int, folder: Path, stop: Callable[[Record], None] | None) -> None:
    """Begin or resume one run; nothing where it ended or reached its target."""
    recipe, negatives, rate, rounds = row
    config = make_config(
        {
            "task": TASK | ({"data": "reproductions.data:FEMNIST_NEGATIVES"} if negatives else {}),
            "train": TRAIN | {"lr": rate},
            "recipe": recipe,
            "run": {"rounds": rounds, "fraction": 0.1, "seed": seed, "workers": 2},
        }
    )
    begun = (folder / "ledger.db").exists()
    if begun and stop and reached(folder):
        return
    print(folder.name, flush=True)

    def watch(record: Record) -> None:
        print(f"  round {record.index}  {record.evaluation and record.evaluation.accuracy}", flush=True)
        if stop:
            stop(record)

    try:
        resume(folder, config, watch) if begun else run_config(config, folder, watch)
    except Reached:
        print("  reached", flush=True)


def reached(folder: Path) -> int | None:
    """The round in which enough devices were above the target; None where there is none yet."""
    with open_ledger(folder) as ledger:
        return rounds_to_target(*ledger.local_accuracy(), TARGET, SHARE)


def stop_at_target(record: Record) -> None:
    """Raise once enough devices are above the target."""
    if record.evaluation and rounds_to_target([record.index], record.evaluation.local[None], TARGET, SHARE):
        raise Reached


def page() -> Iterator[str]:
    """Rounds to the target of every row and seed, and the tuning."""
    yield from ("## Rounds", "")
    yield f"Rounds until {SHARE:.0%} of the 300 devices are above {TARGET:.0%}; > n: not within n rounds."
    yield from ("", f"| row | lr | {' | '.join(f'seed {seed}' for seed in SEEDS)} | accuracy there |")
    yield f"| --- | ---: {'| ---: ' * (len(SEEDS) + 1)}|"
    for name, (_, _, rate, _) in ROWS.items():
        folders = [folder_of(name, seed) for seed in SEEDS]
        cells, accuracies = zip(*map(told, folders), strict=True)
        yield f"| {name} | {rate:g} | {' | '.join(cells)} | {', '.join(accuracies)} |"
    yield from ("", "## Tuning", "")
    yield f"Negatives, seed {TUNING_SEED}, accuracy after {TUNING_ROUNDS} rounds."
    yield from ("", f"| row | {' | '.join(f'lr {rate:g}' for rate in RATES)} |", f"| --- {'| ---: ' * len(RATES)}|")
    for name in ("FedAvg", "adaptive"):
        yield f"| {name} | {' | '.join(told(tuning_folder(name, rate))[1] for rate in RATES)} |"


def told(folder: Path) -> tuple[str, str]:
    """The round of the target and the accuracy in the last round, as cells."""
    if not (folder / "ledger.db").exists():
        return "not run", "-"
    with open_ledger(folder) as ledger:
        last = ledger.rounds()[-1]
    found = reached(folder)
    return (str(found) if found else f"> {last['round']}"), f"{last['accuracy']:.3f}"


if __name__ == "__main__":
    main()
