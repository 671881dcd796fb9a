"""A finished run: its ledger and model, reasons of weights, tables, an HTML report, predictions, ONNX."""

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
from fedmerit.core.objectives import direction, measure_label
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
    """A finished run: its ledger and final model, reasons of weights, tables, predictions and an HTML report.

    ledger   all rounds: weights, evaluations, events
    model    the final model as one float32 vector
    learner  trains and predicts; None for a run from a configuration, which names it
    folder   the run folder; None for a run in memory
    encoder  converts table rows to inputs; None for a run without a table

    `federate`, `run_config` and `Run.load` return it.

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
        """Load a run from its folder; `learner` is needed for runs of `federate`, which have no configuration."""
        ledger, model = open_ledger(Path(folder)), read_model(Path(folder) / MODEL)
        if model is None:
            raise FolderError(
                f"{folder} has no finished run: its {MODEL} is missing or damaged; resume the run with "
                f"`fedmerit run --resume {folder}`, or check it with `fedmerit verify {folder}`"
            )
        return cls(ledger, model[0], learner, Path(folder))

    def state_dict(self, client: int | str | None = None) -> dict[str, Any]:
        """The final model for torch's `module.load_state_dict`; with `client`, that client's personal model.

        `model.safetensors` has the same tensors; `safetensors.torch.load_file` reads them without fedmerit.
        """
        model = self._model(client)
        tensors = None if client is not None or self.folder is None else read_tensors(self.folder / MODEL)
        if tensors is None:
            learner = self._learner()
            if not isinstance(learner, NamedLearner):
                raise ConfigError(
                    f"the learner {type(learner).__name__} does not name the tensors of its model; use run.model"
                )
            named = learner.name_tensors(model)
            tensors = {name: values for name, values in named.tensors.items() if name not in named.beside}
        import torch

        return {name: torch.from_numpy(values) for name, values in tensors.items()}

    def module(self, build: Callable[[], Any] | None = None, client: int | str | None = None) -> Any:
        """Make a torch module with the final model, in evaluation mode; `build` is needed if the run has no module."""
        build = build or getattr(self._learner(), "build", None)
        if build is None:
            name = type(self._learner()).__name__
            raise ConfigError(
                f"run.module() needs a TorchLearner (this run's learner is {name}); give `build`, or use run.model"
            )
        module = build()
        try:
            module.load_state_dict(self.state_dict(client))
        except RuntimeError as error:
            raise DataError(f"the module of `build` differs from the one that the run trained: {error}") from None
        return module.float().eval()

    def predict(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """Predict the class of each row of `x`, or its number (regression) or labels (multi-label).

        x       an array with the layout of the task's rows. For a run on a table, also a data frame, or the path of a
                CSV or Parquet file with the same columns: texts, missing values and scales are encoded as in training
        client  predict with this client's personal model, by name or number; default: the shared model

        `labels` has the names of the classes.

        >>> from fedmerit import fedavg, federate, load_task
        >>> task = load_task("digits", clients=4)
        >>> run = federate(task, fedavg(), rounds=1, fraction=1.0)
        >>> run.predict(task.federation.test.x[:5]).shape
        (5,)
        """
        return self._predict(x, client)

    def predict_proba(self, x: Any, client: int | str | None = None) -> NDArray[Any]:
        """Predict the probability of each class for each row of `x`: an array (rows, classes)."""
        return self._predict(x, client, proba=True)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """For a run on a table: the names of the classes, in the order of `predict`; None without a table."""
        encoder = self._encoder()
        return None if encoder is None else encoder.labels

    def write_onnx(self, path: Path | str, x: Any = None, *, force: bool = False) -> None:
        """Write the final model to a new ONNX file; needs the packages onnx and onnxscript.

        path   the file to write
        x      example rows; needed for runs of `federate`, which have no configuration
        force  overwrite an existing file
        """
        check_new_file(Path(path), "another path", force=force)
        if getattr(self._learner(), "inputs", None) is not None:
            raise ConfigError(
                "ONNX export supports modules with one input, and this module has several; use torch.onnx.export with "
                "run.module()"
            )
        if x is None:
            config = _config(self.ledger, "example rows; give some: run.write_onnx(path, x)")
            x = make_task(config).federation.train.x[:2]
        _write_onnx(self.module(), as_rows(x), Path(path))

    def _learner(self) -> Learner:
        if self.learner is not None:
            return self.learner
        config = _config(self.ledger, "its learner; give it: Run.load(folder, learner=...)")
        return make_learner(config.task, config.train, self._encoder())

    def _encoder(self) -> Encoder | None:
        return self.encoder or read_encoder(self.folder, self.ledger)

    def _model(self, client: int | str | None) -> Model:
        """The shared model, or a client's personal model."""
        if client is None:
            check_shared(self.ledger)
            return self.model
        number = self.ledger.find_client(client)
        personal = None if self.folder is None else read_model(self.folder / PERSONAL / f"{number}.safetensors")
        if personal is None:
            name = self.ledger.names()[number]
            raise FolderError(
                f"{name!r} has no personal model in this run; only runs of recipes with personal models, in a folder, "
                f"have them ({PERSONAL}/)"
            )
        return personal[0]

    def _predict(self, x: Any, client: int | str | None, *, proba: bool = False) -> NDArray[Any]:
        """Predict classes, numbers or labels of rows; with `proba`, the probability of each class or label."""
        learner, model, rows = self._learner(), self._model(client), as_rows(table_rows(self._encoder(), x))
        if proba and target_of(learner).kind == "number":
            raise ConfigError("this run predicts numbers, which have no probabilities; use run.predict")
        if proba and not has_probabilities(learner):
            raise ConfigError(f"the learner {type(learner).__name__} has no method `predict_proba`; use run.predict")
        try:
            return learner.predict_proba(model, rows) if proba else learner.predict(model, rows)  # type: ignore[attr-defined]
        except (RuntimeError, ValueError, IndexError) as error:  # torch and numpy raise these for wrong shapes
            raise DataError(f"the model does not accept rows of shape {rows.shape[1:]}: {error}") from None

    @property
    def accuracy(self) -> float:
        """Accuracy over all clients' test rows after the last round; NaN without test rows."""
        accuracy = self.ledger.rounds()[-1]["accuracy"]
        return float("nan") if accuracy is None else float(accuracy)

    @property
    def measure(self) -> str:
        """What the run is judged by: the name of an objective, such as `accuracy` or `auc`."""
        return self.ledger.measure

    @property
    def value(self) -> float:
        """The measure over the clients' test rows after the last round; NaN if it is defined nowhere."""
        value = self.ledger.rounds()[-1]["value"]
        return float("nan") if value is None else float(value)

    @property
    def local_accuracy(self) -> Matrix:
        """Accuracy of each client (columns) in each evaluated round (rows)."""
        return self.ledger.local_accuracy()[1]

    def rounds_to_target(self, target: float, share: float, *, or_equal: bool = False) -> int | None:
        """The first round in which the measure of a share of the clients is better than `target`; None if never.

        With `or_equal`, a measure of exactly `target` counts, too.
        """
        lower = direction(self.measure) < 0
        return rounds_to_target(*self.ledger.local(), target, share, or_equal=or_equal, lower=lower)

    def explain(self, number: int) -> list[ClientWeight]:
        """The weight of each client in a round, with its facts, criteria, normalised values and score."""
        return self.ledger.weights(number)

    def why(self, round: int | None = None, client: int | str | None = None) -> str:
        """Explain in words why a client got its weight in a round, and what would change it.

        round   default: the last round, or the last one in which the client took part
        client  a name or number; without it, one sentence per client of the round, the largest weight first

        >>> from fedmerit import fedavg, federate, load_task
        >>> run = federate(load_task("digits", clients=4), fedavg(), rounds=1, fraction=1.0)
        >>> print(run.why(round=1, client=3).partition(",")[0])
        client 3 got 24.97% of round 1
        """
        return why(self.ledger, round, None if client is None else self.ledger.find_client(client))

    def frame(self, name: str) -> Frame:
        """Make a pandas.DataFrame: `rounds`, `clients`, `weights`, `rewards`, `audits`, `candidates` or `events`."""
        return run_frame(self.ledger, name)

    def events(self) -> list[Event]:
        """All events: clients left out with the reason, and notes on the weights."""
        return self.ledger.events()

    def report(self, path: Path | str, *, force: bool = False) -> Path:
        """Write an HTML report that opens offline, with curves, weights and reasons; return its path.

        `fedmerit report` also makes one page of several runs, or of a study.
        """
        page = import_module("fedmerit.report.html")  # a lazy import, because the report imports this module
        with TemporaryDirectory() as parent:
            folder = self.folder or Path(parent) / "run"
            if self.folder is None:
                folder.mkdir()
                self.ledger.copy(folder / LEDGER)
            page.write_report([folder], Path(path), force=force)
        return Path(path)

    def plot(self) -> Any:
        """Make a plotly figure: accuracy by round with its spread over the clients, and a map of the weights."""
        return import_module("fedmerit.report.figures").run_figure(self.ledger)

    def _repr_html_(self) -> str:
        """For notebooks: the run in one line, and the reason of each weight in the last round."""
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.why().splitlines())
        return f"<p>{html.escape(repr(self))}</p><ul>{lines}</ul>"

    def __repr__(self) -> str:
        rounds, clients = self.ledger.last_round(), len(self.ledger.names())
        return f"<Run: {rounds} rounds, {clients} clients, {measure_label(self.measure)} {self.value:.4f}>"


