"""Runs: a recipe on a task, in memory or into a folder, on this machine or on any fleet."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from numpy.typing import NDArray

from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, make_config
from fedmerit.core.fleet import Fleet
from fedmerit.core.learner import Learner
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.selection import Selection, Uniform
from fedmerit.core.system import cores
from fedmerit.core.types import Matrix, Model
from fedmerit.core.weights import ClientWeight
from fedmerit.engine.loop import OnRecord, first_state, make_selection, play_into, play_rounds, resumable
from fedmerit.engine.preflight import check_task, check_waited
from fedmerit.engine.progress import Warner, progress_bar
from fedmerit.engine.stopping import Stop, check_stop, make_stop
from fedmerit.engine.trained import (
    check_one_input,
    check_shared,
    epochs_of,
    example_rows,
    learner_of,
    make_module,
    named_tensors,
    personal_model,
    predict,
    read_encoder,
    table_rows,
    to_torch,
    torch_build,
    write_encoder,
    write_onnx,
)
from fedmerit.errors import FolderError
from fedmerit.fleet.attacked import attacked
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.files import check_new_file
from fedmerit.store.frames import Frame, run_frame
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import read_model, read_tensors, remove_checkpoints, write_model
from fedmerit.store.reasons import why
from fedmerit.store.run_folder import (
    LEDGER,
    MODEL,
    check_new,
    config_to_resume,
    held,
    make_folder,
    open_ledger,
    recipe_meta,
)
from fedmerit.store.verify import SUMS, write_sums
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.registry import Task, make_task

Load: TypeAlias = Callable[[Config], Task]
"""How a run comes by its task; runs that share data may share its loading."""
GIB = 2**30
FEWEST = 10
"""Clients that `federate` draws for a round where nobody says how many."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run: its ledger and its final model; `explain` says why each client got its weight.

    >>> from fedmerit import fedavg, load_task
    >>> run = federate(load_task("digits", clients=4), fedavg(), rounds=1, fraction=1.0)
    >>> [round(client.weight, 2) for client in run.explain(1)]
    [0.25, 0.25, 0.25, 0.25]
    """

    ledger: Ledger
    model: Model
    learner: Learner | None = None
    folder: Path | None = None
    encoder: Encoder | None = None

    @classmethod
    def load(cls, folder: Path | str, learner: Learner | None = None) -> Run:
        """A run from its folder; `learner` is for runs of Python objects, which no configuration can name."""
        ledger, model = open_ledger(Path(folder)), read_model(Path(folder) / MODEL)
        if model is None:
            raise FolderError(f"{folder} does not hold a finished run: its {MODEL} is missing or damaged")
        return cls(ledger, model[0], learner, Path(folder))

    def state_dict(self, client: int | str | None = None) -> dict[str, Any]:
        """The final model as torch names it, ready for `module.load_state_dict`; of a client with a personal one, its.

        `model.safetensors` holds the same: `safetensors.torch.load_file` reads it without this library.
        """
        model = self._model(client)
        tensors = None if client is not None or self.folder is None else read_tensors(self.folder / MODEL)
        return to_torch(tensors or named_tensors(self._learner(), model))

    def module(self, build: Callable[[], Any] | None = None, client: int | str | None = None) -> Any:
        """A torch module with the final model, in evaluation mode; `build` makes it where the run cannot know how."""
        made = build or torch_build(self._learner())
        tensors = {name: values.numpy() for name, values in self.state_dict(client).items()}
        return make_module(made, tensors)

    def predict(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """The class of each row of `x`, or its number or labels; by a client's personal model where it has one.

        `x` is an array laid out as the task's rows are. Where the run learned from a table, `x` may also be a frame, or
        the path of a CSV or Parquet file, with columns of the same names: words, gaps and scales are treated as those
        of the row's client were in training, and `labels` has the words of the classes.

        >>> from fedmerit import fedavg, load_task
        >>> task = load_task("digits", clients=4)
        >>> run = federate(task, fedavg(), rounds=1, fraction=1.0)
        >>> run.predict(task.federation.test.x[:5]).shape
        (5,)
        """
        return predict(self._learner(), self._model(client), table_rows(self._encoder(), x))

    def predict_proba(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """The probability of each class for each row of `x`: (rows, classes)."""
        return predict(self._learner(), self._model(client), table_rows(self._encoder(), x), proba=True)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Where the run learned from a table: the words of the classes that `predict` numbers, or what it predicts."""
        encoder = self._encoder()
        return None if encoder is None else encoder.labels

    def write_onnx(self, path: Path | str, x: Any = None, *, force: bool = False) -> None:
        """The final model as a new ONNX file; `x` are example rows, where the run's task cannot give some.

        Needs the packages onnx and onnxscript, by which torch writes such files.
        """
        check_new_file(Path(path), "another path", force=force)
        check_one_input(self._learner())
        write_onnx(self.module(), example_rows(self.ledger) if x is None else x, Path(path))

    def _learner(self) -> Learner:
        return self.learner or learner_of(self.ledger, self._encoder())

    def _encoder(self) -> Encoder | None:
        return self.encoder or read_encoder(self.folder, self.ledger)

    def _model(self, client: int | str | None) -> Model:
        if client is None:
            check_shared(self.ledger)
            return self.model
        return personal_model(self.folder, self.ledger.names(), self.ledger.find_client(str(client)))

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

    def explain(self, number: int) -> list[ClientWeight]:
        """How each client of a round came to its weight."""
        return self.ledger.weights(number)

    def why(self, round: int | None = None, client: int | str | None = None) -> str:
        """Why a client, by name or number, got its weight in a round (default: the last), and what would change it.

        Without a client: a sentence for each of the round, the heaviest first.

        >>> from fedmerit import fedavg, load_task
        >>> run = federate(load_task("digits", clients=4), fedavg(), rounds=1, fraction=1.0)
        >>> print(run.why(round=1, client=3).partition(",")[0])
        client 3 got 24.97% of round 1
        """
        return why(self.ledger, round, None if client is None else self.ledger.find_client(str(client)))

    def frame(self, name: str) -> Frame:
        """A pandas.DataFrame: `rounds`, `clients`, `weights`, `rewards`, `audits`, `candidates` or `events`."""
        return run_frame(self.ledger, name)

    def events(self) -> list[Event]:
        """Who was left out and why, and the notes on the weights."""
        return self.ledger.events()

    def report(self, path: Path | str, *, force: bool = False) -> Path:
        """The run as one HTML file that opens offline: curves, weights, reasons; its path.

        `fedmerit report` and `fedmerit.report.html.write_report` put several runs or a study on one page.
        """
        page = import_module("fedmerit.report.html")  # that room builds on this one
        with TemporaryDirectory() as parent:
            folder = self.folder or Path(parent) / "run"
            if self.folder is None:
                folder.mkdir()
                self.ledger.copy(folder / LEDGER)
            page.write_report([folder], Path(path), force=force)
        return Path(path)

    def plot(self) -> Any:
        """A plotly figure: accuracy by round with its spread over the clients, and a map of the weights."""
        return import_module("fedmerit.report.figures").run_figure(self.ledger)

    def _repr_html_(self) -> str:
        """For notebooks: the run in a line, and why each client of the last round got its weight."""
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.why().splitlines())
        return f"<p>{html.escape(repr(self))}</p><ul>{lines}</ul>"

    def __repr__(self) -> str:
        rounds, clients = self.ledger.last_round(), len(self.ledger.names())
        return f"<Run: {rounds} rounds, {clients} clients, accuracy {self.accuracy:.4f}>"


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
                    `fedmerit.engine.stopping.EarlyStopping(patience=5)`, or any function

    What is to be known of the weights and of who was left out comes as a `NoteWarning`, each kind once.

    >>> from fedmerit import DS, LD, load_task, prioritized
    >>> run = federate(load_task("digits", clients=4), prioritized(LD, DS, normalise="max"), rounds=1, fraction=0.5)
    >>> len(run.explain(1))
    2
    """
    names = task.federation.names
    share = default_fraction(len(names)) if fraction is None else fraction
    settings = {"rounds": rounds, "fraction": share, "seed": seed, "evaluate_every": evaluate_every}
    config = make_config({"run": settings | {"workers": workers, "audit": tuple(audit)}})
    chosen = selection or Uniform(config.run.fraction)
    check_task(task, recipe, chosen, config.run.audit)
    check_stop(stop, task, recipe, evaluate_every)
    ledger = _new_ledger(out, recipe, config, names, epochs_of(task.learner))
    warn = Warner(names, stacklevel=4)  # where `federate` is called
    with LocalFleet(task, workers) as local, progress_bar(rounds, shown=progress) as advance:
        fleet = attacked(local, task.attackers)
        state = first_state(fleet, recipe, seed, ledger)
        for after, record in play_rounds(fleet, recipe, chosen, config.run, state, stop):
            state = after
            ledger.append(record)
            warn(record)
            advance(record)
            if on_record:
                on_record(record)
    if out is None:
        return Run(ledger, state.model, task.learner, encoder=task.federation.encoder)
    ledger.close()
    write_encoder(Path(out), task.federation.encoder)
    named = task.server().name_tensors(state.model)
    write_model(Path(out) / MODEL, state.model, state.history.rounds, named=named)
    write_sums(Path(out))
    return Run.load(out, task.learner)


def default_fraction(clients: int) -> float:
    """A tenth of the clients, but at least ten of them, or all: of eight hospitals all eight take part.

    >>> default_fraction(8), default_fraction(20), default_fraction(1000)
    (1.0, 0.5, 0.1)
    """
    return max(0.1, min(1.0, FEWEST / clients))


def _new_ledger(out: Path | str | None, recipe: Recipe, config: Config, names: Sequence[str], epochs: int) -> Ledger:
    """In memory, or in a new folder together with the settings that a report shows and groups runs by."""
    form = part_to_json(recipe)
    if out is None:
        return Ledger.create(None, names, recipe_meta(form) | {"epochs": str(epochs)})
    settings = {"recipe": json.loads(form), "run": config.run.model_dump(mode="json", exclude={"workers", "memory"})}
    settings["train"] = {"epochs": epochs}
    make_folder(Path(out), json.dumps(settings), names, form)
    return Ledger.open(Path(out) / LEDGER, write=True)


def run_config(config: Config, out: Path, on_record: OnRecord | None = None, load: Load = make_task) -> Run:
    """Run a configuration into a new folder: config.toml, ledger.db, model.safetensors, best.safetensors.

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"])
    >>> run_config(config, Path("runs/a")).rounds_to_target(0.0, share=1.0)
    1
    """
    check_new(out)
    check_waited(config)
    recipe = recipe_of(config)
    task = load(config)
    check_task(task, recipe, make_selection(config.run), config.run.audit, budget=config.run.budget_seconds)
    check_stop(make_stop(config.run.stop), task, recipe, config.run.evaluate_every)
    with resumable(out, "start again"):
        make_folder(out, config, task.federation.names, part_to_json(recipe))
    return _run_locally(out, config, recipe, task, on_record)


def resume(
    folder: Path,
    config: Config | None = None,
    on_record: OnRecord | None = None,
    load: Load = make_task,
) -> Run:
    """Resume a run that was stopped or killed, to the very bits of one that was not.

    A configuration may be given to make sure that it is the run's; only workers and memory may differ.

    >>> from fedmerit import load_config
    >>> run = run_config(load_config(None, ["task.clients=4", "run.rounds=1", "run.workers=1"]), Path("runs/b"))
    >>> bool((resume(Path("runs/b")).model == run.model).all())
    True
    """
    config = config_to_resume(folder, config)
    if read_model(folder / MODEL):
        remove_checkpoints(folder)  # a kill may have come in between
        if not (folder / SUMS).exists():
            write_sums(folder)
        return Run.load(folder)
    return _run_locally(folder, config, recipe_of(config), load(config), on_record)


def _run_locally(folder: Path, config: Config, recipe: Recipe, task: Task, on_record: OnRecord | None) -> Run:
    """On this machine, from the newest checkpoint or from the beginning."""
    workers, memory = config.run.workers or cores(), config.run.memory
    budget = None if memory is None else int(memory * GIB)
    with (
        held(folder),
        resumable(folder, f"use --resume {folder}"),
        LocalFleet(task, workers, budget, folder, config.run.deadline) as fleet,
    ):
        write_encoder(folder, task.federation.encoder)
        del task  # the fleet holds the data in shared memory now
        play_into(folder, config, recipe, fleet, on_record)
    return Run.load(folder)


def run_on(fleet: Fleet, config: Config, folder: Path, on_record: OnRecord | None = None) -> Run:
    """Run a configuration on any fleet into a folder; where a run was begun there, resume it.

    >>> from fedmerit import load_config
    >>> config = load_config(None, ["task.clients=4", "run.rounds=1"])
    >>> with LocalFleet(make_task(config), workers=1) as fleet:
    ...     run = run_on(fleet, config, Path("runs/c"))
    >>> run.ledger.last_round()
    1
    """
    recipe = recipe_of(config)
    if not folder.exists():
        with resumable(folder, "start again"):
            make_folder(folder, config, fleet.server.names, part_to_json(recipe))
    config = config_to_resume(folder, config)
    if not read_model(folder / MODEL):
        with held(folder), resumable(folder, "start again"):
            play_into(folder, config, recipe, fleet, on_record)
    return Run.load(folder)
