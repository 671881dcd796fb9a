"""Run a recipe on a task: in memory or in a run folder, on this machine or on any fleet."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from fedmerit.config.privacy import make_collect, recipe_of
from fedmerit.config.schema import Config, RunConfig, make_config
from fedmerit.core.collect.collect import InTime, Poisson, Selection, Uniform, default_fraction
from fedmerit.core.host import Fleet, Host
from fedmerit.core.learner import DeviceLearner, Learner
from fedmerit.core.models.shared import PooledModel
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.recipes import privacy_of
from fedmerit.core.system import cores
from fedmerit.engine.finished import Run, write_data
from fedmerit.engine.leaving import LEAVING, write_statement
from fedmerit.engine.logs import RoundLog, log_format
from fedmerit.engine.loop import OnRecord, Stop, Stopping, resumable, run_rounds, with_control
from fedmerit.engine.measure import default_measure
from fedmerit.engine.preflight import BELIEVED, check_config, check_parts, check_task
from fedmerit.engine.progress import Warner, progress_bar
from fedmerit.errors import ConfigError, NoteWarning
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import read_model, remove_checkpoints
from fedmerit.store.run_folder import (
    LEDGER,
    MODEL,
    check_device,
    check_new,
    config_to_resume,
    held,
    make_folder,
    new_ledger,
)
from fedmerit.store.verify import SUMS, write_sums
from fedmerit.tasks.registry import Task, make_task

Load: TypeAlias = Callable[[Config], Task]
"""Load the task of a configuration; runs that share data can share this function and its cache."""
GIB = 2**30


def federate(
    task: Task,
    recipe: Recipe,
    *,
    rounds: int = 20,
    fraction: float | None = None,
    seed: int = 0,
    workers: int = 1,
    evaluate_every: int = 1,
    audit: Sequence[str] = (),
    measure: str | None = None,
    selection: Selection | None = None,
    on_record: OnRecord | None = None,
    out: Path | str | None = None,
    progress: bool = False,
    stop: Stop | None = None,
    device: str = "cpu",
) -> Run:
    """Train a task's clients with a recipe on this machine.

    task            the clients' data and their learner, from `load_task` or made of a `Federation`
    recipe          how clients are weighed and aggregated: `prioritized("LD", "DS")`, `fedavg()`
    rounds          the number of rounds
    fraction        the share of the clients selected in each round; default: 0.1, but at least ten clients, or all
                    clients where there are fewer
    seed            of the first model, the selection and the batches; the same seed gives the same bits
    workers         the number of processes; it does not change the result
    evaluate_every  test the model on all clients every k rounds and after the last round
    audit           objectives of the model to record, for example ["parity:sex"]
    measure         what the run is judged by, for example "auc"; default: by the labels, see `default_measure`
    selection       replaces `fraction`, for example `Poisson(0.1)`
    on_record       called with the `Record` of each round; its exceptions end the run
    out             a new folder for the ledger and the model, for `fedmerit report` and `explain`; default: in memory
    progress        show a progress bar, or one line per round without a terminal
    stop            called after each round with the measure on validation rows so far; True ends the run:
                    `fedmerit.config.run.EarlyStopping(patience=5)`, or any function
    device          where clients train: "cpu", "cuda", "cuda:1", "mps", "auto"

    Suspicions about a table, and notes on weights and on clients left out, are issued as `NoteWarning`, each kind once.

    >>> from fedmerit import DS, LD, load_task, prioritized
    >>> task = load_task("digits", clients=4)
    >>> run = federate(task, prioritized(LD, DS), rounds=1, fraction=0.5)
    >>> len(run.explain(1))
    2
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"federate(task, recipe): the second argument must be a Recipe (got {type(recipe).__name__}); "
            + ("swap the two" if isinstance(task, Recipe) else "for example fedavg()")
        )
    task = task.pooled() if isinstance(recipe.models, PooledModel) and not task.is_pooled else task
    names = task.federation.names
    share = default_fraction(len(names)) if fraction is None else fraction
    settings: dict[str, Any] = {"rounds": rounds, "fraction": share, "seed": seed, "evaluate_every": evaluate_every}
    settings |= {"workers": workers, "audit": tuple(audit), "measure": measure, "device": device}
    config = make_config({"run": settings})
    task = on_devices(task, config.run)
    recipe = with_control(recipe, task.server())
    privacy = privacy_of(recipe)
    secret = privacy is not None and not privacy.reproducible
    chosen = replace(selection, secret=True) if secret and isinstance(selection, Poisson) else selection
    collect = InTime(chosen or Uniform(config.run.fraction))
    check_task(task, recipe, collect, config.run, stop)
    home = None if out is None else Path(out)
    epochs = int(getattr(getattr(task.learner, "config", None), "epochs", 1))
    judged_by = measure or default_measure(task.learner, task.federation)
    ledger = new_ledger(home, recipe, config, names, epochs, device_of(task.learner), judged_by)
    if home is not None:
        write_data(home, task.federation)
    for line in task.federation.data.brief() if task.federation.data else ():
        warnings.warn(line, NoteWarning, stacklevel=2)
    warn = Warner(names, stacklevel=5)  # the caller of `federate`
    workers = count_workers(task.learner, config.run)
    with LocalFleet(task, workers) as fleet, progress_bar(rounds, shown=progress) as advance:
        calls: list[OnRecord] = [warn, advance, *([on_record] if on_record else [])]
        state = run_rounds(fleet, recipe, collect, config.run, ledger, home, stop=stop, on_record=calls)
    if home is None:
        return Run(ledger, state.model, task.learner, encoder=task.federation.encoder)
    ledger.close()
    write_sums(home)
    return Run.load(home, task.learner)


