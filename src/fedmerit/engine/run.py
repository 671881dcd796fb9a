"""Runs: a recipe on a task, in memory or into a folder, on this machine or on any fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from fedmerit.config.privacy import recipe_of
from fedmerit.config.run import make_collect
from fedmerit.config.schema import Config, RunConfig, make_config
from fedmerit.core.collect.collect import InTime, Poisson, Selection, Uniform, default_fraction
from fedmerit.core.host import Fleet, Host
from fedmerit.core.learner import DeviceLearner, Learner
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.recipes import privacy_of
from fedmerit.core.system import cores
from fedmerit.engine.finished import Run, write_encoder
from fedmerit.engine.logs import RoundLog, log_format
from fedmerit.engine.loop import OnRecord, Stop, Stopping, resumable, run_rounds, with_control
from fedmerit.engine.preflight import BELIEVED, check_config, check_parts, check_task
from fedmerit.engine.progress import Warner, progress_bar
from fedmerit.engine.sinks import check_logs
from fedmerit.errors import ConfigError
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
"""How a run comes by its task; runs that share data may share its loading."""
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
    selection: Selection | None = None,
    on_record: OnRecord | None = None,
    out: Path | str | None = None,
    progress: bool = False,
    stop: Stop | None = None,
    device: str = "cpu",
    log: Sequence[str] = (),
) -> Run:
    """Run a recipe on a task on this machine, with its ledger in memory, or in a new folder `out`.

    fraction        the share of the clients that take part in a round; default: a tenth, but no fewer than ten clients
                    where there are as many, else all. A `selection` stands for it
    workers         processes; 1 means this one. The bits do not depend on it
    evaluate_every  test the model on all clients every k rounds, and always after the last
    audit           objectives to write down of the model, for example ["parity:sex"]
    on_record       called with the `Record` of every round (`fedmerit.core.state`); what it returns is not used, and
                    what it raises ends the run
    out             a new folder for ledger and model, for `fedmerit report`, `show` and `explain`; such a run, whose
                    task is made in Python, is not resumed
    progress        show a bar, or a line per round where there is no terminal
    stop            called after every round with the accuracies on all validation rows so far; True ends the run:
                    `fedmerit.config.run.EarlyStopping(patience=5)`, or any function
    device          where clients train, as `run.device` has it: "cpu", "cuda", "cuda:1", "mps", "auto"
    log             sinks that get every round, as NAME:WHERE: ["tensorboard:runs/tb"] (docs/watch.md); one that fails
                    warns once

    What is to be known of the weights and of who was left out comes as a `NoteWarning`, each kind once.

    >>> from fedmerit import DS, LD, load_task, prioritized
    >>> run = federate(load_task("digits", clients=4), prioritized(LD, DS, normalise="max"), rounds=1, fraction=0.5)
    >>> len(run.explain(1))
    2
    """
    names = task.federation.names
    share = default_fraction(len(names)) if fraction is None else fraction
    settings: dict[str, Any] = {"rounds": rounds, "fraction": share, "seed": seed, "evaluate_every": evaluate_every}
    config = make_config({"run": settings | {"workers": workers, "audit": tuple(audit), "device": device}})
    task = on_devices(task, config.run)
    recipe = with_control(recipe, task.server())
    privacy = privacy_of(recipe)
    secret = privacy is not None and not privacy.reproducible
    chosen = replace(selection, secret=True) if secret and isinstance(selection, Poisson) else selection
    collect = InTime(chosen or Uniform(config.run.fraction))
    check_task(task, recipe, collect, config.run, stop)
    check_logs(log)
    home = None if out is None else Path(out)
    epochs = int(getattr(getattr(task.learner, "config", None), "epochs", 1))
    ledger = new_ledger(home, recipe, config, names, epochs, device_of(task.learner))
    if home is not None:
        write_encoder(home, task.federation.encoder)
    warn = Warner(names, stacklevel=5)  # where `federate` is called
    workers = count_workers(task.learner, config.run)
    with LocalFleet(task, workers) as fleet, progress_bar(rounds, shown=progress) as advance:
        calls: list[OnRecord] = [warn, advance, *([on_record] if on_record else [])]
        state = run_rounds(fleet, recipe, collect, config.run, ledger, home, stop=stop, on_record=calls, log=log)
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
    log: Sequence[str] = (),
    *,
    draw_seed: int | None = None,
) -> Run:
    """Run a configuration into a new folder: config.toml, ledger.db, model.safetensors, best.safetensors.

    `log` names sinks that get every round, as in `federate`. `draw_seed` replaces `run.seed` in the rounds: other
    clients and batches are drawn, while the data and the first model stay the same.

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"])
    >>> run_config(config, Path("runs/a")).rounds_to_target(0.0, share=1.0)
    1
    """
    check_new(out)
    check_logs(log)
    if config.run.wait is not None and config.run.delays is None:
        raise ConfigError(
            "run.wait has no effect on this machine, where every client answers; set run.delays to simulate some that "
            "are late, or run it on Flower"
        )
    task = on_devices(load(config), config.run)
    recipe = check_config(config, task)
    with resumable(out, "start again"):
        names, device = task.federation.names, device_of(task.learner)
        make_folder(out, config, names, part_to_json(recipe), device, draw_seed=draw_seed)
    return _run_locally(out, config, task, on_record, log)


def resume(
    folder: Path,
    config: Config | None = None,
    on_record: OnRecord | None = None,
    load: Load = make_task,
    log: Sequence[str] = (),
) -> Run:
    """Resume a run that was stopped or killed, to the very bits of one that was not.

    A configuration may be given to make sure that it is the run's; only workers and memory may differ.

    >>> from fedmerit import load_config
    >>> run = run_config(load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"]), Path("runs/b"))
    >>> bool((resume(Path("runs/b")).model == run.model).all())
    True
    """
    check_logs(log)
    config = config_to_resume(folder, config)
    if read_model(folder / MODEL):
        remove_checkpoints(folder)  # a kill may have come in between
        if not (folder / SUMS).exists():
            write_sums(folder)
        return Run.load(folder)
    task = on_devices(load(config), config.run)
    check_device(folder, device_of(task.learner))
    return _run_locally(folder, config, task, on_record, log)


def _run_locally(folder: Path, config: Config, task: Task, on_record: OnRecord | None, log: Sequence[str]) -> Run:
    """On this machine, from the newest checkpoint or from the beginning."""
    run, workers = config.run, count_workers(task.learner, config.run)
    budget = None if run.memory is None else int(run.memory * GIB)
    with (
        held(folder),
        resumable(folder, f"use --resume {folder}"),
        LocalFleet(task, workers, budget, folder, run.deadline) as fleet,
    ):
        write_encoder(folder, task.federation.encoder)
        del task  # the fleet holds the data in shared memory now
        _run_into(folder, config, fleet, [on_record] if on_record else [], log)
    return Run.load(folder)


def _run_into(folder: Path, config: Config, fleet: Fleet, on_record: Sequence[OnRecord], log: Sequence[str]) -> None:
    """Run the rounds of a configuration that its folder does not have yet."""
    recipe, run = with_control(recipe_of(config), fleet.server), config.run
    stop = None if run.stop is None else run.stop.make()
    with Stopping() as stopping, Ledger.open(folder / LEDGER, write=True) as ledger:
        run_rounds(
            fleet,
            recipe,
            make_collect(run, recipe),
            run,
            ledger,
            folder,
            stopping=stopping,
            stop=stop,
            on_record=on_record,
            log=log,
        )
    write_sums(folder)


def run_on(
    fleet: Fleet, config: Config, folder: Path, on_record: OnRecord | None = None, log: Sequence[str] = ()
) -> Run:
    """Run a configuration on any fleet into a folder; where a run was begun there, resume it.

    Attackers of the task are the fleet's to simulate.

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1"])
    >>> with LocalFleet(make_task(config), workers=1) as fleet:
    ...     run = run_on(fleet, config, Path("runs/c"))
    >>> run.ledger.last_round()
    1
    """
    check_logs(log)
    recipe = recipe_of(config)
    check_parts(with_control(recipe, fleet.server), make_collect(config.run, recipe), Host.of(fleet).gives | BELIEVED)
    if not folder.exists():
        with resumable(folder, "start again"):
            make_folder(folder, config, fleet.server.names, part_to_json(recipe))
    config = config_to_resume(folder, config)
    if not read_model(folder / MODEL):
        with held(folder), resumable(folder, "start again"):
            logs = [RoundLog(fleet.server.names, run=str(folder))] if log_format() == "json" else []
            _run_into(folder, config, fleet, [*logs, *([on_record] if on_record else [])], log)
    return Run.load(folder)


def on_devices(task: Task, settings: RunConfig) -> Task:
    """The task with a learner that trains where `run.device` says; without a device, the task itself."""
    if settings.device == "cpu":
        return task
    if not isinstance(task.learner, DeviceLearner):
        raise ConfigError(
            f"run.device = {settings.device!r} needs a learner with the methods of `DeviceLearner`, such as "
            "`TorchLearner`; that of this task has none: leave run.device out"
        )
    return replace(task, learner=task.learner.on(settings.device))


def device_of(learner: Learner) -> str:
    """The device that the bits depend on, as ledgers name it."""
    return learner.described if isinstance(learner, DeviceLearner) else "cpu"


def count_workers(learner: Learner, settings: RunConfig) -> int:
    """As `run.workers` says; else one per core, and one where an accelerator trains."""
    return settings.workers or (cores() if device_of(learner) == "cpu" else 1)
