"""Task `table:FILE`, and how any table becomes a federation: clients, labels, and every column as numbers.

`Federation.report` lists what is imputed, encoded, dropped or standardised. A client's rows are imputed and
standardised with values of its training rows only, so that no client needs another's data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.config.task import TABLE as PREFIX
from fedmerit.core.targets import Target
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.build import TEST_SHARE, planted, settle, spread
from fedmerit.tasks.encoding import (
    MISSING,
    Column,
    Encoder,
    Scale,
    encode,
    fit_numbers,
    fit_scale,
    make_target,
    median_of_medians,
    owner_name,
    shown,
)
from fedmerit.tasks.federation import Federation, Ids, Raw, Split
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.registry import MADE, SENSITIVE, TaskSpec

Rows: TypeAlias = NDArray[np.int64]
MOST_WORDS = 50
"""A text column with more distinct values looks like an ID, and is dropped."""
MOST_GROUPS = 50
MOST_CLASSES = 1000
MOST_CLIENTS = 20_000
"""Largest number of clients: each is encoded separately, and more take minutes before the first round."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table with the roles of its columns, and a report; `values` are the columns to learn from."""

    rows: Raw
    columns: tuple[Column, ...]
    values: Mapping[str, NDArray[Any]]
    labels: tuple[str, ...]
    report: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of inputs and outputs, for models whose size depends on them."""
        return sum(column.width for column in self.columns), self.rows.classes

    @property
    def scale(self) -> Scale:
        """Mean and deviation of all rows, with which a numeric label is learned."""
        return fit_scale(self.rows.y, 0.0, True)

    def fitted(self, parties: Sequence[Rows], clients: Sequence[Rows], standardise: bool) -> tuple[Column, ...]:
        """Fit the columns to the rows of each party; a party without any number uses the clients' medians."""
        return tuple(
            column
            if column.kinds
            else fit_numbers(
                column.name,
                [self.values[column.name][rows] for rows in parties],
                standardise,
                median_of_medians([self.values[column.name][rows] for rows in clients]),
            )
            for column in self.columns
        )

    def encode(self, columns: Sequence[Column], rows: Rows, party: int) -> NDArray[np.float32]:
        """Encode these rows of a party."""
        return encode(columns, {name: values[rows] for name, values in self.values.items()}, party)


def prepare(table: Table, config: TaskConfig) -> Prepared:
    """Select rows with a client and a label, and the columns to learn from."""
    _check_names(table, config)
    table, report = _complete_rows(table, config)
    labels, kinds, label_notes = _predicted(table, config)
    groups = {name: _groups(name, table.columns[name]) for name in config.attributes}
    columns, values, dropped = _features(table, config)
    rows = Raw(
        np.arange(len(table))[:, np.newaxis],  # row numbers: rows are encoded once their clients are known
        labels,
        len(kinds),
        {name: codes for name, (codes, _) in groups.items()},
        _owners(config.client, table.columns[config.client]) if config.client else None,
        target=config.target,
    )
    notes = [*report, *label_notes, *(note for _, group_notes in groups.values() for note in group_notes), *dropped]
    return Prepared(rows, tuple(columns), values, tuple(map(_text, kinds)), tuple(notes))


def table_federation(
    table: Table, config: TaskConfig, spec: TaskSpec, seed: int, for_test: NDArray[np.bool_] | None = None
) -> Federation:
    """Build the federation of [task]: distribute the rows, then encode each party's with its training rows.

    `for_test` marks published test rows, for tables of which no row is dropped.
    """
    if not config.client and config.partition in ("default", "natural"):
        raise ConfigError(
            f"task.client must name the column with the client of each row; {table.source} has "
            f"{', '.join(table.columns)}; or set task.partition and task.clients to distribute the rows"
        )
    share = TEST_SHARE if isinstance(config.test, str) else config.test
    settled = settle(config.model_copy(update={} if isinstance(config.test, str) else {"test": "matched"}), spec)
    prepared = prepare(table, config)
    dealt = spread(replace(prepared.rows, for_test=for_test), None, settled, spec, seed, share)
    _check_everybody_is_there(prepared.rows, dealt, settled)
    owner = settled.client if settled.partition == "natural" else ""
    return planted(_encoded(prepared, dealt, owner, config.standardise == "client"), settled, seed)