def run_config(
    config: Config,
    out: Path,
    on_record: OnRecord | None = None,
    load: Load = make_task,
    *,
    draw_seed: int | None = None,
    measure: str | None = None,
    leaving: str = "",
) -> Run:
    """Run a configuration, and write a new run folder: config.toml, ledger.db, model.safetensors, best.safetensors.

    config     from `load_config`
    out        the new folder
    on_record  called with the `Record` of every round
    load       makes the task of the configuration
    draw_seed  replaces `run.seed` for the selection of clients and batches; data and first model do not change
    measure    what the run is judged by if `run.measure` is not set, for runs of a study; default: by the labels
    leaving    the note of `engine.leaving.leave` on clients that left: the folder then gets a statement

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"])
    >>> run_config(config, Path("runs/a")).rounds_to_target(0.0, share=1.0)
    1
    """
    check_new(out)
    if idle := [key for key in ("wait", "deadline") if getattr(config.run, key) is not None]:
        raise ConfigError(
            f"run.{idle[0]} has no effect on this machine, where no client is late; remove it, or use `fedmerit flower "
            "run`"
        )
    task = on_devices(load(config), config.run)
    recipe = check_config(config, task)
    with resumable(out, "start again"):
        names, device = task.federation.names, device_of(task.learner)
        measure = config.run.measure or measure or default_measure(task.learner, task.federation)
        make_folder(
            out,
            config,
            names,
            part_to_json(recipe),
            device,
            draw_seed=draw_seed,
            measure=measure,
            about={LEAVING: leaving} if leaving else {},
        )
    return _run_locally(out, config, task, on_record)


def resume(
    folder: Path,
    config: Config | None = None,
    on_record: OnRecord | None = None,
    load: Load = make_task,
) -> Run:
    """Resume a run that was stopped or killed; the result has the same bits as an uninterrupted run.

    folder     the run folder
    config     checked against the folder's configuration; only workers and memory may differ
    on_record  called with the `Record` of every further round
    load       makes the task of the configuration

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"])
    >>> run = run_config(config, Path("runs/b"))
    >>> bool((resume(Path("runs/b")).model == run.model).all())
    True
    """
    config = config_to_resume(folder, config)
    if read_model(folder / MODEL):
        remove_checkpoints(folder)  # the run may have been killed before it removed them
        if not (folder / SUMS).exists():
            write_statement(folder)
            write_sums(folder)
        return Run.load(folder, trust=True)
    task = on_devices(load(config), config.run)
    check_device(folder, device_of(task.learner))
    return _run_locally(folder, config, task, on_record)


