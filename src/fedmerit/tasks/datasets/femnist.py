"""Task `femnist`: digits and letters of 28 x 28 pixels, 62 classes; each client is one writer (LEAF)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.datasets.writers import numbered_files, sample_writers
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.formats.hub import labels, open_all, pictures, texts
from fedmerit.tasks.formats.images import grey, stack
from fedmerit.tasks.formats.leaf_json import LAYOUT, Writers, has_leaf, read_leaf
from fedmerit.tasks.formats.npz import read_npz
from fedmerit.tasks.source import hub_name, optional_file, task_folder, ways_out
from fedmerit.tasks.task_spec import MADE, TaskSpec

FILE = "femnist_writers_full.npz"
COLUMNS = ("images", "labels", "writer", "split", "duplicate", "writer_names")
KINDS = {"bytes (uint8)": "B", "true or false": "?", "text": "U", "whole numbers": np.typecodes["AllInteger"]}
"""What an array may hold, in words and by numpy's type codes."""
LABELS = ("character", "label")
"""The hub's names for the column of labels; the first that is there counts."""
SIZE = 28
CLASSES = 62
TEST_SHARE = 0.1
"""LEAF's default: nine tenths of a writer's rows to train on."""


def read_folder() -> Writers:
    """The npz file of FEDMERIT_DATA, or else LEAF's JSON files beside it."""
    path = optional_file("femnist", FILE)
    if path is not None:
        return read_file(path)
    wanted = f"femnist/{FILE} or {LAYOUT}"
    folder = task_folder("femnist", wanted)
    if not has_leaf(folder):
        raise DataError(f"task 'femnist' found neither {folder / FILE} nor {LAYOUT} beside it; {ways_out(wanted)}")
    return read_leaf(folder, SIZE, CLASSES)


def read_file(path: Path) -> Writers:
    """The rows of `femnist_writers_full.npz` without the surplus copies, with LEAF's own split."""
    columns = read_npz(path, COLUMNS)
    _check(path, columns)
    names = tuple(map(str, columns["writer_names"]))
    everything = Writers(
        x=columns["images"][..., np.newaxis],
        y=columns["labels"].astype(np.int64),
        writer=columns["writer"].astype(np.int64),
        names=names,
        file=numbered_files(len(names)),
        for_test=columns["split"] == 1,
    )
    return everything.select(~columns["duplicate"])


def read_hub(name: str) -> Writers:
    """FEMNIST from the hub: rows in file order, without a split."""
    rows = open_all(name, ("image", "writer_id"))
    column = next((column for column in LABELS if column in rows.column_names), None)
    if column is None:
        raise DataError(f"{name} must have the column {' or '.join(LABELS)}; got {', '.join(rows.column_names)}")
    y = labels(rows, column, name, CLASSES)
    names, writer = np.unique(texts(rows, "writer_id", name), return_inverse=True)
    x = stack(map(grey, pictures(rows, name)), len(y), (SIZE, SIZE, 1), name)
    return Writers(x, y, writer.astype(np.int64), tuple(map(str, names)), numbered_files(len(names)))


def _check(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """The arrays of the file fit each other."""
    rows, names = len(columns["labels"]), columns["writer_names"]
    _check_array(path, "images", columns, "bytes (uint8)", (rows, SIZE, SIZE))
    _check_array(path, "duplicate", columns, "true or false", (rows,))
    _check_array(path, "writer_names", columns, "text", (len(names),))
    if len(set(names.tolist())) != len(names):
        raise DataError(f"{path}: writer_names must hold each name once; got some twice; fetch the file again")
    for name, end in {"labels": CLASSES, "writer": len(names), "split": 2}.items():
        _check_array(path, name, columns, "whole numbers", (rows,))
        column = columns[name]
        if rows and not 0 <= column.min() <= column.max() < end:
            raise DataError(f"{path}: {name} must be 0 to {end - 1}; got {column.min()} to {column.max()}")


def _check_array(path: Path, name: str, columns: dict[str, NDArray[Any]], kind: str, shape: tuple[int, ...]) -> None:
    array = columns[name]
    if array.dtype.char not in KINDS[kind] or array.shape != shape:
        raise DataError(f"{path}: {name} must be {kind} of shape {shape}; got {array.dtype} of {array.shape}")


def _read(config: TaskConfig) -> Writers:
    """The rows of the source that is set."""
    word, colon, place = config.source.partition(":")
    if word != "leaf":
        name = hub_name(config, default="flwrlabs/femnist", others=("leaf", "leaf:PATH"))
        return read_folder() if name is None else read_hub(name)
    if not colon:
        return read_leaf(task_folder("femnist", LAYOUT), SIZE, CLASSES)
    if not place:
        raise ConfigError(f"task.source = 'leaf:PATH' needs a folder with {LAYOUT}; got {config.source!r}")
    return read_leaf(Path(place).expanduser(), SIZE, CLASSES)


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, FEMNIST)
    chosen = sample_writers(_read(config), config.sample, seed)
    ids = Ids("writer", chosen.writer, chosen.names)
    rows = Raw(chosen.x, chosen.y, CLASSES, ids=ids, for_test=chosen.for_test)
    return build_federation(rows, None, config, FEMNIST, seed, random_share=TEST_SHARE)


FEMNIST = TaskSpec(
    name="femnist",
    about="handwritten digits and letters of 28 x 28 pixels, 62 classes (LEAF); one client per writer",
    load=_load,
    models=("femnist-cnn", "femnist-mlp"),
    partitions=("natural", *MADE),
    sampled=True,
)
