"""The training loop: run rounds from the newest checkpoint until the run is finished or stopped."""

import errno
import math
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeAlias

from fedmerit.config.privacy import epsilon_of_releases
from fedmerit.config.schema import RunConfig
from fedmerit.core.collect.attacked import with_attackers
from fedmerit.core.collect.collect import Collect
from fedmerit.core.collect.memory import ask_everyone_first
from fedmerit.core.host import Fleet, Host, ServerSetup, no_account
from fedmerit.core.learner import Learner, base_hash, wrong_base
from fedmerit.core.models.clusters import models_in
from fedmerit.core.objectives import direction, find_objective, measure_label
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.seeds import derive
from fedmerit.core.state import Record, State
from fedmerit.core.targets import target_of
from fedmerit.core.types import ACCURACY, EMPTY, Note
from fedmerit.engine.measure import on_rows, tests_one_model, with_final_numbers
from fedmerit.errors import FolderError, RunFailed, RunStopped
from fedmerit.fleet.personal import copy_out
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import (
    file_hashes,
    model_content,
    model_paths,
    read_checkpoint,
    remove_checkpoints,
    write_checkpoint,
    write_content,
    write_model,
)
from fedmerit.store.run_folder import BASE, BEST, CLUSTERS, DATA, DRAW_SEED, ENCODER, MODEL, PERSONAL
from fedmerit.store.status import status_file
from fedmerit.tasks.encoding import Encoder

OnRecord: TypeAlias = Callable[[Record], None]
Stop: TypeAlias = Callable[[Sequence[float]], bool]
"""A stopping rule: the measure on validation rows after each round so far -> whether to stop.

Higher is better: errors such as `mae` come with a minus.
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """A context manager that handles Ctrl-C and SIGTERM: `asked` is True after the first signal.

    The first signal ends a run after its round, the second ends it at once.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # other threads cannot handle signals
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
) -> State:
    """Run the rounds that the ledger does not have yet; raise RunFailed if no client ever trained.

    folder      the run folder, for the final model
    stopping    makes the run resumable: it writes checkpoints, and stops after a round on Ctrl-C
    stop        rule for early stopping
    on_record   called with the record of every round
    """
    collect = with_attackers(ask_everyone_first(collect, recipe.memory), fleet, recipe)
    checkpoints = None if stopping is None else folder
    privacy = privacy_of(recipe)
    host = Host.of(fleet, settings.rounds, ledger.book if privacy else no_account)
    learner, measure = fleet.server.learner, ledger.measure
    audits = dict.fromkeys((*settings.audit, *target_of(learner).audits, *([measure] if measure != ACCURACY else [])))
    objectives = [find_objective(name) for name in audits]
    host = replace(host, measure=None if settings.measure is None else find_objective(settings.measure))
    sign, classes = direction(measure), class_names(folder)
    draw_seed = int(ledger.meta().get(DRAW_SEED, settings.seed))
    check_base(ledger, learner)
    with status_file(folder) as tell:
        state = newest_state(checkpoints, ledger, recipe, fleet.load) if checkpoints else None
        if state is None:
            state = first_state(fleet, host, recipe, settings.seed, ledger)
            ledger.seal(0, {} if folder is None else file_hashes(folder, (ENCODER, DATA)))
        validated = ledger.validated()  # if these already stop the run, it was killed after its last round
        ended = stop is not None and bool(validated and state.history.participations) and stop(_signed(validated, sign))
        for index in range(state.history.rounds + 1, settings.rounds + 1):
            if ended:
                break
            due = index % settings.evaluate_every == 0 or index == settings.rounds
            state, record = run_round(state, recipe, host, collect, draw_seed, due, objectives, tell)
            record = replace(record, measure=measure)
            if stop is not None:
                validated.append(_validate(host, state, measure))
                signed = _signed(validated, sign)
                ended = index < settings.rounds and bool(state.history.participations) and stop(signed)
                best_so_far = sign * max(signed)
                words = f"validation {measure_label(measure)} is {validated[-1]:.4f}, the best was {best_so_far:.4f}"
                text = f"stopped early: {words}"
                ending = (Note("stopped", "run", text),) if ended else ()
                record = replace(record, validation=validated[-1], notes=(*record.notes, *ending))
            if ended or index == settings.rounds:
                private = privacy is not None
                record = with_final_numbers(record, host, state, recipe, learner, classes, private=private)
            if privacy is not None:  # every recorded release counts, also one of a round that was killed and repeated
                record = replace(record, epsilon=epsilon_of_releases(privacy, ledger.releases()))
            files: Mapping[str, str] = EMPTY
            if checkpoints is not None:
                # the best model is chosen on clients' test rows, which the privacy accounting does not cover
                best = tests_one_model(recipe) and privacy is None
                files = write_models(checkpoints, ledger, fleet, state, record, best=best)
            ledger.append(record, files=files)  # after the models, so that every round in the ledger has a checkpoint
            for call in on_record:
                call(record)
            if stopping is not None and stopping.asked and index < settings.rounds:
                raise RunStopped(f"stopped after round {index} of {settings.rounds}")
        if not state.history.participations:
            events = (event for event in ledger.events() if event.kind == "left-out")
            reason = next((f"client {event.client}: {event.text}" for event in events), "see the events of the run")
            raise RunFailed(f"no client trained in {settings.rounds} rounds, so there is no model; {reason}")
        if folder is not None:
            write_final_models(folder, ledger, state, fleet)
    return state


