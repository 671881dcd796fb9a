"""Task `femnist`: digits and letters of 28 x 28 pixels, 62 classes; each client is one writer (LEAF)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, TaskSpec
from fedmerit.tasks.source import find_file, read_npz

FILE = "femnist_writers_full.npz"
COLUMNS = ("images", "labels", "writer", "split", "duplicate", "writer_names")
KINDS = {"bytes (uint8)": "B", "true or false": "?", "text": "U", "whole numbers": np.typecodes["AllInteger"]}
"""Allowed types of an array, in words and as numpy's type codes."""
SIZE = 28
CLASSES = 62
ENDS = {"labels": CLASSES, "writer": 0, "split": 2}
"""The first number that an array must not have; a writer is one of the names."""
TEST_SHARE = 0.1
"""LEAF's default: nine tenths of a writer's rows for training."""


def read_writers() -> Raw:
    """Read the rows of `femnist_writers_full.npz` without duplicates, with LEAF's split."""
    path = find_file("femnist", FILE)
    columns = read_npz(path, COLUMNS)
    _check(path, columns)
    everything = Raw(
        columns["images"][..., np.newaxis],
        columns["labels"].astype(np.int64),
        CLASSES,
        ids=Ids("writer", columns["writer"].astype(np.int64), tuple(map(str, columns["writer_names"]))),
        for_test=columns["split"] == 1,
    )
    return everything.take(~columns["duplicate"])


def _check(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """Check that the arrays of the file fit each other."""
    rows, names = len(columns["labels"]), len(columns["writer_names"])
    layout = {"images": ("bytes (uint8)", (rows, SIZE, SIZE)), "duplicate": ("true or false", (rows,))}
    layout |= {"writer_names": ("text", (names,)), **dict.fromkeys(ENDS, ("whole numbers", (rows,)))}
    for name, (kind, shape) in layout.items():
        array = columns[name]
        if array.dtype.char not in KINDS[kind] or array.shape != shape:
            raise DataError(f"{path}: {name} must be {kind} of shape {shape}; got {array.dtype} of {array.shape}")
        end = ENDS.get(name, 0) or names
        if name in ENDS and rows and not 0 <= array.min() <= array.max() < end:
            raise DataError(f"{path}: {name} must be 0 to {end - 1}; got {array.min()} to {array.max()}")


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, FEMNIST)
    return build_federation(read_writers(), None, config, FEMNIST, seed, random_share=TEST_SHARE)


FEMNIST = TaskSpec(
    name="femnist",
    about="handwritten digits and letters of 28 x 28 pixels, 62 classes (LEAF); one client per writer",
    load=_load,
    models=("femnist-cnn", "femnist-mlp"),
    partitions=("natural", *MADE),
)