def _encoded(prepared: Prepared, dealt: Federation, owner: str, standardise: bool) -> Federation:
    """Replace row numbers by inputs."""
    clients = range(len(dealt.names))
    trained = [_places(dealt.train, client) for client in clients]
    columns = prepared.fitted(trained, trained, standardise)
    splits: dict[str, Any] = {}
    for name in ("train", "test", "validation"):
        split: Split = getattr(dealt, name)
        x = np.zeros((len(split.y), prepared.shape[0]), np.float32)
        for client in clients:
            x[split.rows(client)] = prepared.encode(columns, _places(split, client), client)
        splits[name] = replace(split, x=x)
    server = dealt.server
    if server is not None:  # scaled by its values; the clients' medians replace a column without any
        rows = server.x[:, 0]
        server = replace(server, x=prepared.encode(prepared.fitted([rows], trained, standardise), rows, 0))
    report = (*prepared.report, *_imputed(prepared, dealt), *_standardised(columns, standardise))
    scale = prepared.scale if dealt.target == "number" else None
    encoder = Encoder(columns, prepared.labels, owner, dealt.names if owner else (), dealt.target, scale)
    return replace(dealt, **splits, server=server, report=report, encoder=encoder)


def _places(split: Split, client: int) -> Rows:
    return np.asarray(split.x[split.rows(client), 0], dtype=np.int64)


def _check_names(table: Table, config: TaskConfig) -> None:
    """Check that every named column exists and has one role."""
    if not config.label:
        raise ConfigError(f"task.label must name the column to predict; {table.source} has {', '.join(table.columns)}")
    predicted = label_columns(config)
    named = {"client": [config.client] if config.client else [], "label": predicted}
    for part, names in {**named, "attributes": config.attributes, "features": config.features}.items():
        for name in names:
            if name in table.others and part != "features":
                raise DataError(f"task.{part} needs numbers or words (column {name!r} contains {table.others[name]})")
            if name not in table.columns and name not in table.others:
                raise UnknownName(f"column for task.{part}", name, table.columns)
    if config.client in predicted or {config.client, *predicted} & set(config.features):
        raise ConfigError("client and label must be two columns and not in features: the model would see both")


def _complete_rows(table: Table, config: TaskConfig) -> tuple[Table, list[str]]:
    """Keep rows with label and client, and without missing features if these are to be dropped."""
    keep, report = np.ones(len(table), dtype=np.bool_), []
    named = [*label_columns(config), *([config.client] if config.client else [])]
    gaps = _feature_names(table, config) if config.missing == "drop" else []
    for name in [*named, *gaps]:
        lost = keep & is_missing(table.columns[name])
        if lost.any():
            report.append(f"{_count(int(lost.sum()), 'row')} without {name} dropped")
        keep &= ~lost
    if not keep.any():
        raise DataError(f"no row of {table.source} has a value in {' and '.join([*named, *gaps])}; check the columns")
    return replace(table, columns={name: values[keep] for name, values in table.columns.items()}), report


def label_columns(config: TaskConfig) -> list[str]:
    """Return the column to predict, or several."""
    return [config.label] if isinstance(config.label, str) else list(config.label)


