"""How a table's columns become inputs: fitted to each client's own training rows, and kept for rows that come later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedmerit.config.task import TaskConfig
from fedmerit.core.targets import CLASSES, Labels, Number, Target, TargetKind
from fedmerit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from fedmerit.tasks.formats.table_files import Table

MISSING = "(missing)"
"""The kind of a word that is not there."""
NOBODY = -1
"""Whose a row is, where the run does not know."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What a client does to a column of numbers: its median for gaps, then (value - mean) / deviation."""

    median: float
    mean: float = 0.0
    deviation: float = 1.0

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values without gaps, scaled."""
        filled = np.where(np.isnan(values), self.median, values)
        return np.asarray((filled - self.mean) / self.deviation)


@dataclass(frozen=True, slots=True)
class Column:
    """A column to learn from: words with an indicator for each kind, or numbers with a scale for each client.

    `other` is for rows of nobody that the run knows: the median over the clients of each of the three numbers.
    """

    name: str
    kinds: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ()
    other: Scale | None = None

    @property
    def width(self) -> int:
        """Inputs that it becomes."""
        return len(self.kinds) or 1


@dataclass(frozen=True, slots=True)
class Encoder:
    """Rows of a table as inputs of a model, as its training rows were encoded; kept beside the model as JSON.

    `labels` are the words of the classes, or the columns of several labels, or that of a number, which is learned by
    its `scale`; the column `owner`, where there is one, says whose a row is.
    """

    columns: tuple[Column, ...]
    labels: tuple[str, ...]
    owner: str = ""
    clients: tuple[str, ...] = ()
    kind: TargetKind = "classes"
    scale: Scale | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Inputs and outputs of the model."""
        return sum(column.width for column in self.columns), len(self.labels)

    def target(self, config: TaskConfig) -> Target:
        """What the model predicts, with the tolerance that the configuration has."""
        scale = self.scale or Scale(0.0)
        return make_target(config, scale.mean, scale.deviation)

    def __call__(self, table: Table) -> tuple[NDArray[np.float32], list[str]]:
        """The inputs, and what is to be known of them: words and clients that the run never saw."""
        self._check(table)
        values = {column.name: _as_trained(column, table.columns[column.name]) for column in self.columns}
        places, notes = self._places(table)
        inputs = np.empty((len(table), self.shape[0]), np.float32)
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            inputs[rows] = encode(self.columns, {name: column[rows] for name, column in values.items()}, place)
        return inputs, [*notes, *(note for column in self.columns for note in _unseen(column, values[column.name]))]

    def to_json(self) -> str:
        """All of it; numbers come back to the bit."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Encoder:
        """What `to_json` wrote; a DataError where it is something else."""
        try:
            return TypeAdapter(Encoder).validate_python(json.loads(text))
        except ValueError as error:
            reason = str(error).replace("\n", " ")
            raise DataError(f"what was kept of the table's encoding is damaged ({reason:.200})") from None

    def _check(self, table: Table) -> None:
        lacking = [column.name for column in self.columns if column.name not in table.columns]
        if lacking:
            hint = did_you_mean(lacking[0], list(table.columns))
            raise DataError(
                f"the model learned from the columns {', '.join(column.name for column in self.columns)}; "
                f"{table.source} lacks {', '.join(lacking)}{hint}"
            )

    def _places(self, table: Table) -> tuple[NDArray[np.int64], list[str]]:
        """Whose each row is, `NOBODY` for strangers, and a note where there are any."""
        given = self.owner in table.columns
        names = _owner_names(self.owner, table.columns[self.owner]) if given else [""] * len(table)
        known = {name: place for place, name in enumerate(self.clients)}
        places = np.array([known.get(name, NOBODY) for name in names], dtype=np.int64)
        strangers = sorted({name or MISSING for name in names if name not in known})
        if not strangers or not self.clients or all(column.kinds for column in self.columns):
            return places, []
        who = f"of {shown(strangers)}, not a client of the run," if given else f"without a column {self.owner}"
        return places, [f"rows {who} are filled in and scaled as those of the middle client"]


def make_target(config: TaskConfig, centre: float = 0.0, scale: float = 1.0) -> Target:
    """What a table's model predicts; a number is learned as (y - centre) / scale."""
    if config.target == "labels":
        return Labels()
    if config.target == "classes":
        return CLASSES
    if config.tolerance is None:
        raise ConfigError(
            "task.tolerance says how far off a predicted number may be and still count as right, in units of "
            f"{config.label}; for example {scale / 2:.2g}, half of its deviation"
        )
    return Number(config.tolerance, centre, scale)


