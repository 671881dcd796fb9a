"""A finished run: its ledger and its model, why clients got their weights, tables, a page, predictions, ONNX."""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import Config, make_config
from fedmerit.config.task import TABLE
from fedmerit.core.learner import Learner, NamedLearner
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.shared import LocalModel
from fedmerit.core.targets import has_probabilities, target_of
from fedmerit.core.types import Matrix, Model
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.errors import ConfigError, DataError, FolderError, NoteWarning
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.frames import Frame, run_frame
from fedmerit.store.ledger import Event, Ledger, kept_recipe
from fedmerit.store.model_files import read_model, read_tensors
from fedmerit.store.reasons import why
from fedmerit.store.run_folder import CLUSTERS, ENCODER, LEDGER, MODEL, PERSONAL, open_ledger
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.formats.table_files import read_frame, read_table
from fedmerit.tasks.registry import make_federation, make_learner, make_task


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run: its ledger and its final model; `explain` says why each client got its weight.

    >>> from fedmerit import fedavg, federate, load_task
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
        if tensors is None:
            learner = self._learner()
            if not isinstance(learner, NamedLearner):
                raise ConfigError(
                    f"the learner {type(learner).__name__} has no names for its model's parts; use run.model"
                )
            named = learner.name_tensors(model)
            tensors = {name: values for name, values in named.tensors.items() if name not in named.beside}
        import torch

        return {name: torch.from_numpy(values) for name, values in tensors.items()}

    def module(self, build: Callable[[], Any] | None = None, client: int | str | None = None) -> Any:
        """A torch module with the final model, in evaluation mode; `build` makes it where the run cannot know how."""
        build = build or getattr(self._learner(), "build", None)
        if build is None:
            name = type(self._learner()).__name__
            raise ConfigError(f"a torch module comes from a TorchLearner; this run's learner is {name}")
        module = build()
        try:
            module.load_state_dict(self.state_dict(client))
        except RuntimeError as error:
            raise DataError(f"`build` makes another module than the run trained: {error}") from None
        return module.float().eval()

    def predict(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """The class of each row of `x`, or its number or labels; by a client's personal model where it has one.

        `x` is an array laid out as the task's rows are. Where the run learned from a table, `x` may also be a frame, or
        the path of a CSV or Parquet file, with columns of the same names: words, gaps and scales are treated as those
        of the row's client were in training, and `labels` has the words of the classes.

        >>> from fedmerit import fedavg, federate, load_task
        >>> task = load_task("digits", clients=4)
        >>> run = federate(task, fedavg(), rounds=1, fraction=1.0)
        >>> run.predict(task.federation.test.x[:5]).shape
        (5,)
        """
        return self._predict(x, client)

    def predict_proba(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """The probability of each class for each row of `x`: (rows, classes)."""
        return self._predict(x, client, proba=True)

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
        if getattr(self._learner(), "inputs", None) is not None:
            raise ConfigError(
                "the ONNX file is made of a module with one input, and this one takes several: use torch.onnx.export "
                "with run.module()"
            )
        if x is None:
            config = _config(self.ledger, "what its rows look like; give some: run.write_onnx(path, x)")
            x = make_task(config).federation.train.x[:2]
        _write_onnx(self.module(), as_rows(x), Path(path))

    def _learner(self) -> Learner:
        if self.learner is not None:
            return self.learner
        config = _config(self.ledger, "which learner it used; give it: Run.load(folder, learner=...)")
        return make_learner(config.task, config.train, self._encoder())

    def _encoder(self) -> Encoder | None:
        return self.encoder or read_encoder(self.folder, self.ledger)

    def _model(self, client: int | str | None) -> Model:
        """The shared model, or a client's personal one."""
        if client is None:
            check_shared(self.ledger)
            return self.model
        number = self.ledger.find_client(str(client))
        found = None if self.folder is None else read_model(self.folder / PERSONAL / f"{number}.safetensors")
        if found is None:
            name = self.ledger.names()[number]
            raise FolderError(f"{name!r} has no personal model here; runs keep them in their folder's {PERSONAL}/")
        return found[0]

    def _predict(self, x: Any, client: int | str | None, *, proba: bool = False) -> NDArray[Any]:
        """The class of each row (or its number, or its labels), or the probability of each class or label."""
        learner, model, rows = self._learner(), self._model(client), as_rows(table_rows(self._encoder(), x))
        if proba and target_of(learner).kind == "number":
            raise ConfigError("this run predicts numbers, which have no probabilities; use predict")
        if proba and not has_probabilities(learner):
            raise ConfigError(f"the learner {type(learner).__name__} has no method `predict_proba`; ask for classes")
        try:
            return learner.predict_proba(model, rows) if proba else learner.predict(model, rows)  # type: ignore[attr-defined]
        except (RuntimeError, ValueError, IndexError) as error:  # what torch and numpy raise of shapes that do not fit
            raise DataError(f"the model does not take rows of shape {rows.shape[1:]}: {error}") from None

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

        >>> from fedmerit import fedavg, federate, load_task
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


def write_encoder(folder: Path, encoder: Encoder | None) -> None:
    """Keep beside the model how rows of its table become inputs."""
    if encoder is not None:
        write_new_file(folder / ENCODER, encoder.to_json())


def read_encoder(folder: Path | None, ledger: Ledger) -> Encoder | None:
    """As the run's folder keeps it, or from the table that its configuration names; None where it had no table."""
    if folder is not None and (folder / ENCODER).is_file():
        return Encoder.from_json((folder / ENCODER).read_text(encoding="utf-8"))
    kept = json.loads(ledger.meta().get("config", "null")) or {}
    if not str(kept.get("task", {}).get("data", "")).startswith(TABLE):
        return None
    config = make_config(kept)
    return make_federation(config.task, config.run.seed).encoder


def _config(ledger: Ledger, unknown: str) -> Config:
    kept = json.loads(ledger.meta().get("config", "null"))
    if not kept or "task" not in kept:
        raise ConfigError(f"a run of Python objects does not keep {unknown}")
    return make_config(kept)


def check_shared(ledger: Ledger) -> None:
    """Refuse to speak of one model where each client has its own."""
    recipe = kept_recipe(ledger)
    models = None if recipe is None else recipe.models
    if isinstance(models, PersonalModels | LocalModel):
        raise ConfigError("each client of this run has a personal model; say whose, for example client=3")
    if isinstance(models, ClusterModels):
        raise ConfigError(
            f"this run has {models.count} models, of which clients choose; read one from its folder's "
            f"{CLUSTERS}/, for example {CLUSTERS}/1.safetensors"
        )


def table_rows(encoder: Encoder | None, x: Any) -> NDArray[Any]:
    """Rows of a frame, or of a file that a path names, as inputs; arrays are inputs already.

    What the run never saw, such as a new word, comes as a `NoteWarning`.
    """
    if isinstance(x, str | Path):
        table = read_table(Path(x))
    elif encoder is None or isinstance(x, np.ndarray | list | tuple) or not hasattr(x, "columns"):
        return np.asarray(x)
    else:
        table = read_frame(x)
    if encoder is None:
        raise DataError(f"this run learned from arrays, and not from a table such as {table.source}; give an array")
    rows, notes = encoder(table)
    for note in notes:
        warnings.warn(note, NoteWarning, stacklevel=4)  # where `predict` is called
    return rows


def as_rows(x: Any) -> NDArray[Any]:
    """Rows as learners take them: images as uint8 or float32, features as float32, every value finite."""
    rows = np.asarray(x)
    if rows.dtype == object or rows.dtype.kind not in "biuf":
        raise DataError(f"rows are numbers, one line per row; got values of type {rows.dtype}")
    if rows.ndim < 2:
        raise DataError(
            f"rows are a table (rows, features) or images (rows, height, width, channels); got {rows.shape}"
        )
    rows = rows if rows.dtype == np.uint8 else np.ascontiguousarray(rows, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise DataError(
            f"row {int(np.argwhere(~np.isfinite(rows))[0][0])} holds NaN or infinity; put in a number first"
        )
    return rows


def _write_onnx(module: Any, example: NDArray[Any], path: Path) -> None:
    """The module as an ONNX file that takes any number of rows; `example` are a few of them."""
    import torch

    from fedmerit.learn.inputs import Inputs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own parts among themselves
        try:
            torch.onnx.export(
                module,
                (Inputs(torch.from_numpy(example), torch.empty(0))[:],),
                path,
                input_names=["x"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                external_data=False,
                verbose=False,
            )
        except ModuleNotFoundError as error:
            missing = f"ONNX export needs {error.name}, which is not installed: pip install onnx onnxscript"
            raise ConfigError(missing) from None
