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

from fedmerit.config.schema import Config, make_config
from fedmerit.config.task import TABLE
from fedmerit.config.trust import only_trusted_parts
from fedmerit.core.learner import Learner, NamedLearner
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.shared import LocalModel
from fedmerit.core.objectives import direction, measure_label
from fedmerit.core.types import Matrix, Model
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.engine.estimator import Estimator, make_estimator
from fedmerit.engine.onnx_file import onnx_bytes
from fedmerit.errors import ConfigError, DataError, FolderError, NoteWarning
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.frames import Frame, run_frame
from fedmerit.store.ledger import Event, Ledger, kept_recipe
from fedmerit.store.model_files import file_hashes, read_model, read_tensors
from fedmerit.store.reasons import why
from fedmerit.store.run_folder import CLUSTERS, DATA, ENCODER, LEDGER, MODEL, PACKAGES, PERSONAL, open_ledger
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import make_federation, make_learner, make_task


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run: its ledger and final model, reasons of weights, tables, predictions and an HTML report.

    ledger   all rounds: weights, evaluations, events
    model    the final model as one float32 vector
    learner  trains and predicts; None for a run from a configuration, which names it
    folder   the run folder; None for a run in memory
    encoder  converts table rows to inputs; None for a run without a table
    trust    import the Python parts that the folder names, also those that this machine has not run before

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
    trust: bool = False

    @classmethod
    def load(cls, folder: Path | str, learner: Learner | None = None, *, trust: bool = False) -> Run:
        """Load a run from its folder; `learner` is needed for runs of `federate`, which have no configuration.

        With `trust`, code that the folder names is imported, also if this machine has not run it before.
        """
        ledger = open_ledger(Path(folder))
        model = read_model(Path(folder) / MODEL, ledger.files().get(MODEL))
        if model is None:
            raise FolderError(
                f"{folder} has no finished run: its {MODEL} is missing, damaged or replaced; resume the run with "
                f"`fedmerit run --resume {folder}`, or check it with `fedmerit verify {folder}`"
            )
        return cls(ledger, model[0], learner, Path(folder), trust=trust)

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

    def estimator(self, client: int | str | None = None) -> Estimator:
        """The final model in scikit-learn's form: `predict`, `predict_proba`, `feature_names_in_`, `classes_`.

        client  use this client's personal model, by name or number; default: the shared model

        A model that predicts numbers has no `predict_proba`.

        >>> from fedmerit import fedavg, federate, load_task
        >>> task = load_task("digits", clients=4)
        >>> run = federate(task, fedavg(), rounds=1, fraction=1.0)
        >>> run.estimator().predict(task.federation.test.x[:5]).shape
        (5,)
        """
        encoder, model = self._encoder(), self._model(client)
        return make_estimator(self._learner(), model, encoder)

    def write_onnx(self, path: Path | str, x: Any = None, *, force: bool = False) -> None:
        """Write the final model to a new ONNX file, after a check that ONNX, torch and `estimator` agree to 1e-5.

        path   the file to write
        x      example rows; needed for runs of `federate` on arrays
        force  overwrite an existing file

        For a run on a table, the file's inputs are the raw columns and its outputs the names and probabilities of the
        classes; it contains the medians and scales of each client. Needs the extra `onnx`.
        """
        check_new_file(Path(path), "another path", force=force)
        encoder = self._encoder()
        if x is None and encoder is None:
            config = _config(self.ledger, "example rows; give some: run.write_onnx(path, x)")
            with only_trusted_parts(self.trust):
                x = make_task(config).federation.train.x[:16]
        if encoder is not None and self.ledger.rounds()[-1]["epsilon"] is not None:
            text = f"{path} contains medians and scales of clients, which epsilon does not cover; do not publish it"
            warnings.warn(text, NoteWarning, stacklevel=2)
        versions = {name: value for name, value in self.ledger.meta().items() if name in PACKAGES}
        facts = {"rounds": str(self.ledger.last_round()), "ledger": self.ledger.head()}
        content = onnx_bytes(self.estimator(), self.module(), x, facts | versions)
        write_new_file(Path(path), content, "another path")

    def _learner(self) -> Learner:
        if self.learner is not None:
            return self.learner
        config = _config(self.ledger, "its learner; give it: Run.load(folder, learner=...)")
        with only_trusted_parts(self.trust):
            return make_learner(config.task, config.train, self._encoder())

    def _encoder(self) -> Encoder | None:
        return self.encoder or read_encoder(self.folder, self.ledger)

    def _model(self, client: int | str | None) -> Model:
        """The shared model, or a client's personal model."""
        if client is None:
            check_shared(self.ledger)
            return self.model
        number = self.ledger.find_client(client)
        file = f"{PERSONAL}/{number}.safetensors"
        personal = None if self.folder is None else read_model(self.folder / file, self.ledger.files().get(file))
        if personal is None:
            name = self.ledger.names()[number]
            raise FolderError(
                f"{name!r} has no personal model in this run; only runs of recipes with personal models, in a folder, "
                f"have them ({PERSONAL}/)"
            )
        return personal[0]

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

    def _repr_html_(self) -> str:
        """For notebooks: the run in one line, and the reason of each weight in the last round."""
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.why().splitlines())
        return f"<p>{html.escape(repr(self))}</p><ul>{lines}</ul>"

    def __repr__(self) -> str:
        rounds, clients = self.ledger.last_round(), len(self.ledger.names())
        return f"<Run: {rounds} rounds, {clients} clients, {measure_label(self.measure)} {self.value:.4f}>"


def write_data(folder: Path, federation: Federation) -> None:
    """Write the encoder of table rows and the data report next to the model."""
    if federation.encoder is not None:
        write_new_file(folder / ENCODER, federation.encoder.to_json())
    if federation.data is not None:
        write_new_file(folder / DATA, federation.data.to_json())


def read_encoder(folder: Path | None, ledger: Ledger) -> Encoder | None:
    """Read the encoder from the run folder, or make it from the configuration's table; None without a table."""
    if stored := stored_encoder(folder, ledger):
        return stored
    values = json.loads(ledger.meta().get("config", "null")) or {}
    if not str(values.get("task", {}).get("data", "")).startswith(TABLE):
        return None
    config = make_config(values)
    return make_federation(config.task, config.run.seed).encoder


def stored_encoder(folder: Path | None, ledger: Ledger) -> Encoder | None:
    """Read the encoder from the run folder; None if it has none, FolderError if it is not the run's."""
    kept = ledger.files().get(ENCODER)
    if folder is None or (kept is None and not (folder / ENCODER).is_file()):
        return None
    if file_hashes(folder, [ENCODER]) != {ENCODER: kept}:
        raise FolderError(f"{folder / ENCODER} is missing or not the run's; see `fedmerit verify {folder}`")
    return Encoder.from_json((folder / ENCODER).read_text(encoding="utf-8"))


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
