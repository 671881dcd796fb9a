"""The loop: rounds one after the other, from the newest checkpoint, until done or asked to stop."""

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
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeAlias

from fedmerit.config.run import make_collect as collect_of
from fedmerit.config.schema import Config, RunConfig
from fedmerit.core.check import first_reason
from fedmerit.core.collect.collect import Collect
from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import Fleet, Host, ServerSetup
from fedmerit.core.learner import NamedTensors
from fedmerit.core.models.clusters import models_in
from fedmerit.core.objectives import find_objective
from fedmerit.core.parts import declared
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.release import no_account
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.seeds import derive
from fedmerit.core.server.centring import centre_model
from fedmerit.core.state import OnStage, Record, State
from fedmerit.core.targets import target_of
from fedmerit.core.types import Note
from fedmerit.engine.account import Account
from fedmerit.engine.hours import ServerClock, SimulatedClock
from fedmerit.engine.sinks import Sinks
from fedmerit.engine.stopping import Stop, make_stop
from fedmerit.errors import RunFailed, RunStopped, UserError
from fedmerit.fleet.attacked import attacked
from fedmerit.fleet.personal import any_saved, copy_out
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import read_checkpoint, remove_checkpoints, write_checkpoint, write_model
from fedmerit.store.run_folder import BEST, CLUSTERS, DRAW_SEED, LEDGER, MODEL, PERSONAL
from fedmerit.store.status import status_file
from fedmerit.store.verify import write_sums
from fedmerit.tasks.attackers import find_attackers

OnRecord: TypeAlias = Callable[[Record], None]
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
    host: Host,
    recipe: Recipe,
    collect: Collect,
    settings: RunConfig,
    state: State,
    stop: Stop | None = None,
    validated: Sequence[float] = (),
    audits: Sequence[str] = (),
    on_stage: OnStage = lambda index, stage, clients: None,
) -> Iterator[tuple[State, Record]]:
    """The states and records of the rounds after a state, one by one; a run in which nobody ever trained fails.

    `stop` ends it early, by the accuracies on validation rows; `validated` are those up to this state. `audits` are
    objectives in addition to those of the settings.
    """
    reason, so_far = "", list(validated)
    if stop is not None and so_far and state.history.participations and stop(so_far):
        return  # it was killed between its last round and its end
    objectives = [find_objective(name) for name in dict.fromkeys((*settings.audit, *audits))]
    for index in range(state.history.rounds + 1, settings.rounds + 1):
        due = index % settings.evaluate_every == 0 or index == settings.rounds
        state, record = run_round(state, recipe, host, collect, settings.seed, due, objectives, on_stage)
        reason = reason or (first_reason(record.dropped) if record.dropped else "")
        ended = False
        if stop is not None:
            so_far.append(_validate(host, state))
            ended = index < settings.rounds and bool(state.history.participations) and stop(so_far)
            record = replace(record, validation=so_far[-1], notes=(*record.notes, *_ending(so_far, ended)))
        yield state, record
        if ended:
            return
    if not state.history.participations:
        raise RunFailed(
            f"nobody trained in {settings.rounds} rounds, so there is no model; "
            f"{reason or 'the events of the run say why'}"
        )


def _ending(validated: Sequence[float], ended: bool) -> tuple[Note, ...]:
    text = f"stopped: accuracy on validation rows {validated[-1]:.4f}, at best {max(validated):.4f}"
    return (Note("stopped", "run", text),) if ended else ()


def _validate(host: Host, state: State) -> float:
    accuracy = host.clients.evaluate([state.model], on="validation")[0].accuracy
    if math.isnan(accuracy):
        raise RunFailed("run.stop goes by validation rows, and no client that answered has any; set task.validation")
    return accuracy


