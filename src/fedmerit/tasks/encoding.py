"""Encoding of a table's columns as inputs, fitted to each client's training rows and stored for later rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedmerit.config.task import TaskConfig
from fedmerit.core.showing import shown
from fedmerit.core.targets import CLASSES, Number, Target, TargetKind
from fedmerit.errors import ConfigError, DataError, did_you_mean
from fedmerit.tasks.cells import SHARE, as_numbers, as_text, is_missing, normal, replaced

if TYPE_CHECKING:
    from fedmerit.tasks.formats.table_files import Table

Rows: TypeAlias = NDArray[np.int64]
MISSING = "(missing)"
"""Word for a missing value."""
FILE = "file"
"""Column with the file of each row, where several files are read."""
NOBODY = -1
"""Client of a row whose client the run does not know."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A client's transform of a numeric column: its median for missing values, then (value - mean) / deviation."""

    median: float
    mean: float = 0.0
    deviation: float = 1.0

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fill missing values, and scale."""
        return np.asarray((np.where(np.isnan(values), self.median, values) - self.mean) / self.deviation)


@dataclass(frozen=True, slots=True)
class Column:
    """A column to learn from: words with an indicator per kind, or numbers with a scale per client.

    `other` is for rows of unknown clients: the median over the clients of each of the three numbers. `replace` are
    values that are read as another, or as missing if that is empty.
    """

    name: str
    kinds: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ()
    other: Scale | None = None
    replace: Mapping[str, str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.kinds) or 1


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes rows of a table as its training rows were encoded; stored as JSON next to the model.

    `labels` are the words of the classes, or the column of a number, which is learned with its `scale`;
    the column `owner`, if any, names the client of each row. `rename` gives columns other names first.
    """

    columns: tuple[Column, ...]
    labels: tuple[str, ...]
    owner: str = ""
    clients: tuple[str, ...] = ()
    kind: TargetKind = "classes"
    scale: Scale | None = None
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of inputs and outputs of the model."""
        return sum(column.width for column in self.columns), len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that it reads; the last names the client of a row, if numbers are scaled by client."""
        scaled = self.clients and not all(column.kinds for column in self.columns)
        return (*(column.name for column in self.columns), *([self.owner] if scaled else []))

    def target(self, config: TaskConfig) -> Target:
        """Target of the model, with the configured tolerance; a number is learned as (y - mean) / deviation."""
        if config.target == "classes":
            return CLASSES
        scale = self.scale or Scale(0.0)
        if config.tolerance is None:
            raise ConfigError(
                'target = "number" needs task.tolerance, the largest error that counts as right, in units of '
                f"{config.label}; for example {scale.deviation / 2:.2g}, half of its deviation"
            )
        return Number(config.tolerance, scale.mean, scale.deviation)

    def __call__(self, table: Table) -> tuple[NDArray[np.float32], list[str]]:
        """Return the inputs, and notes on words and clients that the run never saw."""
        names = {normal(column.name): column.name for column in self.columns}
        given = {name: self.rename.get(name, name) for name in table.columns}
        given = {old: new if new in names.values() else names.get(normal(new), new) for old, new in given.items()}
        table = replace(table, columns={given[name]: values for name, values in table.columns.items()})
        self._check(table)
        values = {column.name: _as_trained(column, table.columns[column.name]) for column in self.columns}
        places, notes = self._places(table)
        inputs = np.empty((len(table), self.shape[0]), np.float32)
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            inputs[rows] = encode(self.columns, {name: column[rows] for name, column in values.items()}, place)
        found = (_unseen(column, table.columns[column.name], values[column.name]) for column in self.columns)
        return inputs, [*notes, *filter(None, found)]

    def to_json(self) -> str:
        """Serialise everything; numbers are restored to the bit."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Encoder:
        """Read what `to_json` wrote; a DataError for anything else."""
        try:
            return TypeAdapter(Encoder).validate_python(json.loads(text))
        except ValueError as error:
            reason = str(error).replace("\n", " ")
            raise DataError(f"the stored encoding of the table is damaged ({reason:.200}); run again") from None

    def _check(self, table: Table) -> None:
        lacking = [column.name for column in self.columns if column.name not in table.columns]
        if lacking:
            hint = did_you_mean(lacking[0], list(table.columns))
            raise DataError(
                f"{table.source} lacks columns that the model was trained on: {', '.join(lacking)}{hint}; it needs "
                f"{', '.join(column.name for column in self.columns)}; a column without values may be empty"
            )

    def _places(self, table: Table) -> tuple[NDArray[np.int64], list[str]]:
        """Client of each row, `NOBODY` for unknown ones, and a note if there are any."""
        given = self.owner in table.columns
        stem = stem_of(Path(table.source)) if self.owner == FILE else ""
        names = owner_names(self.owner, table.columns[self.owner]) if given else [stem] * len(table)
        numbers = {name: place for place, name in enumerate(self.clients)}
        places = np.array([numbers.get(name, NOBODY) for name in names], dtype=np.int64)
        strangers = sorted({name or MISSING for name in names if name not in numbers})
        if not strangers or not self.clients or all(column.kinds for column in self.columns):
            return places, []
        who = f"of {shown(strangers)}, not a client of the run," if given else f"without a column {self.owner}"
        return places, [f"rows {who} are filled in and scaled with the medians over the clients"]


def fit_column(
    column: Column, values: NDArray[Any], parties: Sequence[Rows], clients: Sequence[Rows], standardise: bool
) -> Column:
    """Fit a column of numbers to the rows of each party; one without any number uses the median of clients' medians."""
    if column.kinds:
        return column
    medians = [float(np.nanmedian(values[rows])) for rows in clients if not np.isnan(values[rows]).all()]
    fallback = float(np.median(medians)) if medians else 0.0
    scales = tuple(fit_scale(values[rows], fallback, standardise) for rows in parties)
    middle = [float(np.median([getattr(scale, part) for scale in scales])) for part in ("median", "mean", "deviation")]
    return replace(column, scales=scales, other=Scale(*middle))


