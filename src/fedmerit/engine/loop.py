"""The loop of every run: rounds one after the other, from the newest checkpoint, until done or asked to stop."""

from __future__ import annotations

import errno
import math
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeAlias

from fedmerit.config.privacy import epsilon_of_releases
from fedmerit.config.schema import RunConfig
from fedmerit.core.collect.collect import Collect
from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import Fleet, Host, ServerSetup, no_account
from fedmerit.core.learner import NamedTensors
from fedmerit.core.models.clusters import models_in
from fedmerit.core.objectives import find_objective
from fedmerit.core.parts import declared
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.seeds import derive
from fedmerit.core.server.centring import centre_model
from fedmerit.core.state import Record, State
from fedmerit.core.targets import target_of
from fedmerit.core.types import Note
from fedmerit.engine.finished import Run
from fedmerit.engine.sinks import Sinks
from fedmerit.errors import RunFailed, RunStopped, UserError
from fedmerit.fleet.personal import any_saved, copy_out
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import read_checkpoint, remove_checkpoints, write_checkpoint, write_model
from fedmerit.store.run_folder import BEST, CLUSTERS, DRAW_SEED, MODEL, PERSONAL
from fedmerit.store.status import status_file

OnRecord: TypeAlias = Callable[[Record], None]
Stop: TypeAlias = Callable[[Sequence[float]], bool]
"""The accuracies on validation rows after each round so far -> whether to stop."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Within it, `asked` says whether somebody wants the run to stop.

    The first Ctrl-C ends a run after its round, the second at once.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be handled
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def run_rounds(
    fleet: Fleet,
    recipe: Recipe,
    collect: Collect,
    settings: RunConfig,
    ledger: Ledger,
    folder: Path | None = None,
    *,
    stopping: Stopping | None = None,
    stop: Stop | None = None,
    on_record: Sequence[OnRecord] = (),
    log: Sequence[str] = (),
) -> State:
    """Run the rounds that the ledger does not have yet, and record each; a run in which nobody ever trained fails.

    folder      for the final model, where the run has a folder
    stopping    of a run that can be resumed: it has checkpoints, and may be asked to stop after a round
    stop        ends the run early, by the accuracies on validation rows
    on_record   called with the record of every round
    log         sinks that get every round
    """
    checkpoints = None if stopping is None else folder
    privacy = privacy_of(recipe)
    host = Host.of(fleet, settings.rounds, ledger.book if privacy else no_account)
    audits = dict.fromkeys((*settings.audit, *target_of(fleet.server.learner).audits))
    objectives = [find_objective(name) for name in audits]
    draw_seed = int(ledger.meta().get(DRAW_SEED, settings.seed))
    with status_file(folder) as tell, Sinks(log, ledger, folder) as sinks:
        state = newest_state(checkpoints, ledger, recipe, fleet.load) if checkpoints else None
        state = state or first_state(fleet, host, recipe, settings.seed, ledger)
        sinks.log(ledger)
        validated = ledger.validated()  # where it ends already, a kill came between its last round and its end
        ended = stop is not None and bool(validated and state.history.participations) and stop(validated)
        for index in range(state.history.rounds + 1, settings.rounds + 1):
            if ended:
                break
            due = index % settings.evaluate_every == 0 or index == settings.rounds
            state, record = run_round(state, recipe, host, collect, draw_seed, due, objectives, tell)
            if stop is not None:
                validated.append(_validate(host, state))
                ended = index < settings.rounds and bool(state.history.participations) and stop(validated)
                text = f"stopped: accuracy on validation rows {validated[-1]:.4f}, at best {max(validated):.4f}"
                ending = (Note("stopped", "run", text),) if ended else ()
                record = replace(record, validation=validated[-1], notes=(*record.notes, *ending))
            if privacy is not None:  # every release that was booked counts, also of a round that a kill repeats
                record = replace(record, epsilon=epsilon_of_releases(privacy, ledger.releases()))
            if checkpoints is not None:
                # clients' test rows would choose the best model of a private run
                best = tests_one_model(recipe) and privacy is None
                write_models(checkpoints, ledger, fleet, state, record, best=best)
            ledger.append(record)  # after the models: a round that the ledger knows has its checkpoint
            sinks.log(ledger)
            for call in on_record:
                call(record)
            if stopping is not None and stopping.asked and index < settings.rounds:
                raise RunStopped(f"stopped after round {index} of {settings.rounds}")
        if not state.history.participations:
            left_out = (f"client {one.client}: {one.text}" for one in ledger.events(after=0) if one.kind == "left-out")
            reason = next(left_out, "the events of the run say why")
            raise RunFailed(f"nobody trained in {settings.rounds} rounds, so there is no model; {reason}")
        named = fleet.server.name_tensors(state.model)
        if folder is not None:
            write_final_models(folder, state, fleet, named)
        sinks.finish(partial(run_files, ledger, folder, state, named))
    return state


def _validate(host: Host, state: State) -> float:
    accuracy = host.clients.evaluate([state.model], on="validation")[0].accuracy
    if math.isnan(accuracy):
        raise RunFailed("run.stop uses validation rows, and no client that answered has any; set task.validation")
    return accuracy


def with_control(recipe: Recipe, server: ServerSetup) -> Recipe:
    """The recipe with the control that the clients' learner needs (SCAFFOLD, FedDyn)."""
    controls = () if server.control is None else (server.control,)
    return replace(recipe, server=replace(recipe.server, controls=controls)) if controls else recipe