def run_into(
    folder: Path, config: Config, recipe: Recipe, fleet: Fleet, on_record: OnRecord | None, log: Sequence[str] = ()
) -> None:
    """Rounds from the newest checkpoint, or from the beginning, to the end; kept in the folder, and logged to sinks."""
    fleet = attacked(fleet, find_attackers(config.task, len(fleet.server.names), config.run.seed))
    recipe, privacy = with_control(recipe, fleet.server), privacy_of(recipe)
    with (
        Stopping() as stopping,
        status_file(folder) as tell,
        Ledger.open(folder / LEDGER, write=True) as ledger,
        Sinks(log, ledger, folder) as sinks,
    ):
        account = Account(ledger, privacy) if privacy else None
        host = Host.of(fleet, config.run.rounds, account.book if account else no_account)
        state = newest_state(folder, ledger, recipe, fleet.load)
        state = state or first_state(fleet, host, recipe, config.run.seed, ledger)
        stop, collect = make_stop(config.run.stop), make_collect(config.run, recipe)
        draws = config.run.model_copy(update={"seed": int(ledger.meta().get(DRAW_SEED, config.run.seed))})
        sinks.log(ledger)
        rounds = run_rounds(host, recipe, collect, draws, state, stop, ledger.validated(), audits_of(fleet), tell)
        for after, record in rounds:
            state = after
            record = replace(record, epsilon=account.epsilon()) if account else record
            # clients' test rows would choose the best model of a private run
            keep_round(folder, ledger, fleet, state, record, best=tests_one_model(recipe) and privacy is None)
            sinks.log(ledger)
            if on_record:
                on_record(record)
            if stopping.asked and record.index < config.run.rounds:
                raise RunStopped(f"stopped after round {record.index} of {config.run.rounds}")
        if any_saved(folder):
            copy_out(folder, folder / PERSONAL)
        rounds_done, named = state.history.rounds, fleet.server.name_tensors(state.model)
        write_model(folder / MODEL, state.model, rounds_done, named)
        write_clusters(folder, state, fleet)
        remove_checkpoints(folder)
        sinks.finish(partial(run_files, ledger, folder, state, named))
    write_sums(folder)


def with_control(recipe: Recipe, server: ServerSetup) -> Recipe:
    """The recipe with the control that the clients' learner needs (SCAFFOLD, FedDyn)."""
    controls = () if server.control is None else (server.control,)
    return replace(recipe, server=replace(recipe.server, controls=controls)) if controls else recipe


def tests_one_model(recipe: Recipe) -> bool:
    """Whether all clients are tested on one model."""
    return "shared test" in declared(recipe.models, "gives")


def audits_of(fleet: Fleet) -> tuple[str, ...]:
    """The objectives that are always audited of what the learner predicts."""
    return target_of(fleet.server.learner).audits


def make_collect(settings: RunConfig, recipe: Recipe) -> Collect:
    """Which clients take part and which answers count, as [run] says; a private sample stays secret."""
    privacy, there = privacy_of(recipe), settings.availability
    hour_of = None
    if there is not None:
        hour_of = ServerClock(there.hours) if there.clock == "server" else SimulatedClock(there.start, there.minutes)
    return collect_of(settings, secret=privacy is not None and not privacy.reproducible, hour_of=hour_of)


def write_clusters(folder: Path, state: State, fleet: Fleet) -> None:
    """The models that clients chose from, where there are several; the first is also the run's model."""
    models, home = models_in(state), folder / CLUSTERS
    for number, model in enumerate(models if len(models) > 1 else ()):
        home.mkdir(exist_ok=True)
        write_model(home / f"{number}.safetensors", model, state.history.rounds, named=fleet.server.name_tensors(model))


def run_files(
    ledger: Ledger, folder: Path | None, state: State, named: NamedTensors | None, scratch: Path
) -> list[Path]:
    """The files of a run that sinks keep: its model, and its report where one can be made (it needs plotly)."""
    if folder is None:
        folder = scratch / "run"
        folder.mkdir()
        ledger.copy(folder / LEDGER)
        write_model(folder / MODEL, state.model, state.history.rounds, named)
    page, out = import_module("fedmerit.report.html"), scratch / "report.html"  # that room builds on this one
    with suppress(UserError):
        page.write_report([folder], out)
    return [folder / MODEL, *([out] if out.exists() else [])]


def first_state(fleet: Fleet, host: Host, recipe: Recipe, seed: int, ledger: Ledger) -> State:
    """The state before round 1: the learner's first model, centred, and what the recipe's models make of it."""
    server = fleet.server
    model = server.first_model(derive(seed, "model"))
    if server.centre is not None:
        limit = server.limits.get(SAMPLES)
        model, dropped, about = centre_model(model, server.learner, fleet, server.centre, limit)
        ledger.note(Event(0, None, "centre", about))
        for client, reason in sorted(dropped.items()):
            ledger.note(Event(0, client, "left-out", f"of the mean input: {reason}"))
    state, notes = initial_state(recipe, host, model, seed)
    for note in notes:
        ledger.note(Event(0, note.client, note.kind, note.text))
    if about := target_of(server.learner).about:
        ledger.note(Event(0, None, "target", about))
    for text in fleet.server.notes:
        ledger.note(Event(0, None, "data", text))
    return state


def keep_round(folder: Path, ledger: Ledger, fleet: Fleet, state: State, record: Record, *, best: bool) -> None:
    """First the models, then the ledger: a round that the ledger knows has its checkpoint."""
    fleet.save(folder, record.index)
    evaluation = record.evaluation
    if best and evaluation is not None and evaluation.accuracy > ledger.best_accuracy():
        write_model(folder / BEST, state.model, record.index, fleet.server.name_tensors(state.model))
    write_checkpoint(folder, state, ledger.identity())
    ledger.append(record)


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
