"""A finished run: its ledger and its model, why clients got their weights, tables, a page, predictions."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from fedmerit.core.learner import Learner
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.types import Matrix, Model
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.engine.trained import (
    check_one_input,
    check_shared,
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
    write_onnx,
)
from fedmerit.errors import FolderError
from fedmerit.store.files import check_new_file
from fedmerit.store.frames import Frame, run_frame
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.model_files import read_model, read_tensors
from fedmerit.store.reasons import why
from fedmerit.store.run_folder import LEDGER, MODEL, open_ledger
from fedmerit.tasks.encoding import Encoder


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

        >>> from fedmerit import fedavg, federate, load_task
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