def tests_one_model(recipe: Recipe) -> bool:
    """Whether all clients are tested on one model."""
    return "shared test" in declared(recipe.models, "gives")


def first_state(fleet: Fleet, host: Host, recipe: Recipe, seed: int, ledger: Ledger) -> State:
    """The state before round 1: the learner's first model, centred, and what the recipe's models make of it."""
    server = fleet.server
    model, events = server.first_model(derive(seed, "model")), list[Event]()
    if server.centre is not None:
        limit = server.limits.get(SAMPLES)
        model, dropped, about = centre_model(model, server.learner, fleet, server.centre, limit)
        left_out = [Event(0, one, "left-out", f"of the mean input: {why}") for one, why in sorted(dropped.items())]
        events += [Event(0, None, "centre", about), *left_out]
    state, notes = initial_state(recipe, host, model, seed)
    events += [Event(0, note.client, note.kind, note.text) for note in notes]
    target = target_of(server.learner).about
    events += [Event(0, None, "target", target)] if target else []
    for event in (*events, *(Event(0, None, "data", text) for text in server.notes)):
        ledger.note(event)
    return state


def newest_state(
    folder: Path, ledger: Ledger, recipe: Recipe, load: Callable[[Path, int], bool] = lambda run, index: True
) -> State | None:
    """The state after the newest round with an intact checkpoint; later rounds are forgotten and done again.

    `load` gives clients what they had after a round; a round of which that cannot be had is not intact.
    """
    checkpoint = read_checkpoint(folder, ledger.last_round(), ledger.identity())
    while checkpoint and not load(folder, checkpoint[2]):
        checkpoint = read_checkpoint(folder, checkpoint[2] - 1, ledger.identity())
    ledger.forget_after(checkpoint[2] if checkpoint else -1)  # the initial phase is noted at round 0
    if checkpoint is None:
        return None
    model, own, _ = checkpoint
    return State(model, ledger.history(recipe.remembers), own)


def write_models(folder: Path, ledger: Ledger, fleet: Fleet, state: State, record: Record, *, best: bool) -> None:
    """What a killed run goes on from: the clients' own models, the best so far, and the checkpoint."""
    fleet.save(folder, record.index)
    evaluation = record.evaluation
    if best and evaluation is not None and evaluation.accuracy > ledger.best_accuracy():
        write_model(folder / BEST, state.model, record.index, fleet.server.name_tensors(state.model))
    write_checkpoint(folder, state, ledger.identity())


def write_final_models(folder: Path, state: State, fleet: Fleet, named: NamedTensors | None) -> None:
    """The run's model, personal models, and the models that clients chose from; checkpoints are not needed any more."""
    if any_saved(folder):
        copy_out(folder, folder / PERSONAL)
    rounds, models = state.history.rounds, models_in(state)
    write_model(folder / MODEL, state.model, rounds, named)
    for number, model in enumerate(models if len(models) > 1 else ()):
        (folder / CLUSTERS).mkdir(exist_ok=True)
        write_model(folder / CLUSTERS / f"{number}.safetensors", model, rounds, fleet.server.name_tensors(model))
    remove_checkpoints(folder)


def run_files(
    ledger: Ledger, folder: Path | None, state: State, named: NamedTensors | None, scratch: Path
) -> list[Path]:
    """The files of a run that sinks keep: its model, and its report where one can be made (it needs plotly)."""
    model, page = (folder or scratch) / MODEL, scratch / "report.html"
    if folder is None:
        write_model(model, state.model, state.history.rounds, named)
    with suppress(UserError):
        Run(ledger, state.model, folder=folder).report(page)
    return [model, *([page] if page.exists() else [])]


@contextmanager
def resumable(folder: Path, way_out: str) -> Iterator[None]:
    """A full disk ends a run in a way that can be resumed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunFailed(f"no space left for {folder} ({error.strerror}); make room and {way_out}") from error
    except sqlite3.OperationalError as error:
        raise RunFailed(f"cannot write the ledger of {folder}: {error}; make room and {way_out}") from error
