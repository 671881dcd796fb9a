"""A run: rounds one after the other, kept in a ledger, with checkpoints to resume from and the models at the end."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmerit.config.recipes import make_recipe
from fedmerit.config.schema import Config, RunConfig, make_config
from fedmerit.core.facts import EPOCHS, LOSS, measure
from fedmerit.core.fleet import Fleet
from fedmerit.core.learner import ProbabilisticLearner
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.recipes import Recipe
from fedmerit.core.round import Record, State, begin, play
from fedmerit.core.search import Backtracking
from fedmerit.core.seeds import derive
from fedmerit.core.selection import Schedule, Selection, Uniform
from fedmerit.core.system import cores
from fedmerit.core.types import Matrix, Model, Samples
from fedmerit.core.validation import check_objectives, try_objectives
from fedmerit.core.weights import ClientWeight
from fedmerit.engine.stopping import Stopping
from fedmerit.errors import ConfigError, DataError, FolderError, RunFailed, RunStopped
from fedmerit.fleet.local import LocalFleet
from fedmerit.fleet.personal import any_saved, copy_out
from fedmerit.store.frames import Frame, run_frame
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import read_checkpoint, read_model, remove_checkpoints, write_checkpoint, write_model
from fedmerit.store.run_folder import (
    BEST,
    LEDGER,
    MODEL,
    OWN,
    check_new,
    config_to_resume,
    environment,
    held,
    make_folder,
    open_ledger,
)
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task, make_task

OnRecord = Callable[[Record], None]
Load = Callable[[Config], Task]
"""How a run comes by its task; runs that share data may share its loading."""
GIB = 2**30


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run: its ledger and its final model."""

    ledger: Ledger
    model: Model

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """A run from its folder."""
        ledger, found = open_ledger(Path(folder)), read_model(Path(folder) / MODEL)
        if found is None:
            raise FolderError(f"{folder} holds no finished run: its {MODEL} is missing or damaged")
        return cls(ledger, found[0])

    @property
    def accuracy(self) -> float:
        """Accuracy after the last round, weighted by test size; NaN where nobody has test rows."""
        accuracy = self.ledger.rounds()[-1]["accuracy"]
        return float("nan") if accuracy is None else float(accuracy)

    @property
    def local_accuracy(self) -> Matrix:
        """Accuracy of each client (columns) in each evaluated round (rows)."""
        return self.ledger.local_accuracy()[1]

    def rounds_to_target(self, target: float, share: float, *, or_equal: bool = False) -> int | None:
        """The first round in which `share` of the devices are above `target`; None where not reached."""
        return rounds_to_target(*self.ledger.local_accuracy(), target, share, or_equal=or_equal)

    def explain(self, round: int) -> list[ClientWeight]:
        """How each client of a round came to its weight."""
        return self.ledger.earned(round)

    def frame(self, name: str) -> Frame:
        """A pandas.DataFrame: `rounds`, `clients`, `weights`, `rewards`, `audits`, `tries` or `events`."""
        return run_frame(self.ledger, name)

    def events(self) -> list[Event]:
        """Who was left out and why, and the notes on the weights."""
        return self.ledger.events()

    def __repr__(self) -> str:
        rounds, clients = self.ledger.last_round(), len(self.ledger.names())
        return f"<Run: {rounds} rounds, {clients} clients, accuracy {self.accuracy:.4f}>"


def rounds(
    fleet: Fleet, recipe: Recipe, selection: Selection, settings: RunConfig, state: State
) -> Iterator[tuple[State, Record]]:
    """The states and records of the rounds after a state, one by one."""
    objectives = [find_objective(name) for name in settings.audit]
    for index in range(state.history.rounds + 1, settings.rounds + 1):
        due = index % settings.evaluate_every == 0 or index == settings.rounds
        state, record = play(
            state, recipe, fleet, selection=selection, seed=settings.seed, evaluate=due, objectives=objectives
        )
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
    audit: Sequence[str] = (),
    selection: Selection | None = None,
    on_record: OnRecord | None = None,
) -> Run:
    """Run a recipe on a task on this machine, with its ledger in memory; a `selection` stands for the fraction."""
    settings = {"rounds": rounds, "fraction": fraction, "seed": seed, "evaluate_every": evaluate_every}
    config = make_config({"run": settings | {"workers": workers, "audit": tuple(audit)}})
    chosen = selection or Uniform(config.run.fraction)
    check_task(task, recipe, chosen, config.run.audit)
    ledger = Ledger.create(None, task.federation.names, environment() | {"recipe": repr(recipe)})
    with LocalFleet(task, workers) as fleet:
        start = _first_state(fleet, recipe, seed, ledger)
        model = start.model
        for state, record in _rounds(fleet, recipe, chosen, config.run, start):
            model = state.model
            ledger.append(record)
            if on_record:
                on_record(record)
    return Run(ledger, model)


