"""A ledger of many clients and rounds without the training: what reports and frames of large runs are timed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedmerit.config.schema import make_config
from fedmerit.core.state import Record
from fedmerit.core.types import Evaluation
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import weigh
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import LEDGER, environment

CLIENTS, ROUNDS = 1000, 500
DRAWN = (100, 1000)
"""Clients that a round weighs."""
PRIORITY = ("DS", "LD", "MW")


def make_run(folder: Path, drawn: int, rounds: int = ROUNDS) -> None:
    """A run's folder without the training; `drawn` of the clients are weighed in each round, all are tested."""
    with start_run(folder, rounds) as ledger:
        for record in made_rounds(drawn, rounds):
            ledger.append(record)


def start_run(folder: Path, rounds: int = ROUNDS) -> Ledger:
    """A run's folder before its first round."""
    folder.mkdir()
    recipe = {"name": "prioritized", "criteria": list(PRIORITY), "normalise": "max"}
    config = make_config({"recipe": recipe, "run": {"rounds": rounds}})
    meta = environment() | {"recipe": "Recipe(...)", "config": config.model_dump_json()}
    return Ledger.create(folder / LEDGER, [f"hospital-{i:04d}" for i in range(CLIENTS)], meta)


def made_rounds(drawn: int, rounds: int = ROUNDS) -> Iterator[Record]:
    """Rounds drawn by chance, of some clients each."""
    random = np.random.default_rng(1)
    samples, labels = random.integers(20, 900, CLIENTS).astype(float), random.integers(1, 62, CLIENTS).astype(float)
    sizes = random.integers(10, 60, CLIENTS)
    for index in range(1, rounds + 1):
        ids = np.sort(random.choice(CLIENTS, drawn, replace=False))
        raw = np.column_stack([samples[ids], labels[ids], 1 / np.sqrt(1 + random.random(drawn))])
        weights = weigh(raw, PRIORITY, Prioritized(), "max", samples[ids])
        accuracy = np.clip(0.9 - 0.6 * np.exp(-index / 40) + random.normal(0, 0.05, CLIENTS), 0, 1)
        evaluation = Evaluation(random.binomial(sizes, accuracy), sizes)
        facts = {"samples": samples[ids], "labels": labels[ids]}
        clients = tuple(int(client) for client in ids)
        yield Record(index, PRIORITY, clients, facts, weights, {}, evaluation, 1000, 900, {"train": 1.5})