def _predicted(table: Table, config: TaskConfig) -> tuple[NDArray[Any], list[Any], list[str]]:
    """Labels of the rows, the words of classes or names of columns, and a report."""
    names = label_columns(config)
    if config.target == "number":
        values = table.columns[names[0]]
        if values.dtype == object:
            raise DataError(f'target = "number" needs a column of numbers ({names[0]} contains {values[0]!r:.40})')
        if not 0 < float(values.std()) < np.inf:
            raise DataError(f"the label must have distinct, finite numbers ({names[0]} has deviation {values.std():g})")
        return np.asarray(values, np.float64), names, []
    if config.target == "classes":
        return _labels(names[0], table.columns[names[0]])
    coded = [_labels(name, table.columns[name]) for name in names]
    for name, (_, kinds, _) in zip(names, coded, strict=True):
        if len(kinds) != 2:
            raise DataError(f"each of several labels must have two values ({name} has {len(kinds)})")
    return (
        np.column_stack([codes for codes, _, _ in coded]),
        names,
        [note for *_, label_notes in coded for note in label_notes],
    )


def _labels(name: str, values: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any], list[str]]:
    """Classes 0..C-1: integers from 0 unchanged, other values in sorted order."""
    kinds = _kinds(values)
    fractions = [kind for kind in kinds if isinstance(kind, float) and not kind.is_integer()]
    if len(kinds) > MOST_CLASSES or (fractions and len(kinds) > MOST_GROUPS):
        raise DataError(
            f"the label must have few classes ({name} has {len(kinds)} distinct values such as {kinds[-1]}); "
            'bin it into classes, or set target = "number"'
        )
    if len(kinds) < 2:
        raise DataError(f"the label needs at least two classes (every row has {name} = {kinds[0]})")
    codes = _codes(values, kinds)
    if kinds == [float(place) for place in range(len(kinds))]:
        return codes, kinds, []
    return codes, kinds, [_coded(name, "label", kinds)]


def _groups(name: str, values: NDArray[Any]) -> tuple[NDArray[np.uint8], list[str]]:
    """Groups of an attribute by number: integers from 0 unchanged, other values in sorted order."""
    missing, kinds = is_missing(values), _kinds(values)
    if len(kinds) + missing.any() > MOST_GROUPS:
        raise DataError(f"an attribute must have few groups ({name} has {len(kinds)} distinct values); bin it")
    codes = _codes(values, kinds)
    codes[missing] = len(kinds)
    shown = [*kinds, *([MISSING] if missing.any() else [])]
    plain = kinds == [float(place) for place in range(len(kinds))] and not missing.any()
    return codes.astype(np.uint8), [] if plain else [_coded(name, "attribute", shown)]


def _owners(name: str, values: NDArray[Any]) -> Ids:
    """Clients: words unchanged, numbers after the column's name; 2 comes before 10."""
    kinds = sorted(_kinds(values), key=_natural_order) if values.dtype == object else _kinds(values)
    if len(kinds) > MOST_CLIENTS:
        raise DataError(
            f"column {name} has {len(kinds)} distinct clients, more than the limit of {MOST_CLIENTS}; set task.client "
            "to a column that repeats for the rows of a client, or use a part of the table"
        )
    return Ids(name, _codes(values, kinds), tuple(owner_name(name, kind) for kind in kinds))


def _feature_names(table: Table, config: TaskConfig) -> list[str]:
    roles = (config.client, *label_columns(config))
    names = config.features or [name for name in table.columns if name not in roles]
    return [name for name in names if name in table.columns]


def _features(table: Table, config: TaskConfig) -> tuple[list[Column], dict[str, NDArray[Any]], list[str]]:
    """Columns to learn from, their values, and the reason for each dropped column."""
    columns, values, report = list[Column](), dict[str, NDArray[Any]](), list[str]()
    for name, kind in table.others.items():
        if name in config.features or not config.features:
            report.append(f"column {name} dropped: it contains {kind}")
    for name in _feature_names(table, config):
        cells = table.columns[name]
        if reason := _useless(cells):
            report.append(f"column {name} dropped: {reason}")
            continue
        kinds: tuple[str, ...] = ()
        if cells.dtype == object:
            gaps = is_missing(cells)
            kinds = (*_kinds(cells), *([MISSING] if gaps.any() else []))
            cells = np.where(gaps, MISSING, cells)
            report.append(f"column {name} became {len(kinds)} indicators: {shown(kinds)}")
        columns.append(Column(name, kinds))
        values[name] = cells
    if not columns:
        raise DataError(f"{table.source} has no column to learn from: {'; '.join(report)}")
    return columns, values, report