def _run_locally(folder: Path, config: Config, task: Task, on_record: OnRecord | None) -> Run:
    """Run on this machine, from the newest checkpoint or from the beginning."""
    run, workers = config.run, count_workers(task.learner, config.run)
    budget = None if run.memory is None else int(run.memory * GIB)
    with (
        held(folder),
        resumable(folder, f"use --resume {folder}"),
        LocalFleet(task, workers, budget, folder, run.wire) as fleet,
    ):
        write_data(folder, task.federation)
        del task  # the fleet has copied the data to shared memory
        _run_into(folder, config, fleet, [on_record] if on_record else [])
    return Run.load(folder, trust=True)


def _run_into(folder: Path, config: Config, fleet: Fleet, on_record: Sequence[OnRecord]) -> None:
    """Run the rounds that the folder does not have yet."""
    recipe, run = with_control(recipe_of(config), fleet.server), config.run
    with Stopping() as stopping, Ledger.open(folder / LEDGER, write=True) as ledger:
        run_rounds(
            fleet,
            recipe,
            make_collect(config, recipe),
            run,
            ledger,
            folder,
            stopping=stopping,
            stop=run.stop,
            on_record=on_record,
        )
    write_statement(folder)
    write_sums(folder)


def run_on(fleet: Fleet, config: Config, folder: Path, on_record: OnRecord | None = None) -> Run:
    """Run a configuration on any fleet, and write a run folder; if the folder exists, resume its run.

    fleet      the clients, for example a `LocalFleet`; the fleet simulates attackers, if the task has any
    config     from `load_config`
    folder     the run folder
    on_record  called with the `Record` of every round

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1"])
    >>> with LocalFleet(make_task(config), workers=1) as fleet:
    ...     run = run_on(fleet, config, Path("runs/c"))
    >>> run.ledger.last_round()
    1
    """
    recipe = recipe_of(config)
    check_parts(with_control(recipe, fleet.server), make_collect(config, recipe), Host.of(fleet).gives | BELIEVED)
    if not folder.exists():
        with resumable(folder, "start again"):
            measure = config.run.measure or default_measure(fleet.server.learner)
            make_folder(folder, config, fleet.server.names, part_to_json(recipe), measure=measure)
    config = config_to_resume(folder, config)
    if not read_model(folder / MODEL):
        with held(folder), resumable(folder, "start again"):
            logs = [RoundLog(fleet.server.names, run=str(folder))] if log_format() == "json" else []
            _run_into(folder, config, fleet, [*logs, *([on_record] if on_record else [])])
    return Run.load(folder, trust=True)


def on_devices(task: Task, settings: RunConfig) -> Task:
    """Move the task's learner to `run.device`."""
    if settings.device == "cpu":
        return task
    if not isinstance(task.learner, DeviceLearner):
        raise ConfigError(
            f"run.device = {settings.device!r} needs a learner with the methods of `DeviceLearner`, such as "
            f"`TorchLearner` (got {type(task.learner).__name__}); remove run.device"
        )
    return replace(task, learner=task.learner.on(settings.device))


def device_of(learner: Learner) -> str:
    """The device that the bits of a run depend on, as recorded in the ledger."""
    return learner.described if isinstance(learner, DeviceLearner) else "cpu"


def count_workers(learner: Learner, settings: RunConfig) -> int:
    """The number of worker processes: `run.workers`, else one per core, or one if an accelerator trains."""
    return settings.workers or (cores() if device_of(learner) == "cpu" else 1)