def run_config(config: Config, out: Path, on_record: OnRecord | None = None, load: Load = make_task) -> Run:
    """Run a configuration into a new folder: config.toml, ledger.db, model.safetensors, best.safetensors."""
    check_new(out)
    recipe = make_recipe(config.recipe)
    task = load(config)
    check_task(task, recipe, make_selection(config.run), config.run.audit)
    with _disk(out, "start again"):
        make_folder(out, config, task.federation.names, repr(recipe))
    return _go_on(out, config, recipe, task, on_record)


def resume(
    folder: Path,
    config: Config | None = None,
    on_record: OnRecord | None = None,
    load: Load = make_task,
) -> Run:
    """Go on with a run that was stopped or killed, to the very bits of one that was not.

    A configuration may be given to make sure that it is the run's; only workers and memory may differ.
    """
    config = config_to_resume(folder, config)
    if read_model(folder / MODEL):
        remove_checkpoints(folder)  # a kill may have come between the two
        return Run.load(folder)
    return _go_on(folder, config, make_recipe(config.recipe), load(config), on_record)


def _go_on(folder: Path, config: Config, recipe: Recipe, task: Task, on_record: OnRecord | None) -> Run:
    """On this machine, from the newest checkpoint or from the beginning."""
    workers, memory = config.run.workers or cores(), config.run.memory
    budget = None if memory is None else int(memory * GIB)
    with held(folder), _disk(folder, f"use --resume {folder}"), LocalFleet(task, workers, budget, folder) as fleet:
        del task  # the fleet holds the data in shared memory now
        _rounds_into(folder, config, recipe, fleet, on_record)
    return Run.load(folder)


def run_on(fleet: Fleet, config: Config, folder: Path, on_record: OnRecord | None = None) -> Run:
    """Run a configuration on any fleet into a folder; where a run was begun there, go on with it."""
    recipe = make_recipe(config.recipe)
    if not folder.exists():
        with _disk(folder, "start again"):
            make_folder(folder, config, fleet.names(), repr(recipe))
    config = config_to_resume(folder, config)
    if not read_model(folder / MODEL):
        with held(folder), _disk(folder, "start again"):
            _rounds_into(folder, config, recipe, fleet, on_record)
    return Run.load(folder)


def _rounds_into(folder: Path, config: Config, recipe: Recipe, fleet: Fleet, on_record: OnRecord | None) -> None:
    """Rounds from the newest checkpoint, or from the beginning, to the end."""
    with Stopping() as stopping, Ledger.open(folder / LEDGER, write=True) as ledger:
        start = _state(folder, ledger, fleet) or _first_state(fleet, recipe, config.run.seed, ledger)
        model = start.model
        for state, record in _rounds(fleet, recipe, make_selection(config.run), config.run, start):
            model = state.model
            _keep(folder, ledger, fleet, model, record, best=recipe.own is None)
            if on_record:
                on_record(record)
            if stopping.asked and record.index < config.run.rounds:
                raise RunStopped(f"stopped after round {record.index} of {config.run.rounds}")
        if any_saved(folder):
            copy_out(folder, folder / OWN)
        write_model(folder / MODEL, model, config.run.rounds)
        remove_checkpoints(folder)


def make_selection(settings: RunConfig) -> Selection:
    """The schedule that [run.schedule] asks for, else `run.fraction` of the clients."""
    plan = settings.schedule
    return Uniform(settings.fraction) if plan is None else Schedule(settings.rounds, plan.rates, plan.epochs)