def fit_numbers(name: str, known: Sequence[NDArray[np.float64]], standardise: bool, fallback: float) -> Column:
    """A column of numbers by the training rows of each client; `fallback` is the median of those who have none."""
    scales = tuple(fit_scale(values, fallback, standardise) for values in known)
    middle = [float(np.median([getattr(scale, part) for scale in scales])) for part in ("median", "mean", "deviation")]
    return Column(name, scales=scales, other=Scale(*middle))


def median_of_medians(known: Sequence[NDArray[np.float64]]) -> float:
    """Over the clients that know the column: for those that have no value of it at all."""
    medians = [float(np.nanmedian(values)) for values in known if not np.isnan(values).all()]
    return float(np.median(medians)) if medians else 0.0


def fit_scale(known: NDArray[np.float64], fallback: float, standardise: bool) -> Scale:
    """By these values; `fallback` is the median of those who have none."""
    median = fallback if np.isnan(known).all() else float(np.nanmedian(known))
    if not standardise or not len(known):
        return Scale(median)
    filled = np.where(np.isnan(known), median, known)
    return Scale(median, float(filled.mean()), float(filled.std()) or 1.0)


def encode(columns: Sequence[Column], values: Mapping[str, NDArray[Any]], client: int) -> NDArray[np.float32]:
    """Inputs of one client's rows, or of `NOBODY`'s."""
    parts: list[NDArray[Any]] = []
    for column in columns:
        if column.kinds:
            parts += [values[column.name] == kind for kind in column.kinds]
            continue
        scale = column.other if client == NOBODY else column.scales[client]
        assert scale is not None  # a column of numbers has both
        parts.append(scale(values[column.name]))
    return np.column_stack(parts).astype(np.float32)


def owner_name(column: str, value: Any) -> str:
    """A client's name: a word as it is, a number with the column's name before it."""
    return value if isinstance(value, str) else f"{column} {value:g}"


def _owner_names(column: str, values: NDArray[Any]) -> list[str]:
    """Whose each row is; an empty name where it is missing."""
    return ["" if value is None or value != value else owner_name(column, value) for value in values.tolist()]


def _as_trained(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Words or numbers, as the column held them when the model learned."""
    if column.kinds:
        return as_words(values)
    if values.dtype == object:
        word = next((value for value in values if value is not None), None)
        if word is not None:
            raise DataError(f"column {column.name} held numbers when the model learned; got {word!r}")
        return np.full(len(values), np.nan)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"values are finite or missing; row {row} of column {column.name} holds infinity")
    return values


def as_words(values: NDArray[Any]) -> NDArray[Any]:
    """A file whose words all look like numbers holds numbers: they are words again as they were written."""
    words = np.empty(len(values), dtype=object)
    if values.dtype == object:
        words[:] = [MISSING if value is None else value for value in values]
    else:
        words[:] = [MISSING if np.isnan(value) else f"{value:g}" for value in values.tolist()]
    return words


def _unseen(column: Column, values: NDArray[Any]) -> list[str]:
    unknown = sorted({*values.tolist()} - {*column.kinds}) if column.kinds else []
    if not unknown:
        return []
    return [f"column {column.name} holds {shown(unknown)}, which no training row had: no indicator of it is set"]


def shown(words: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    return ", ".join(words) if len(words) <= 8 else f"{', '.join(words[:7])} and {len(words) - 7} more"
