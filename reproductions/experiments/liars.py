"""Are planted free riders and liars the last by contribution? Exact Shapley values on digits, round by round.

python -m reproductions.experiments.liars  # minutes; prints a table

By accuracy, of which 300 rows know 301 values, and by the loss, which knows more; of each round by itself, and of the
sum over all rounds so far.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import numpy as np

from fedmerit import load_config, run_config
from fedmerit.core.types import Vector
from fedmerit.errors import NoteWarning
from fedmerit.tasks.attackers import find_attackers

PLANTED: Mapping[str, str] = {
    "free rider: one row, repeated": "task.kinds={free_rider=0.2}",
    "free rider: nothing learned": "task.attack={kind='free-rider', share=0.2}",
    "liar: labels flipped": "task.attack={kind='label-flip', share=0.2}",
    "liar: update turned round": "task.attack={kind='sign-flip', share=0.2}",
}
MEASURES = ("shapley", "shapley:loss")
CLIENTS, ROUNDS, SEEDS = 10, 10, (1, 2, 3, 4, 5)


def last_rounds(planted: str, seed: int) -> list[tuple[bool, ...]]:
    """Of each round: whether the planted clients are the last, by each measure alone and by its sum so far."""
    changes = [f"task.clients={CLIENTS}", "task.server=300", "task.partition=iid", planted, f"run.seed={seed}"]
    changes += [
        f"recipe={{name='fedavg', stages={[f'contribution:{measure}' for measure in MEASURES]}}}",
        f"run.rounds={ROUNDS}",
        "run.fraction=1.0",
    ]
    config = load_config(None, [*changes, "run.workers=1", "train.lr=0.1", "train.batch=full"])
    with tempfile.TemporaryDirectory() as folder:
        run = run_config(config, Path(folder) / "run")
        liars = {client for client, name in enumerate(run.ledger.names()) if name.endswith("free_rider")}
        liars |= set(find_attackers(config.task, CLIENTS, seed).members)
        columns = []
        for measure in MEASURES:
            rounds = [run.explain(index) for index in range(1, ROUNDS + 1)]
            values = [np.array([one.facts[f"contribution:{measure}"] for one in clients]) for clients in rounds]
            columns += [[are_last(one, liars) for one in kept] for kept in (values, accumulate(values, np.add))]
    return list(zip(*columns, strict=True))


def are_last(values: Vector, liars: set[int]) -> bool:
    """Whether nobody else is as low as the highest of these."""
    return bool(max(values[list(liars)]) < min(np.delete(values, list(liars))))


def main() -> None:
    """A line per kind."""
    warnings.simplefilter("ignore", NoteWarning)
    print("| planted | by accuracy | its sum so far | by loss | its sum so far |\n| --- | ---: | ---: | ---: | ---: |")
    for name, planted in PLANTED.items():
        rounds = np.array([one for seed in SEEDS for one in last_rounds(planted, seed)])
        print(f"| {name} | {' | '.join(f'{count} of {len(rounds)}' for count in rounds.sum(axis=0))} |", flush=True)


if __name__ == "__main__":
    main()