def check_task(task: Task, recipe: Recipe, selection: Selection, audits: Sequence[str] = ()) -> None:
    """The data has what the recipe asks for; otherwise every client would be left out, or could not answer."""
    chances = isinstance(task.learner, ProbabilisticLearner)
    server = task.federation.server
    check_objectives([criterion.objective for criterion in recipe.validated], server, chances=chances)
    _check_audits(task.federation, [find_objective(name) for name in audits], chances)
    if LOSS in recipe.needs and not chances:
        raise ConfigError("the fact `loss` needs a learner with a method `chances`, which this task's has not")
    clients = np.flatnonzero(task.federation.train.sizes)
    if not len(clients):
        raise DataError("no client has a training row")
    measure(task.federation.samples(int(clients[0])), recipe.asks)
    if EPOCHS in recipe.needs and not _gives_epochs(selection):
        raise ConfigError(
            "SimulatedComputation goes by the epochs that each client is given, and here none is; set "
            "run.schedule.epochs = [1, 3], or use Computation, which goes by the clock"
        )
    if recipe.own and not len(task.federation.validation.y):
        raise ConfigError(
            "clients test their rewards on their validation rows, and none has any; set task.validation = 0.1"
        )
    if isinstance(recipe.search, Backtracking):
        _check_search(task.federation, recipe.search)


def _check_audits(federation: Federation, objectives: Sequence[Objective], chances: bool) -> None:
    """Audits are measured on the server's rows where there are any, and on clients' test rows in any case."""
    check_objectives(objectives if federation.server else (), federation.server, chances=chances)
    test, client = federation.test, int(federation.test.sizes.argmax())
    rows = test.rows(client)
    attributes = {name: column[rows] for name, column in test.attributes.items()}
    try_objectives(objectives, Samples(test.x[rows], test.y[rows], federation.classes, attributes), chances=chances)


def _gives_epochs(selection: Selection) -> bool:
    """Whether each client has a number of epochs of its own; a user's selection is believed."""
    return selection.epochs is not None if isinstance(selection, Schedule) else not isinstance(selection, Uniform)


def _check_search(federation: Federation, search: Backtracking) -> None:
    number = len(federation.names)
    if search.adjust_on == "validation" and not len(federation.validation.y):
        raise ConfigError(
            "the search asks clients about their validation rows, and none has any; set task.validation = 0.1, "
            'or recipe.search.adjust_on = "test" to choose on the test rows as in the paper'
        )
    if search.adjust_on == "test" and not len(federation.test.y):
        raise DataError("the search asks clients about their test rows, and no client has any")
    if search.judges is not None and search.judges > number:
        raise ConfigError(f"recipe.search.judges is at most the number of clients, {number}; got {search.judges}")


_rounds = rounds  # `federate` has an argument of that name


def _first_state(fleet: Fleet, recipe: Recipe, seed: int, ledger: Ledger) -> State:
    """The state before round 1: the learner's first model, or what an initial phase made of it."""
    model, trained = begin(recipe, fleet, fleet.start(derive(seed, "model")), seed)
    if recipe.initial:
        ledger.note(Event(0, None, "initial", f"{len(trained)} clients trained the first model: {list(trained)}"))
    return State(model)


def _keep(folder: Path, ledger: Ledger, fleet: Fleet, model: Model, record: Record, *, best: bool) -> None:
    """First the models, then the ledger: a round that the ledger knows has its checkpoint."""
    fleet.save(folder, record.index)
    tested = record.evaluation
    if best and tested is not None and tested.accuracy > ledger.best_accuracy():
        write_model(folder / BEST, model, record.index)
    write_checkpoint(folder, model, record.index)
    ledger.append(record)


def _state(folder: Path, ledger: Ledger, fleet: Fleet) -> State | None:
    """The state after the newest round with an intact checkpoint; later rounds are forgotten and done again."""
    found = read_checkpoint(folder, ledger.last_round())
    while found and not fleet.load(folder, found[1]):
        found = read_checkpoint(folder, found[1] - 1)
    ledger.forget_after(found[1] if found else -1)  # the initial phase is noted at round 0
    return State(found[0], ledger.history(), ledger.standing(), ledger.met()) if found else None


@contextmanager
def _disk(folder: Path, way_out: str) -> Iterator[None]:
    """A full disk ends a run in a way that can be resumed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunFailed(f"no space left for {folder} ({error.strerror}); make room and {way_out}") from error
    except sqlite3.OperationalError as error:
        raise RunFailed(f"cannot write the ledger of {folder}: {error}; make room and {way_out}") from error