def write_encoder(folder: Path, encoder: Encoder | None) -> None:
    """Write the encoder of table rows next to the model."""
    if encoder is not None:
        write_new_file(folder / ENCODER, encoder.to_json())


def read_encoder(folder: Path | None, ledger: Ledger) -> Encoder | None:
    """Read the encoder from the run folder, or make it from the configuration's table; None without a table."""
    if folder is not None and (folder / ENCODER).is_file():
        return Encoder.from_json((folder / ENCODER).read_text(encoding="utf-8"))
    values = json.loads(ledger.meta().get("config", "null")) or {}
    if not str(values.get("task", {}).get("data", "")).startswith(TABLE):
        return None
    config = make_config(values)
    return make_federation(config.task, config.run.seed).encoder


def _config(ledger: Ledger, missing: str) -> Config:
    """The run's configuration; an error that names what is missing if the run has none."""
    values = json.loads(ledger.meta().get("config", "null"))
    if not values or "task" not in values:
        raise ConfigError(f"a run of `federate` does not store {missing}")
    return make_config(values)


def check_shared(ledger: Ledger) -> None:
    """Raise an error if the run has no model that all clients share."""
    recipe = kept_recipe(ledger)
    models = None if recipe is None else recipe.models
    if isinstance(models, PersonalModels | LocalModel):
        raise ConfigError("each client of this run has a personal model; choose a client, for example client=3")
    if isinstance(models, ClusterModels):
        raise ConfigError(
            f"this run has {models.count} cluster models and no shared one; read one from the run folder, for example "
            f"{CLUSTERS}/1.safetensors"
        )


