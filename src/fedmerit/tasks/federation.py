"""Data of a task: `Raw` as read, `Federation` as distributed over clients, and its client and server halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.targets import TargetKind
from fedmerit.core.types import ClientId, Samples
from fedmerit.errors import DataError, UnknownName
from fedmerit.tasks.checks import (
    as_array,
    as_labels,
    check_columns,
    check_federation,
    check_names,
    check_samples,
    check_split,
)

if TYPE_CHECKING:
    from fedmerit.tasks.data_report import DataReport
    from fedmerit.tasks.encoding import Encoder


@dataclass(frozen=True, slots=True)
class Ids:
    """Natural owner of each row, and the word for such a client (`writer`, `person`).

    If the data names its owners, `names[value]` is the name of the owner with that value.
    """

    word: str
    values: NDArray[np.int64]
    names: tuple[str, ...] | None = None

    def name(self, value: int) -> str:
        """Return the client's name."""
        return f"{self.word} {value}" if self.names is None else self.names[value]


@dataclass(frozen=True, slots=True)
class Raw:
    """A data set in file order: images (N, height, width, channels) as uint8, labels, attributes, and ids if known.

    `for_test` marks the published test rows of each client. `target` is the kind of the labels; `classes` is 1 for a
    number.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    classes: int
    attributes: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    ids: Ids | None = None
    for_test: NDArray[np.bool_] | None = None
    target: TargetKind = "classes"

    def __post_init__(self) -> None:
        columns: dict[str, NDArray[Any]] = {"labels": self.y, **self.attributes}
        if self.ids is not None:
            columns[f"{self.ids.word} ids"] = self.ids.values
        if self.for_test is not None:
            columns["marks of test rows"] = self.for_test
        check_columns(len(self.x), columns)
        if len(self.x) == 0:
            raise DataError("a data set needs at least one row (got none)")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Raw:
        """Return only these rows."""
        ids = None if self.ids is None else replace(self.ids, values=self.ids.values[rows])
        for_test = None if self.for_test is None else self.for_test[rows]
        attributes = _rows_of(self.attributes, rows)
        return Raw(self.x[rows], self.y[rows], self.classes, attributes, ids, for_test, self.target)

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Class of each row, for stratified test rows."""
        return np.zeros(len(self.y), dtype=np.int64) if self.target == "number" else self.y

    def samples(self, rows: NDArray[np.int64]) -> Samples:
        """Copy these rows into samples."""
        return Samples(self.x[rows], self.y[rows], self.classes, _rows_of(self.attributes, rows))


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of all clients, concatenated; client i owns rows `offsets[i]:offsets[i + 1]`.

    x            images (N, height, width, channels) as uint8, or features (N, features) as float32
    y            labels (N,), or (N, labels) of 0 and 1
    offsets      the first row of each client, and the number of rows at the end
    attributes   columns of further values per row, by name

    Lists and tensors become arrays. Lengths are checked here, values when a `Federation` is built.

    >>> x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 1])
    >>> rows = Split(x, y, offsets=np.array([0, 2, 3]))
    >>> rows.sizes.tolist(), rows.samples(1, classes=2).y.tolist()
    ([2, 1], [1])
    """

    x: NDArray[Any]
    y: NDArray[Any]
    offsets: NDArray[np.int64]
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", as_array(self.x, "inputs"))
        object.__setattr__(self, "y", as_labels(self.y))
        object.__setattr__(self, "offsets", as_array(self.offsets, "offsets"))
        columns = {name: as_array(column, name) for name, column in self.attributes.items()}
        object.__setattr__(self, "attributes", columns)
        check_split(self)

    def of_clients(self, clients: Sequence[ClientId]) -> Split:
        """Return only the rows of these clients, in this order."""
        places = [np.arange(*self.rows(client).indices(len(self.y))) for client in clients]
        rows, ends = np.concatenate(places), np.cumsum([0, *map(len, places)])
        return Split(self.x[rows], self.y[rows], ends, _rows_of(self.attributes, rows))

    def __repr__(self) -> str:
        return f"<Split: {len(self.y):,} rows of {len(self.offsets) - 1} clients, inputs {self.x.shape[1:]}>"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows per client."""
        return np.diff(self.offsets)

    def rows(self, client: ClientId) -> slice:
        """Return the client's rows as a slice."""
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def samples(self, client: ClientId, classes: int) -> Samples:
        """Return a view of the client's rows."""
        rows = self.rows(client)
        return Samples(self.x[rows], self.y[rows], classes, _rows_of(self.attributes, rows))

    def emptied(self) -> Split:
        """Return the same clients without any rows."""
        offsets = np.zeros(len(self.offsets), dtype=np.int64)  # zeros_like would write to the shared memory
        return Split(self.x[:0], self.y[:0], offsets, _rows_of(self.attributes, slice(0)))


@dataclass(frozen=True, slots=True)
class ClientData:
    """Client half of a federation: one client's number, name and rows."""

    id: ClientId
    name: str
    train: Samples
    test: Samples
    validation: Samples
    target: TargetKind = "classes"

    def __post_init__(self) -> None:
        for which, samples in {"training": self.train, "test": self.test, "validation": self.validation}.items():
            check_samples(samples, f"{which} rows of {self.name}", self.target)


NO_ROWS = Split(np.empty(0), np.empty(0, np.int64), np.zeros(1, np.int64))
"""Stands for no validation rows until the number of clients is known."""


