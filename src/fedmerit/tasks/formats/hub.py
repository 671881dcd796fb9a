"""Data sets of the Hugging Face hub, or a local folder of parquet files with the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.errors import DataError
from fedmerit.tasks.formats.images import grey, stack
from fedmerit.tasks.source import need

SPLITS = ("train", "valid", "validation", "test")
"""The order in which splits are joined; for CelebA it is the order of the image numbers."""


def read_words(name: str, columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table as text, all splits together; `education.num` and `education-num` are `education_num`, too."""
    rows = open_all(name, ())
    known = {column.lower().replace(".", "_").replace("-", "_"): column for column in rows.column_names}
    missing = [column for column in columns if column not in known]
    if missing:
        got = ", ".join(rows.column_names)
        raise DataError(f"{name} must have the columns {', '.join(missing)}; got {got}")
    return {
        column: ["" if cell is None else str(cell).strip() for cell in rows[known[column]][:]] for column in columns
    }


def read_labelled(name: str, size: int, classes: int) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Training and test rows, (x, y) each, of a data set with the columns image (grey, size x size) and label."""
    source = _open(name)
    return [_labelled(source, split, name, size, classes) for split in ("train", "test")]


def open_all(name: str, columns: Sequence[str]) -> Any:
    """All rows of all splits, train first, as one datasets.Dataset that has the columns."""
    return _split(_open(name, _join), "all", name, columns)


def integers(rows: Any, column: str, name: str) -> NDArray[np.int64]:
    """A column of whole numbers."""
    values = np.asarray(rows[column][:])
    if values.dtype.kind not in "iu":
        raise DataError(f"column {column!r} of {name} must hold whole numbers; got {values.dtype}")
    return values.astype(np.int64)


def labels(rows: Any, column: str, name: str, classes: int) -> NDArray[np.int64]:
    """A column of labels from 0 to classes - 1."""
    values = integers(rows, column, name)
    if len(values) and not 0 <= values.min() <= values.max() < classes:
        raise DataError(f"labels of {name} must be 0 to {classes - 1}; got {values.min()} to {values.max()}")
    return values


def texts(rows: Any, column: str, name: str) -> NDArray[np.str_]:
    """A column of text; whole numbers, too, are names."""
    values = np.asarray(rows[column][:])
    if values.dtype.kind not in "Uiu":
        raise DataError(f"column {column!r} of {name} must hold text or whole numbers in every row; got {values.dtype}")
    return values.astype(np.str_)


def flags(rows: Any, name: str) -> dict[str, NDArray[np.uint8]]:
    """Every boolean column, as 0/1."""
    columns = [column for column, feature in rows.features.items() if getattr(feature, "dtype", "") == "bool"]
    values = {column: np.asarray(rows[column][:]) for column in columns}
    unknown = [column for column, value in values.items() if value.dtype.kind != "b"]
    if unknown:
        raise DataError(f"columns {', '.join(unknown)} of {name} must be true or false in every row; some are missing")
    return {column: value.astype(np.uint8) for column, value in values.items()}


def pictures(rows: Any, name: str) -> Iterator[Any]:
    """The pictures of the column `image`, decoded one at a time."""
    if not isinstance(rows.features["image"], need("datasets").Image):
        raise DataError(f"column 'image' of {name} must hold images; got {rows.features['image']}")
    try:
        for row in rows.select_columns("image"):
            yield row["image"]
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"an image of {name} cannot be decoded ({error}); fetch the data set again") from None


def _labelled(
    source: Any, split: str, name: str, size: int, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rows = _split(source, split, name, ("image", "label"))
    y = labels(rows, "label", name, classes)
    return stack(map(grey, pictures(rows, name)), len(y), (size, size, 1), name), y


def _open(name: str, preprocessor: Callable[[Any], Any] | None = None) -> Any:
    """A flwr_datasets.FederatedDataset, which loads when a split is first asked for; rows stay in file order."""
    federated = need("flwr_datasets").FederatedDataset
    return federated(dataset=name, partitioners={}, shuffle=False, preprocessor=preprocessor)


def _join(splits: Any) -> Any:
    """All splits as one, named `all`."""
    datasets = need("datasets")
    order = sorted(splits, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split))
    return datasets.DatasetDict({"all": datasets.concatenate_datasets([splits[split] for split in order])})


def _split(source: Any, split: str, name: str, columns: Sequence[str]) -> Any:
    try:
        rows = source.load_split(split)
    except Exception as error:  # the hub's libraries raise their own kinds, several per cause and version
        raise DataError(
            f"the data set {name!r} cannot be loaded from the hub or from a folder of that name: "
            f"{type(error).__name__}: {error}; check the name and the network, or set FEDMERIT_DATA "
            'and task.source = "folder"'
        ) from error
    missing = [column for column in columns if column not in rows.column_names]
    if missing:
        got = ", ".join(rows.column_names)
        raise DataError(f"{name}, split {split!r}, must have the columns {', '.join(missing)}; got {got}")
    return rows