def table_rows(encoder: Encoder | None, x: Any) -> NDArray[Any]:
    """Encode the rows of a data frame or a file as inputs; return arrays unchanged.

    Values that did not occur in training, such as a new text, give a `NoteWarning`.
    """
    if isinstance(x, str | Path):
        table = read_table(Path(x))
    elif encoder is None or isinstance(x, np.ndarray | list | tuple) or not hasattr(x, "columns"):
        return np.asarray(x)
    else:
        table = read_frame(x)
    if encoder is None:
        raise DataError(f"this run learned from arrays and cannot read the table {table.source}; give an array")
    rows, notes = encoder(table)
    for note in notes:
        warnings.warn(note, NoteWarning, stacklevel=4)  # the caller of `predict`
    return rows


def as_rows(x: Any) -> NDArray[Any]:
    """Convert rows to the types that learners accept: uint8 or float32, every value finite."""
    rows = np.asarray(x)
    if rows.dtype == object or rows.dtype.kind not in "biuf":
        raise DataError(f"rows must be numbers (got values of type {rows.dtype}); convert them first")
    if rows.ndim < 2:
        raise DataError(
            "rows must have the shape (rows, features) or (rows, height, width, channels) "
            f"(got {rows.shape}); for one row, use x[None]"
        )
    rows = rows if rows.dtype == np.uint8 else np.ascontiguousarray(rows, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise DataError(f"row {int(np.argwhere(~np.isfinite(rows))[0][0])} has NaN or infinity; replace it by a number")
    return rows


def _write_onnx(module: Any, example: NDArray[Any], path: Path) -> None:
    """Write a module to an ONNX file that accepts any number of rows; `example` has a few rows."""
    import torch

    from fedmerit.learn.inputs import Inputs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation warnings within torch
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
