"""Task `table:FILE`, and how any table becomes a federation: clients, labels, and every column as numbers.

`Federation.data` has the suspicions about the table, `Federation.report` what is imputed, encoded, dropped or
standardised. A client's rows are imputed and standardised with values of its training rows only, so that no client
needs another's data; inputs and their words are chosen by training rows, too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.config.task import TABLE as PREFIX
from fedmerit.core.showing import shown
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.build import TEST_SHARE, planted, settle, spread
from fedmerit.tasks.cells import is_missing, replaced
from fedmerit.tasks.data_report import DataReport, count_labels, describe_columns
from fedmerit.tasks.encoding import (
    FILE,
    MISSING,
    Column,
    Encoder,
    Rows,
    encode,
    fit_column,
    fit_scale,
    owner_name,
    owner_names,
)
from fedmerit.tasks.federation import Federation, Ids, Raw, Split
from fedmerit.tasks.files import read_tables
from fedmerit.tasks.formats.table_files import Table, retyped
from fedmerit.tasks.registry import MADE, SENSITIVE, TaskSpec
from fedmerit.tasks.suspicions import (
    Suspicion,
    inspect,
    inspect_clients,
    odd_numbers,
    other_words,
    ranked,
    spellings,
    tidied,
)

MOST_GROUPS = 50
MOST_CLASSES = 1000
MOST_CLIENTS = 20_000
"""Largest number of clients: each is encoded separately, and more take minutes before the first round."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table with the roles of its columns: its rows with labels, groups and clients, and the columns to learn from.

    `labels` are the words of the classes, `report` what was done, `found` the suspicions that do not depend on a split.
    """

    rows: Raw
    inputs: Mapping[str, NDArray[Any]]
    labels: tuple[str, ...]
    report: tuple[str, ...]
    found: tuple[Suspicion, ...]
    table: Table

    @property
    def owners(self) -> dict[str, Rows]:
        """Rows of each client that the table names."""
        ids = self.rows.ids
        if ids is None:
            return {}
        ends = np.cumsum(np.bincount(ids.values, minlength=len(ids.names or ())))
        parts = np.split(np.argsort(ids.values, kind="stable"), ends[:-1])
        return dict(zip(ids.names or (), parts, strict=True))


@dataclass(frozen=True, slots=True)
class Features:
    """Columns to learn from, chosen by training rows, with the values of all rows; and what was found and done."""

    columns: tuple[Column, ...]
    values: Mapping[str, NDArray[Any]]
    report: tuple[str, ...]
    found: tuple[Suspicion, ...]

    @property
    def width(self) -> int:
        """Number of inputs."""
        return sum(column.width for column in self.columns)

    def fitted(self, parties: Sequence[Rows], clients: Sequence[Rows], standardise: bool) -> tuple[Column, ...]:
        """Fit the columns to the rows of each party."""
        return tuple(fit_column(one, self.values[one.name], parties, clients, standardise) for one in self.columns)

    def encode(self, columns: Sequence[Column], rows: Rows, party: int) -> NDArray[np.float32]:
        """Encode these rows of a party."""
        return encode(columns, {name: values[rows] for name, values in self.values.items()}, party)


def prepare(table: Table, config: TaskConfig) -> Prepared:
    """Select rows with a client and a label, and the columns that may be learned from."""
    table, found = _tidy(table, config)
    _check_names(table, config)
    table, more = _spelt(table, config)
    table, report = _complete_rows(table, config)
    labels, kinds, label_notes = _predicted(table, config)
    groups = {name: _groups(name, table.columns[name]) for name in config.attributes}
    rows = Raw(
        np.arange(len(table))[:, np.newaxis],  # row numbers: rows are encoded once their clients are known
        labels,
        len(kinds),
        {name: codes for name, (codes, _) in groups.items()},
        _owners(config.client, table.columns[config.client]) if config.client else None,
        target=config.target,
    )
    inputs = {name: table.columns[name] for name in _feature_names(table, config)}
    for name, values in inputs.items():
        if values.dtype != object and np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise DataError(f"row {row} of {name} contains infinity; values must be finite or missing")
    notes = [*report, *label_notes, *(note for _, group_notes in groups.values() for note in group_notes)]
    return Prepared(rows, inputs, tuple(map(_text, kinds)), tuple(notes), (*found, *more), table)


def choose_features(prepared: Prepared, config: TaskConfig, rows: Rows) -> Features:
    """Choose inputs and the words of each by the training rows."""
    seen, decided = (_inspected(prepared, config, each) for each in (np.arange(len(prepared.rows)), rows))
    found = [*prepared.found, *(one if key in decided else _unseen(one) for key, one in seen.items())]
    found += [one for key, one in decided.items() if key not in seen]
    left_out = {one.column: one.reason for one in found if one.reason}
    columns, values = list[Column](), dict[str, NDArray[Any]]()
    report = [f"column {name} dropped: {left_out.pop(name)}" for name in [*left_out] if name not in prepared.inputs]
    for name, cells in prepared.inputs.items():
        if name in left_out:
            report.append(f"column {name} dropped: {left_out[name]}")
            continue
        about = [one for one in (*prepared.found, *decided.values()) if one.column == name]
        changes = {old: new for one in about for old, new in one.replace.items()}
        cells, kinds = replaced(cells, changes), ()
        if cells.dtype == object:
            gaps = is_missing(cells)
            kinds = (*_kinds(cells[rows]), *([MISSING] if gaps[rows].any() else []))
            cells = np.where(gaps, MISSING, cells)
            report.append(f"column {name} became {len(kinds)} indicators: {shown(kinds)}")
        columns.append(Column(name, kinds, replace={**config.replace.get(name, {}), **changes}))
        values[name] = cells
    if not columns:
        raise DataError(f"{prepared.table.source} has no column to learn from: {'; '.join(report)}")
    return Features(tuple(columns), values, tuple(report), ranked(found))


def _inspected(prepared: Prepared, config: TaskConfig, rows: Rows) -> dict[Any, Suspicion]:
    """Suspicions about the inputs from these rows, by what they are about; none about published data."""
    if not config.data.startswith(PREFIX):
        return {}
    at = np.full(len(prepared.rows), -1)
    at[rows] = np.arange(len(rows))
    owners = {who: at[own][at[own] >= 0] for who, own in prepared.owners.items()}
    skipped = {one.column for one in prepared.found if one.reason}
    columns = {name: values[rows] for name, values in prepared.inputs.items() if name not in skipped}
    found = inspect(columns, config, prepared.rows.y[rows], owners)
    return {(one.kind, one.column, one.client, bool(one.reason), *one.replace): one for one in found}


def _unseen(one: Suspicion) -> Suspicion:
    """A suspicion that training rows alone do not raise: it changes nothing."""
    question, keys = one.text.partition("? ")[0], one.text[one.text.index("task.") :]
    text = f"{question}? Only rows that are not trained on show it; unchanged; {keys}"
    return replace(one, text=text, reason="", replace={})


def table_federation(
    table: Table, config: TaskConfig, spec: TaskSpec, seed: int, for_test: NDArray[np.bool_] | None = None
) -> Federation:
    """Build the federation of [task]: distribute the rows, then encode each party's with its training rows.

    `for_test` marks published test rows, for tables of which no row is dropped.
    """
    natural = config.partition in ("default", "natural")
    if table.files:
        by_file = natural and not config.client
        config = config.model_copy(update={"client": FILE} if by_file else {"drop": (*config.drop, FILE)})
    if not config.client and natural:
        raise ConfigError(
            f"task.client must name the column with the client of each row; {table.source} has "
            f"{', '.join(table.columns)}; or set task.partition and task.clients to distribute the rows"
        )
    if config.without and natural and config.clients is None:
        stay = _stays(table, config)
        table = retyped(replace(table, columns={name: cells[stay] for name, cells in table.columns.items()}))
        for_test = None if for_test is None else for_test[stay]
        config = config.model_copy(update={"without": ()})
    share = TEST_SHARE if isinstance(config.test, str) else config.test
    settled = settle(config.model_copy(update={} if isinstance(config.test, str) else {"test": "matched"}), spec)
    prepared = prepare(table, config)
    dealt = spread(replace(prepared.rows, for_test=for_test), None, settled, spec, seed, share)
    _check_everybody_is_there(prepared.rows, dealt, settled)
    federation = _encoded(prepared, dealt, settled)
    found = federation.data.suspicions if federation.data else ()
    if config.strict and found:
        raise DataError(
            f"task.strict refuses {table.source}: {len(found)} suspicions, the first: {found[0].text}; "
            "`fedmerit doctor` lists all"
        )
    return planted(federation, settled, seed)


def _stays(table: Table, config: TaskConfig) -> NDArray[np.bool_]:
    """Rows that are not of a client that left, under any spelling of its name."""
    tidy, _ = _tidy(table, config)
    _check_names(tidy, config)
    owners = np.array(owner_names(config.client, _spelt(tidy, config)[0].columns[config.client]), dtype=object)
    for name in config.without if config.client != FILE else ():  # whole files are not even read
        if name not in owners:
            raise UnknownName("client to leave", name, {*owners} - {""})
    return ~np.isin(owners, config.without)


def _encoded(prepared: Prepared, dealt: Federation, config: TaskConfig) -> Federation:
    """Replace row numbers by inputs; everything is fitted to training rows."""
    owner = config.client if config.partition == "natural" else ""
    standardise = config.standardise == "client"
    clients = range(len(dealt.names))
    trained = [_places(dealt.train, client) for client in clients]
    features = choose_features(prepared, config, np.sort(np.concatenate(trained)))
    columns = features.fitted(trained, trained, standardise)
    splits: dict[str, Any] = {}
    for name in ("train", "test", "validation"):
        split: Split = getattr(dealt, name)
        x = np.zeros((len(split.y), features.width), np.float32)
        for client in clients:
            x[split.rows(client)] = features.encode(columns, _places(split, client), client)
        splits[name] = replace(split, x=x)
    server = dealt.server
    if server is not None:  # scaled by its values; the clients' medians replace a column without any
        rows = server.x[:, 0]
        server = replace(server, x=features.encode(features.fitted([rows], trained, standardise), rows, 0))
    report = [*prepared.report, *features.report, *_imputed(features, dealt)]
    if standardise and (numbers := [column.name for column in columns if not column.kinds]):
        report.append(f"{shown(numbers)} standardised by each client's training rows")
    scale = fit_scale(dealt.train.y, 0.0, True) if dealt.target == "number" else None
    names = dealt.names if owner else ()
    encoder = Encoder(columns, prepared.labels, owner, names, dealt.target, scale, config.rename)
    data = _described(prepared, features, config, tuple(report))
    return replace(dealt, **splits, server=server, report=data.decisions, encoder=encoder, data=data)


def _described(prepared: Prepared, features: Features, config: TaskConfig, report: tuple[str, ...]) -> DataReport:
    table, owners = prepared.table, prepared.owners
    roles = dict.fromkeys(features.values, "input") | {config.label: "label"}
    roles |= {config.client: "client"} if config.client else {}
    other = tuple({"column": name, "kind": kind, "role": "left out"} for name, kind in table.others.items())
    labels = count_labels(owners, prepared.rows.y, prepared.labels)
    known = config.replace.get(config.client, {})
    own = config.data.startswith(PREFIX) and owners
    clients = [*inspect_clients(labels, table.columns, owners, config.client, known)] if own else []
    if own:
        clients += other_words(config.label, "label", labels, config.replace.get(config.label, {}))
    found = ranked([*features.found, *clients])
    return DataReport(table.files, (*describe_columns(table.columns, roles), *other), labels, found, report)


def _places(split: Split, client: int) -> Rows:
    return np.asarray(split.x[split.rows(client), 0], dtype=np.int64)


def _check_names(table: Table, config: TaskConfig) -> None:
    """Check that every named column exists and has one role."""
    if not config.label:
        raise ConfigError(f"task.label must name the column to predict; {table.source} has {', '.join(table.columns)}")
    named = {"client": [config.client] if config.client else [], "label": [config.label]}
    for part, names in {**named, "attributes": config.attributes, "features": config.features}.items():
        for name in names:
            if name in table.others and part != "features":
                raise DataError(f"task.{part} needs numbers or words (column {name!r} contains {table.others[name]})")
            if name not in table.columns and name not in table.others:
                raise UnknownName(f"column for task.{part}", name, table.columns)
    if config.client == config.label or {config.client, config.label} & set(config.features):
        raise ConfigError("client and label must be two columns and not in features: the model would see both")


def _tidy(table: Table, config: TaskConfig) -> tuple[Table, list[Suspicion]]:
    """Replace values, read words as numbers where nearly all are, and set dates apart."""
    columns, others, found = dict[str, NDArray[Any]](), dict(table.others), list(table.found)
    used = {*_feature_names(table, config), config.label, *config.attributes}
    for name, cells in table.columns.items():
        values = replaced(cells, config.replace.get(name, {}))
        if name not in used:
            columns[name] = values
            continue
        read, suspicions = tidied(name, values, name in config.features)
        found += suspicions
        if read is None:
            others[name] = "dates"
        else:
            columns[name] = read
    for name, kind in others.items():
        if name not in config.drop and (name in config.features or not config.features):
            reason = f"it contains {kind}"
            text = (
                f"Is {name} an input? It is left out: {reason}; make it a number, such as days, to learn from it; "
                f'task.drop = ["{name}"] confirms it'
            )
            found.append(Suspicion("date", text, name, reason=reason))
    return replace(table, columns=columns, others=others), found


def _spelt(table: Table, config: TaskConfig) -> tuple[Table, list[Suspicion]]:
    """Merge spellings of labels, clients and groups; leave out rows whose label looks like a mistake."""
    roles = dict.fromkeys(config.attributes, "") | {config.label: "label"}
    roles |= {config.client: "client"} if config.client not in ("", FILE) else {}
    columns, found = dict(table.columns), list[Suspicion]()
    for name, role in roles.items():
        if role == "label" and config.target == "number" and columns[name].dtype != object:
            odd = [replace(one, kind="label") for one in odd_numbers(name, columns[name], config, {})]
        else:
            odd = spellings(name, columns[name], config, role)
        columns[name] = replaced(columns[name], {old: new for one in odd for old, new in one.replace.items()})
        found += odd if role else []  # groups are inputs too, which are inspected later
    return replace(table, columns=columns), found


def _complete_rows(table: Table, config: TaskConfig) -> tuple[Table, list[str]]:
    """Keep rows with label and client."""
    keep, report = np.ones(len(table), dtype=np.bool_), []
    named = [config.label, *dict.fromkeys(name for name in (config.client, FILE * bool(table.files)) if name)]
    for name in named:
        lost = keep & is_missing(table.columns[name])
        if lost.any():
            report.append(f"{lost.sum()} row{'s' if lost.sum() > 1 else ''} without {name} dropped")
        keep &= ~lost
    if not keep.any():
        raise DataError(f"no row of {table.source} has a value in {' and '.join(named)}; check the columns")
    return replace(table, columns={name: values[keep] for name, values in table.columns.items()}), report


def _predicted(table: Table, config: TaskConfig) -> tuple[NDArray[Any], list[Any], list[str]]:
    """Labels of the rows, the words of classes or the name of the column, and a report."""
    name, values = config.label, table.columns[config.label]
    if config.target == "classes":
        return _labels(name, values)
    if values.dtype == object:
        raise DataError(f'target = "number" needs a column of numbers ({name} contains {values[0]!r:.40})')
    if not 0 < float(values.std()) < np.inf:
        raise DataError(f"the label must have distinct, finite numbers ({name} has deviation {values.std():g})")
    return np.asarray(values, np.float64), [name], []


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
    plain = kinds == [float(place) for place in range(len(kinds))]
    return codes_of(values, kinds), kinds, [] if plain else [_coded(name, "label", kinds)]


def _groups(name: str, values: NDArray[Any]) -> tuple[NDArray[np.uint8], list[str]]:
    """Groups of an attribute by number: integers from 0 unchanged, other values in sorted order."""
    missing, kinds = is_missing(values), _kinds(values)
    if len(kinds) + missing.any() > MOST_GROUPS:
        raise DataError(f"an attribute must have few groups ({name} has {len(kinds)} distinct values); bin it")
    codes = codes_of(values, kinds)
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
    return Ids(name, codes_of(values, kinds), tuple(owner_name(name, kind) for kind in kinds))


def _feature_names(table: Table, config: TaskConfig) -> list[str]:
    others = (config.client, config.label, *config.drop)
    names = config.features or [name for name in table.columns if name not in others]
    return [name for name in names if name in table.columns]


def _imputed(features: Features, dealt: Federation) -> list[str]:
    report = []
    for name in [column.name for column in features.columns if not column.kinds]:
        gaps = np.isnan(features.values[name])
        if not gaps.any():
            continue
        text = f"{int(gaps.sum())} of {len(gaps)} values of {name} missing: replaced by the client's median"
        empty = [who for client, who in enumerate(dealt.names) if gaps[_places(dealt.train, client)].all()]
        if empty:
            text += f"; {shown(empty)} had no value, and got the median of the other clients' medians"
        report.append(text)
    return report


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


def codes_of(values: NDArray[Any], kinds: Sequence[Any], otherwise: int = 0) -> NDArray[np.int64]:
    """Place of each value among the kinds; `otherwise` if it does not occur."""
    places = {kind: place for place, kind in enumerate(kinds)}
    return np.array([places.get(value, otherwise) for value in values.tolist()], dtype=np.int64)


def _natural_order(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind:g}"


def _coded(name: str, part: str, kinds: Sequence[Any]) -> str:
    return f"{part} {name}: {shown([f'{_text(kind)} = {place}' for place, kind in enumerate(kinds)])}"


TABLE: TaskSpec = TaskSpec(
    name="table:FILE",
    about="your CSV or Parquet file or files: task.client, task.label and other columns by name",
    load=lambda config, seed: table_federation(read_tables(config), config, TABLE, seed),
    models=("mlp", "linear"),
    partitions=("natural", *MADE, *SENSITIVE),
    test="matched",
    sized=True,
)
