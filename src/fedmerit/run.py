"""A run: rounds one after the other, kept in a ledger, with the models at the end."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fedmerit.config import Config, dump_config
from fedmerit.errors import FolderError
from fedmerit.fleet.base import Fleet
from fedmerit.fleet.local import LocalFleet
from fedmerit.ledger import Earned, Event, Ledger
from fedmerit.measures import rounds_to_target
from fedmerit.recipes import Recipe, make_recipe
from fedmerit.round import Record, State, play
from fedmerit.seeds import derive
from fedmerit.tasks.task import Task, make_task
from fedmerit.types import Matrix, Model

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
    evaluate_every: int = 1,
    on_record: OnRecord | None = None,
) -> Run:
    """Run a recipe on a task in this process, with its ledger in memory."""
    settings = {"rounds": rounds, "fraction": fraction, "seed": seed, "evaluate_every": evaluate_every}
    ledger = Ledger.create(None, task.federation.names, environment() | {"recipe": repr(recipe)})
    config = Config.model_validate({"run": settings})
    return _run(LocalFleet(task), recipe, config, ledger, on_record, None)


def run_config(config: Config, out: Path, on_record: OnRecord | None = None) -> Run:
    """Run a configuration into a new folder: config.toml, ledger.db, model.safetensors, best.safetensors."""
    check_new(out)
    recipe = make_recipe(config.recipe)
    fleet = LocalFleet(make_task(config.task, config.train, config.run.seed))
    out.mkdir(parents=True)
    (out / CONFIG).write_text(dump_config(config), encoding="utf-8")
    meta = environment() | {"recipe": repr(recipe), "config": config.model_dump_json()}
    return _run(fleet, recipe, config, Ledger.create(out / LEDGER, fleet.names(), meta), on_record, out)


def _run(
    fleet: Fleet, recipe: Recipe, config: Config, ledger: Ledger, on_record: OnRecord | None, out: Path | None
) -> Run:
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
    return Run(ledger, state.model)


def save_model(path: Path, model: Model, about: Mapping[str, str]) -> None:
    """Write a model so that a reader finds the old file or the new one, never half of one."""
    part = path.with_suffix(".part")
    save_file({"model": np.ascontiguousarray(model)}, part, metadata=dict(about))
    part.replace(path)


def check_new(out: Path) -> None:
    """Refuse a folder that exists: a run never writes over another."""
    if out.exists():
        raise FolderError(f"{out} exists; a run writes to a new folder: choose another --out, or remove it first")


def environment() -> dict[str, str]:
    """Versions that a reader of the ledger may want to know."""
    return {"fedmerit": version("fedmerit"), "python": platform.python_version(), "machine": platform.machine()}