def _useless(values: NDArray[Any]) -> str:
    gaps = is_missing(values)
    if gaps.all():
        return "it has no values"
    if values.dtype != object and np.isinf(values).any():
        raise DataError(
            f"row {int(np.flatnonzero(np.isinf(values))[0])} contains infinity; values must be finite or missing"
        )
    different = len(set(values[~gaps].tolist()))
    if different == 1 and not gaps.any():
        return "it has the same value in every row"
    return (
        f"{different} distinct text values, looks like an ID"
        if (values.dtype == object and different > MOST_WORDS)
        else ""
    )


def _imputed(prepared: Prepared, dealt: Federation) -> list[str]:
    report = []
    for name in [column.name for column in prepared.columns if not column.kinds]:
        gaps = np.isnan(prepared.values[name])
        if not gaps.any():
            continue
        text = f"{int(gaps.sum())} of {len(gaps)} values of {name} missing: replaced by the client's median"
        empty = [who for client, who in enumerate(dealt.names) if gaps[_places(dealt.train, client)].all()]
        if empty:
            text += f"; {shown(empty)} had no value, and got the median of the other clients' medians"
        report.append(text)
    return report


def _standardised(columns: Sequence[Column], standardise: bool) -> list[str]:
    names = [column.name for column in columns if not column.kinds]
    if not standardise or not names:
        return []
    return [f"{shown(names)} standardised by each client's training rows"]


def _check_everybody_is_there(rows: Raw, dealt: Federation, config: TaskConfig) -> None:
    """Check that the server's rows do not include all rows of a client."""
    if rows.ids is None or config.partition != "natural" or config.clients is not None:
        return
    lost = [name for name in rows.ids.names or () if name not in dealt.names]
    if lost:
        raise DataError(
            f"task.server = {config.server} uses all rows of {shown(lost)}; lower it, or drop these clients"
        )


def _kinds(values: NDArray[Any]) -> list[Any]:
    """Distinct values in sorted order, without missing ones."""
    return sorted(set(values[~is_missing(values)].tolist()))


def _codes(values: NDArray[Any], kinds: Sequence[Any]) -> NDArray[np.int64]:
    """Place of each value among the kinds; 0 if it is missing."""
    places = {kind: place for place, kind in enumerate(kinds)}
    return np.array([places.get(value, 0) for value in values.tolist()], dtype=np.int64)


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which cells of a column are missing."""
    return np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)


def _natural_order(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind:g}"


def _coded(name: str, part: str, kinds: Sequence[Any]) -> str:
    pairs = [f"{_text(kind)} = {place}" for place, kind in enumerate(kinds)]
    return f"{part} {name}: {shown(pairs)}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def read_own_table(config: TaskConfig) -> Table:
    """Read the file that `task.data = "table:FILE"` names."""
    path = config.data.removeprefix(PREFIX)
    if not path:
        raise ConfigError(f"task.data = '{PREFIX}FILE' must name a CSV or Parquet file (got {config.data!r})")
    return read_table(Path(path).expanduser())


def _target(config: TaskConfig) -> Target:
    scale = prepare(read_own_table(config), config).scale if config.target == "number" else Scale(0.0)
    return make_target(config, scale.mean, scale.deviation)


TABLE: TaskSpec = TaskSpec(
    name="table:FILE",
    about="your CSV or Parquet file: task.client, task.label and other columns by name",
    load=lambda config, seed: table_federation(read_own_table(config), config, TABLE, seed),
    models=("mlp", "linear"),
    partitions=("natural", *MADE, *SENSITIVE),
    test="matched",
    shape=lambda config: prepare(read_own_table(config), config).shape,
    target=_target,
)
