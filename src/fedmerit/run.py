"""A run: rounds one after the other, kept in a ledger, with the models at the end."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from fedmerit.config import Config, dump_config, make_config
from fedmerit.errors import FolderError
from fedmerit.fleet.base import Fleet
from fedmerit.fleet.local import LocalFleet, cores
from fedmerit.ledger import Event, Ledger
from fedmerit.measures import rounds_to_target
from fedmerit.recipes import Recipe, make_recipe
from fedmerit.round import Record, State, play
from fedmerit.seeds import derive
from fedmerit.tasks.task import Task, make_task
from fedmerit.types import Matrix, Model
from fedmerit.weights import Earned

CONFIG, LEDGER, MODEL, BEST = "config.toml", "ledger.db", "model.safetensors", "best.safetensors"
OnRecord = Callable[[Record], None]


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run: its ledger and its final model."""

    ledger: Ledger
    model: Model

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """A run from its folder."""
        ledger = Ledger.open(Path(folder) / LEDGER)
        if not (path := Path(folder) / MODEL).is_file():
            raise FolderError(f"{folder} holds an unfinished run: it has no {MODEL}")
        return cls(ledger, load_file(path)["model"])

    @property
    def accuracy(self) -> float:
        """Accuracy after the last round, weighted by test size."""
        return float(self.ledger.rounds()[-1]["accuracy"])

    @property
    def local_accuracy(self) -> Matrix:
        """Accuracy of each client (columns) in each evaluated round (rows)."""
        return self.ledger.local_accuracy()[1]

    def rounds_to_target(self, target: float, share: float, *, or_equal: bool = False) -> int | None:
        """The first round in which `share` of the devices are above `target`; None where not reached."""
        return rounds_to_target(*self.ledger.local_accuracy(), target, share, or_equal=or_equal)

    def explain(self, round: int) -> list[Earned]:
        """How each client of a round came to its weight."""
        return self.ledger.earned(round)

    def events(self) -> list[Event]:
        """Who was left out and why, and the notes on the weights."""
        return self.ledger.events()

    def __repr__(self) -> str:
        rounds, clients = len(self.ledger.rounds()), len(self.ledger.names())
        return f"<Run: {rounds} rounds, {clients} clients, accuracy {self.accuracy:.4f}>"


def rounds(
    fleet: Fleet, recipe: Recipe, *, rounds: int, fraction: float, seed: int, evaluate_every: int = 1
) -> Iterator[tuple[State, Record]]:
    """The states and records of a run, one per round."""
    state = State(fleet.start(derive(seed, "model")))
    for index in range(1, rounds + 1):
        due = index % evaluate_every == 0 or index == rounds
        state, record = play(state, recipe, fleet, fraction=fraction, seed=seed, evaluate=due)
        yield state, record


def federate(
    task: Task,
    recipe: Recipe,
    *,
    rounds: int = 20,
    fraction: float = 0.1,
    seed: int = 0,
    workers: int = 1,
    evaluate_every: int = 1,
    on_record: OnRecord | None = None,
) -> Run:
    """Run a recipe on a task on this machine, with its ledger in memory."""
    settings = {"rounds": rounds, "fraction": fraction, "seed": seed, "evaluate_every": evaluate_every}
    config = make_config({"run": settings | {"workers": workers}})
    ledger = Ledger.create(None, task.federation.names, environment() | {"recipe": repr(recipe)})
    with LocalFleet(task, workers) as fleet:
        return Run(ledger, _run(fleet, recipe, config, ledger, on_record, None))


def run_config(config: Config, out: Path, on_record: OnRecord | None = None) -> Run:
    """Run a configuration into a new folder: config.toml, ledger.db, model.safetensors, best.safetensors."""
    check_new(out)
    recipe = make_recipe(config.recipe)
    task = make_task(config.task, config.train, config.run.seed)
    out.mkdir(parents=True)
    (out / CONFIG).write_text(dump_config(config), encoding="utf-8")
    meta = environment() | {"recipe": repr(recipe), "config": config.model_dump_json()}
    with (
        Ledger.create(out / LEDGER, task.federation.names, meta) as ledger,
        LocalFleet(task, config.run.workers or cores()) as fleet,
    ):
        del task  # the fleet holds the data in shared memory now
        _run(fleet, recipe, config, ledger, on_record, out)
    return Run.load(out)


def _run(
    fleet: Fleet, recipe: Recipe, config: Config, ledger: Ledger, on_record: OnRecord | None, out: Path | None
) -> Model:
    """The model after the last round."""
    best = -1.0
    settings = config.run.model_dump(exclude={"workers"})
    for state, record in rounds(fleet, recipe, **settings):
        ledger.append(record)
        if out and record.evaluation is not None and record.evaluation.accuracy > best:
            best = record.evaluation.accuracy
            save_model(out / BEST, state.model, {"round": str(record.index)})
        if on_record:
            on_record(record)
    if out:
        save_model(out / MODEL, state.model, {"round": str(record.index)})
    return state.model


def save_model(path: Path, model: Model, about: Mapping[str, str]) -> None:
    """Write a model so that a reader finds the old file or the new one, never half of one."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(save({"model": np.ascontiguousarray(model)}, metadata=dict(about)))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def open_ledger(folder: Path) -> Ledger:
    """The ledger of a run folder, to read from."""
    return Ledger.open(folder / LEDGER)


def check_new(out: Path) -> None:
    """Refuse a folder that exists: a run never writes over another."""
    if out.exists():
        raise FolderError(f"{out} exists; a run writes to a new folder: choose another --out, or remove it first")


def environment() -> dict[str, str]:
    """Versions that a reader of the ledger may want to know."""
    return {"fedmerit": version("fedmerit"), "python": platform.python_version(), "machine": platform.machine()}