def _signed(values: Sequence[float], sign: int) -> list[float]:
    """The values with errors negated, so that higher is better."""
    return [sign * value for value in values]


def _validate(host: Host, state: State, measure: str) -> float:
    """The measure of the model on all clients' validation rows."""
    if measure == ACCURACY:
        value = host.clients.evaluate([state.model], on="validation")[0].accuracy
    else:
        value = on_rows(host, state, measure, "validation")
    if math.isnan(value):
        raise RunFailed(
            f"run.stop needs validation rows with a defined {measure_label(measure)}, and no client that answered has "
            "any; set task.validation, for example 0.1"
        )
    return value


def class_names(folder: Path | None) -> tuple[str, ...]:
    """The names of a table's classes, from the encoder in the run folder; empty without one."""
    if folder is None or not (folder / ENCODER).is_file():
        return ()
    return Encoder.from_json((folder / ENCODER).read_text(encoding="utf-8")).labels or ()


def with_control(recipe: Recipe, server: ServerSetup) -> Recipe:
    """Add the server-side control variates that the clients' learner needs (SCAFFOLD, FedDyn) to a recipe."""
    controls = () if server.control is None else (server.control,)
    return replace(recipe, server=replace(recipe.server, controls=controls)) if controls else recipe


def check_base(ledger: Ledger, learner: Learner) -> None:
    """Note the hash of the learner's base before round 1; raise an error if that of the rounds so far differs."""
    known, here = ledger.meta().get(BASE, ""), base_hash(learner)
    if here and not known and not ledger.last_round():
        ledger.describe(BASE, here)
    elif wrong := wrong_base(known, here):
        raise FolderError(f"the run cannot be resumed: {wrong}")


def first_state(fleet: Fleet, host: Host, recipe: Recipe, seed: int, ledger: Ledger) -> State:
    """Make the state before round 1: the learner's first model, and the recipe's models."""
    server = fleet.server
    model, events = server.first_model(derive(seed, "model")), list[Event]()
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
    """Load the state after the newest round with an intact checkpoint, and remove later rounds from the ledger.

    `load(run, index)` restores the clients' state after a round, and returns False if it is not intact.
    """
    identity, kept = ledger.identity(), ledger.files()
    checkpoint = read_checkpoint(folder, ledger.last_round(), identity, kept)
    while checkpoint and not load(folder, checkpoint[2]):
        checkpoint = read_checkpoint(folder, checkpoint[2] - 1, identity, kept)
    ledger.forget_after(checkpoint[2] if checkpoint else -1)  # -1 also removes the events before round 1
    if checkpoint is None:
        return None
    model, parts, _ = checkpoint
    return State(model, ledger.history(recipe.remembers), parts)


def write_models(
    folder: Path, ledger: Ledger, fleet: Fleet, state: State, record: Record, *, best: bool
) -> dict[str, str]:
    """Write what a killed run resumes from: personal models, the best model so far, and the checkpoint.

    Returns the checkpoint's name and seal, for the ledger.
    """
    fleet.save(folder, record.index)
    if best and record.evaluation is not None and ledger.is_best(record):
        write_model(folder / BEST, state.model, record.index, fleet.server.name_tensors(state.model))
    return write_checkpoint(folder, state, ledger.identity())


def write_final_models(folder: Path, ledger: Ledger, state: State, fleet: Fleet) -> None:
    """Write personal models, cluster models and the final model, and remove the checkpoints.

    The ledger gets their seals before the final model is there: a run with a final model is complete.
    """
    copy_out(folder, folder / PERSONAL)
    rounds, models = state.history.rounds, models_in(state)
    for number, model in enumerate(models if len(models) > 1 else ()):
        (folder / CLUSTERS).mkdir(exist_ok=True)
        write_model(folder / CLUSTERS / f"{number}.safetensors", model, rounds, fleet.server.name_tensors(model))
    content, seal = model_content(state.model, rounds, fleet.server.name_tensors(state.model))
    others = [path.relative_to(folder).as_posix() for path in model_paths(folder) if path != folder / MODEL]
    ledger.seal(rounds, file_hashes(folder, (ENCODER, DATA, *others)) | {MODEL: seal})
    write_content(folder / MODEL, content)
    remove_checkpoints(folder)


@contextmanager
def resumable(folder: Path, way_out: str) -> Iterator[None]:
    """Turn the errors of a full disk into RunFailed; `way_out` says how to continue."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunFailed(f"the disk of {folder} is full ({error.strerror}); free some space and {way_out}") from error
    except sqlite3.OperationalError as error:
        raise RunFailed(f"cannot write the ledger of {folder}: {error}; free some space and {way_out}") from error
