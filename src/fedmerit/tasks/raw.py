"""Raw rows: a data set as read, before it is spread over clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.errors import DataError


@dataclass(frozen=True, slots=True)
class Ids:
    """To whom each row belongs by nature, and the word for such a client (`writer`, `person`).

    Where the data names its people, `names[value]` is the name of the one with that value.
    """

    word: str
    values: NDArray[np.int64]
    names: tuple[str, ...] | None = None

    def name(self, value: int) -> str:
        """The client's name."""
        return f"{self.word} {value}" if self.names is None else self.names[value]


@dataclass(frozen=True, slots=True)
class Raw:
    """Rows in file order: images (N, height, width, channels) as uint8, labels, attributes, ids where known.

    `for_test` marks the rows that the makers of the data keep for testing, each among its own client's rows.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    classes: int
    attributes: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    ids: Ids | None = None
    for_test: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        columns: dict[str, NDArray[Any]] = {"labels": self.y, **self.attributes}
        if self.ids is not None:
            columns[f"{self.ids.word} ids"] = self.ids.values
        if self.for_test is not None:
            columns["marks of test rows"] = self.for_test
        for name, column in columns.items():
            if len(column) != len(self.x):
                raise DataError(f"every column needs one value per row: {len(self.x)} rows, {len(column)} {name}")
        if len(self.x) == 0:
            raise DataError("a data set needs at least one row; got none")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Raw:
        """These rows alone."""
        ids = None if self.ids is None else replace(self.ids, values=self.ids.values[rows])
        return Raw(
            self.x[rows],
            self.y[rows],
            self.classes,
            {name: column[rows] for name, column in self.attributes.items()},
            ids,
            None if self.for_test is None else self.for_test[rows],
        )
