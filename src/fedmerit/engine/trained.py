"""What a run trained, for use outside: its learner, torch's own tensors and module, predictions, tables, ONNX."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import Config, make_config
from fedmerit.config.task import TABLE
from fedmerit.core.learner import Learner, NamedLearner
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.shared import LocalModel
from fedmerit.core.targets import has_probabilities, target_of
from fedmerit.core.types import Model
from fedmerit.errors import ConfigError, DataError, FolderError, NoteWarning
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger, kept_recipe
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import CLUSTERS, ENCODER, PERSONAL
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.formats.table_files import read_frame, read_table
from fedmerit.tasks.registry import make_federation, make_learner, make_task

if TYPE_CHECKING:
    from torch import nn

Build = Callable[[], "nn.Module"]


def learner_of(ledger: Ledger, encoder: Encoder | None) -> Learner:
    """The learner that the run's configuration names; a run of Python objects has to be given its own."""
    config = _config(ledger, "which learner it used; give it: Run.load(folder, learner=...)")
    return make_learner(config.task, config.train, encoder)


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


def example_rows(ledger: Ledger) -> NDArray[Any]:
    """A few rows of the task that the run's configuration names."""
    config = _config(ledger, "what its rows look like; give some: run.write_onnx(path, x)")
    return make_task(config).federation.train.x[:2]


def _config(ledger: Ledger, unknown: str) -> Config:
    kept = json.loads(ledger.meta().get("config", "null"))
    if not kept or "task" not in kept:
        raise ConfigError(f"a run of Python objects does not keep {unknown}")
    return make_config(kept)


def epochs_of(learner: Learner) -> int:
    """How many epochs a learner makes where nobody says otherwise: its `config.epochs`, else 1."""
    return int(getattr(getattr(learner, "config", None), "epochs", 1))


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


def personal_model(folder: Path | None, names: list[str], client: int) -> Model:
    """The personal model of one client, from the run's folder."""
    path = None if folder is None else folder / PERSONAL / f"{client}.safetensors"
    found = None if path is None else read_model(path)
    if found is None:
        raise FolderError(f"{names[client]!r} has no personal model here; runs keep them in their folder's {PERSONAL}/")
    return found[0]


def torch_build(learner: Learner) -> Build:
    """What makes the learner's module; a ConfigError for learners that are not torch's."""
    build = getattr(learner, "build", None)
    if build is None:
        raise ConfigError(f"a torch module comes from a TorchLearner; this run's learner is {type(learner).__name__}")
    made: Build = build
    return made


def named_tensors(learner: Learner, model: Model) -> dict[str, NDArray[Any]]:
    """The model by the names of its library, as the library writes it to files."""
    if not isinstance(learner, NamedLearner):
        raise ConfigError(f"the learner {type(learner).__name__} has no names for its model's parts; use run.model")
    named = learner.name_tensors(model)
    return {name: values for name, values in named.tensors.items() if name not in named.beside}


def to_torch(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The same as torch tensors."""
    import torch

    return {name: torch.from_numpy(values) for name, values in tensors.items()}


def make_module(build: Build, tensors: Mapping[str, NDArray[Any]]) -> nn.Module:
    """A module of its own with these tensors, ready to predict."""
    module = build()
    try:
        module.load_state_dict(to_torch(tensors))
    except RuntimeError as error:
        raise DataError(f"`build` makes another module than the run trained: {error}") from None
    return module.float().eval()


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
        warnings.warn(note, NoteWarning, stacklevel=3)  # where `predict` is called
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


def predict(learner: Learner, model: Model, x: Any, *, proba: bool = False) -> NDArray[Any]:
    """The class of each row (or its number, or its labels), or the probability of each class or label."""
    rows = as_rows(x)
    if proba and target_of(learner).kind == "number":
        raise ConfigError("this run predicts numbers, which have no probabilities; use predict")
    if proba and not has_probabilities(learner):
        raise ConfigError(f"the learner {type(learner).__name__} has no method `predict_proba`; ask for classes")
    try:
        return learner.predict_proba(model, rows) if proba else learner.predict(model, rows)  # type: ignore[attr-defined]
    except (RuntimeError, ValueError, IndexError) as error:  # what torch and numpy raise of shapes that do not fit
        raise DataError(f"the model does not take rows of shape {rows.shape[1:]}: {error}") from None


def check_one_input(learner: Learner) -> None:
    """ONNX files are written of modules that take rows as they are."""
    if getattr(learner, "inputs", None) is not None:
        raise ConfigError(
            "the ONNX file is made of a module with one input, and this one takes several: use torch.onnx.export "
            "with run.module()"
        )


def write_onnx(module: nn.Module, example: NDArray[Any], path: Path) -> None:
    """The module as an ONNX file that takes any number of rows; `example` are a few of them."""
    import torch

    from fedmerit.learn.inputs import Inputs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own parts among themselves
        try:
            torch.onnx.export(
                module,
                (Inputs(torch.from_numpy(as_rows(example)), torch.empty(0))[:],),
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