@dataclass(frozen=True, slots=True)
class Federation:
    """Clients and their data: rows for training, testing and validation; everything is checked.

    Tables, files and arrays become a federation with `from_frame`, `from_files` and `from_clients`.

    names        display names of the clients
    train, test  rows of all clients
    classes      the number of classes; 1 for a number
    validation   rows for searches and acceptance tests; by default none
    server       rows that only the server has, to score models on
    report       what was done to the data when it was read
    encoder      encodes later rows of a table in the same way
    target       kind of the labels: classes, a number, or (N, labels) of 0 and 1 (`core.targets`)
    facts        columns of facts about the clients, a number or a word per client
    data         of a table: its columns, labels by client, and suspicions (`Federation.data.suspicions`)

    >>> x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 1])
    >>> rows = Split(x, y, offsets=np.array([0, 2, 3]))
    >>> Federation(("north", "south"), train=rows, test=rows, classes=2).client(1).name
    'south'
    """

    names: tuple[str, ...]
    train: Split
    test: Split
    classes: int
    validation: Split = NO_ROWS
    server: Samples | None = None
    report: tuple[str, ...] = ()
    encoder: Encoder | None = None
    target: TargetKind = "classes"
    facts: Mapping[str, tuple[float | str, ...]] = field(default_factory=dict)
    data: DataReport | None = None

    def __post_init__(self) -> None:
        if self.validation is NO_ROWS:
            object.__setattr__(self, "validation", self.train.emptied())
        check_names(self.names)
        object.__setattr__(self, "names", tuple(self.names))
        check_federation(self)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        label: str | Sequence[str],
        client: str = "",
        target: TargetKind = "classes",
        attributes: Sequence[str] = (),
        features: Sequence[str] = (),
        test: float = 0.2,
        server: int = 0,
        validation: float = 0.0,
        standardise: Literal["client", "none"] = "client",
        seed: int = 0,
        **settings: Any,
    ) -> Federation:
        """Build a federation from a pandas or polars frame, or an Arrow table; keys as in [task] (docs/your-files.md).

        client      the column that names the client of each row; without it set `partition` and `clients`
        label       the column to predict; with target="number" one of numbers
        attributes  columns of groups, for criteria and fairness; they are inputs too unless `features` leaves them out
        test        the share of each client's rows to test on, stratified by label
        server      the number of rows that the server keeps and no client has
        """
        from fedmerit.tasks.formats.table_files import read_frame
        from fedmerit.tasks.own_data import table_of

        keys: dict[str, Any] = {
            "label": label if isinstance(label, str) else tuple(label),
            "client": client,
            "target": target,
            "attributes": tuple(attributes),
            "features": tuple(features),
        }
        keys |= {"test": test, "server": server, "validation": validation}
        return table_of(read_frame(frame), seed, keys | {"standardise": standardise} | settings)

    @classmethod
    def from_files(
        cls,
        paths: Path | str | Sequence[Path | str],
        *,
        label: str | Sequence[str],
        client: str | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> Federation:
        """Build a federation from CSV or Parquet files; settings as in `from_frame`.

        paths       a file, a folder, a pattern such as "hospitals/*.csv", or a list of files
        client      the column that names the client of each row; default: the stem of its file
        """
        from fedmerit.tasks.own_data import files_of

        return files_of(paths, seed, {"label": label, "client": client or "", "test": 0.2} | settings)

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, Any],
        *,
        classes: int | None = None,
        target: TargetKind = "classes",
        test: float | Mapping[str, Any] = 0.2,
        seed: int = 0,
        **settings: Any,
    ) -> Federation:
        """Build a federation from arrays {name: (x, y)} or {name: (x, y, attributes)}; `test` is a share, or arrays."""
        from fedmerit.tasks.own_data import clients_of

        return clients_of(clients, classes, target, test, seed, settings)

    def without(self, names: Sequence[str]) -> Federation:
        """Return the federation of the remaining clients: they keep their rows, and are numbered anew in their order.

        Not for tables whose encoder is fitted already: `task.without` removes clients before that.

        >>> from fedmerit import load_task
        >>> load_task("digits", clients=4).federation.without(["1"]).names
        ('0', '2', '3')
        """
        for name in names:
            if name not in self.names:
                raise UnknownName("client to leave", name, self.names)
        stay = [client for client, name in enumerate(self.names) if name not in names]
        if not stay:
            raise DataError("a federation needs at least one client (all of them leave)")
        splits = {name: getattr(self, name).of_clients(stay) for name in ("train", "test", "validation")}
        kept = tuple(self.names[client] for client in stay)
        facts = {fact: tuple(values[client] for client in stay) for fact, values in self.facts.items()}
        return replace(self, names=kept, facts=facts, **splits)

    def __repr__(self) -> str:
        rows = f"{len(self.train.y):,} rows to train on, {len(self.test.y):,} to test on"
        predicted = "a number" if self.target == "number" else f"{self.classes} {self.target}"
        return f"<Federation: {len(self.names)} clients, {rows}, {predicted}>"

    def samples(self, client: ClientId) -> Samples:
        """Return a view of the client's training rows, with the client's facts."""
        own = self.own_facts
        samples = self.train.samples(client, self.classes)
        return replace(samples, own=own[client]) if own else samples

    @property
    def own_facts(self) -> tuple[dict[str, float | str], ...]:
        """Facts of each client; empty if there are none."""
        rows = zip(*self.facts.values(), strict=True)
        return tuple(dict(zip(self.facts, row, strict=True)) for row in rows)

    def client(self, client: ClientId) -> ClientData:
        """Return the client's half, as views of its rows."""
        if not 0 <= client < len(self.names):
            raise DataError(f"client must be in 0..{len(self.names) - 1} (got {client})")
        test, validation = (split.samples(client, self.classes) for split in (self.test, self.validation))
        return ClientData(client, self.names[client], self.samples(client), test, validation, self.target)


def _rows_of(
    attributes: Mapping[str, NDArray[Any]], rows: slice | NDArray[np.int64] | NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    return {name: column[rows] for name, column in attributes.items()}
