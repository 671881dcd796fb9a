"""A trained model in scikit-learn's form: raw rows in, names of classes, numbers and probabilities out."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import Learner
from fedmerit.core.targets import has_probabilities, target_of
from fedmerit.core.types import Model
from fedmerit.errors import ConfigError, DataError, NoteWarning
from fedmerit.tasks.checks import as_array, check_inputs
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.formats.table_files import Table, read_frame, read_table
from fedmerit.tasks.source import need


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimator:
    """A model that predicts numbers, with scikit-learn's names; `run.estimator()` makes it.

    For a run on a table, rows are a pandas or polars frame, an Arrow table, the path of a CSV or Parquet file, or a
    list of rows with the columns of `feature_names_in_` in their order. Words, missing values and scales are encoded
    as in training. For other runs, rows are an array in the layout of the training rows.

    learner   predicts
    model     the model as one float32 vector
    encoder   converts table rows to inputs; None for a run without a table
    """

    learner: Learner
    model: Model
    encoder: Encoder | None = None

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Columns that the model reads; the last one names the client of a row, if rows are scaled by client."""
        if self.encoder is None:
            raise AttributeError("this run learned from arrays, whose columns have no names")
        return np.array(self.encoder.names, dtype=object)

    def predict(self, x: Any) -> NDArray[Any]:
        """Predict the number of each row, or its class (`Classifier`)."""
        return self._apply(self.learner.predict, x)

    def _apply(self, function: Any, x: Any) -> NDArray[Any]:
        """Apply a method of the learner to the encoded rows."""
        if self.encoder is not None:
            rows, notes = self.encoder(_as_table(x, self.encoder))
            for note in notes:
                warnings.warn(note, NoteWarning, stacklevel=3)  # the caller of `predict`
        elif isinstance(x, str | Path | Table):
            raise DataError(f"this run learned from arrays and cannot read the table {x}; give an array")
        else:
            rows = as_rows(x)
        try:
            return np.asarray(function(self.model, rows))
        except (RuntimeError, ValueError, IndexError) as error:  # torch and numpy raise these for wrong shapes
            raise DataError(f"the model does not accept rows of shape {rows.shape[1:]}: {error}") from None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Classifier(Estimator):
    """A model that predicts classes.

    >>> from fedmerit import fedavg, federate, load_task
    >>> task = load_task("digits", clients=4)
    >>> model = federate(task, fedavg(), rounds=1, fraction=1.0).estimator()
    >>> model.predict(task.federation.test.x[:5]).shape, model.predict_proba(task.federation.test.x[:5]).shape
    ((5,), (5, 10))
    """

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes in the order of `predict_proba`. Only for runs on tables."""
        if self.encoder is None:
            raise AttributeError("this run learned from arrays: its classes are the numbers 0, 1, ...")
        return class_values(self.encoder)

    def predict(self, x: Any) -> NDArray[Any]:
        """Predict the class of each row as the table names it."""
        predicted = self._apply(self.learner.predict, x)
        return predicted if self.encoder is None else np.asarray(self.classes_[predicted])

    def predict_proba(self, x: Any) -> NDArray[Any]:
        """Predict the probability of each class for each row: an array (rows, classes)."""
        if not has_probabilities(self.learner):
            raise ConfigError(f"{type(self.learner).__name__} has no method `predict_proba`; use `predict`")
        return self._apply(self.learner.predict_proba, x)  # type: ignore[attr-defined]


def make_estimator(learner: Learner, model: Model, encoder: Encoder | None) -> Estimator:
    """Make the estimator of a model: a `Classifier` unless it predicts numbers."""
    return (Estimator if target_of(learner).kind == "number" else Classifier)(learner, model, encoder)


def class_values(encoder: Encoder) -> NDArray[Any]:
    """Classes as in the table: numbers if all of them are, else words."""
    words = np.array(encoder.labels, dtype=object)
    try:
        numbers = words.astype(np.float64)
    except ValueError:
        return words
    if [f"{number:g}" for number in numbers] != [*words]:  # words such as 007
        return words
    return numbers.astype(np.int64) if (numbers == np.rint(numbers)).all() else numbers


def as_rows(x: Any) -> NDArray[Any]:
    """Convert rows to the types that learners accept: uint8 or float32, every value finite."""
    rows = as_array(x, "rows to predict")
    check_inputs(rows, "rows to predict")
    return rows if rows.dtype == np.uint8 else np.ascontiguousarray(rows, dtype=np.float32)


def _as_table(x: Any, encoder: Encoder) -> Table:
    """Read the columns of a file, a frame, or a list of rows in the order of the encoder's names."""
    if isinstance(x, Table):
        return x
    if isinstance(x, str | Path):
        return read_table(Path(x))
    if not isinstance(x, np.ndarray | list | tuple):
        return read_frame(x)
    rows = np.asarray(x, dtype=object)
    widths = len(encoder.columns), len(encoder.names)  # without and with the client's column
    if rows.ndim != 2 or rows.shape[1] not in widths:
        raise DataError(
            f"rows without column names need the {widths[1]} columns {', '.join(encoder.names)}, in this order "
            f"(got the shape {rows.shape}); or give a frame with these columns"
        )
    arrow, named = need("pyarrow"), zip(encoder.names, rows.T.tolist(), strict=False)
    try:
        columns = {name: [None if cell != cell else cell for cell in cells] for name, cells in named}
        return read_frame(arrow.table(columns), "the rows")
    except (arrow.ArrowException, TypeError) as error:
        raise DataError(f"a column must contain numbers or words, not both ({error!s:.200})") from None