def fit_scale(values: NDArray[np.float64], fallback: float, standardise: bool) -> Scale:
    """Fit a scale to these values; `fallback` is the median if there are none."""
    median = fallback if np.isnan(values).all() else float(np.nanmedian(values))
    if not standardise or not len(values):
        return Scale(median)
    filled = np.where(np.isnan(values), median, values)
    return Scale(median, float(filled.mean()), float(filled.std()) or 1.0)


def encode(columns: Sequence[Column], values: Mapping[str, NDArray[Any]], client: int) -> NDArray[np.float32]:
    """Encode the rows of one client, or of `NOBODY`."""
    parts: list[NDArray[Any]] = []
    for column in columns:
        if column.kinds:
            parts += [values[column.name] == kind for kind in column.kinds]
            continue
        scale = column.other if client == NOBODY else column.scales[client]
        assert scale is not None  # a column of numbers has both
        parts.append(scale(values[column.name]))
    return np.column_stack(parts).astype(np.float32)


def stem_of(path: Path) -> str:
    """Name of a file without its folder and ending.

    >>> stem_of(Path("hospitals/north.csv.gz"))
    'north'
    """
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def owner_name(column: str, value: Any) -> str:
    """Name of a client: a word as it is, a number after the column's name."""
    return value if isinstance(value, str) else f"{column} {value:g}"


def owner_names(column: str, values: NDArray[Any]) -> list[str]:
    """Client of each row; an empty name if it is missing."""
    return ["" if value is None or value != value else owner_name(column, value) for value in values.tolist()]


def _as_trained(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Convert to words or numbers, as the column was in training."""
    values = replaced(values, column.replace)
    if column.kinds:
        return as_words(values)
    if values.dtype == object:
        read = as_numbers(values)
        if np.isin(values, [*read.strange]).sum() > (1 - SHARE) * (~is_missing(values)).sum():
            raise DataError(f"column {column.name} must contain numbers, as in training (got {min(read.strange)!r})")
        values = read.values
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"row {row} of column {column.name} contains infinity; values must be finite or missing")
    return values


def as_words(values: NDArray[Any]) -> NDArray[Any]:
    """Turn values into words; numbers are written as in the file."""
    words = np.empty(len(values), dtype=object)
    if values.dtype == object:
        words[:] = [MISSING if value is None else value for value in values]
    else:
        words[:] = [MISSING if np.isnan(value) else f"{value:g}" for value in values.tolist()]
    return words


def _unseen(column: Column, cells: NDArray[Any], values: NDArray[Any]) -> str:
    """A note on words that no training row had, or on numbers that are read as missing."""
    if column.kinds:
        odd, so = {*values.tolist()} - {*column.kinds}, "which no training row had: no indicator is set"
    else:
        odd, so = {*as_text(cells[np.isnan(values) & ~is_missing(cells)]).tolist()}, "read as missing"
    return f"column {column.name} contains {shown(sorted(odd))}, {so}" if odd else ""
