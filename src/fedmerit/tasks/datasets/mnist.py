"""Tasks `mnist`, `mnist-two-groups` and `fashion-mnist`: 60,000 + 10,000 grey images of 28 x 28, 10 classes.

The files are in MNIST's idx format: a header with type and dimensions, then the bytes; plain or gzipped.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, TaskSpec
from fedmerit.tasks.source import find_file, optional_file, read_bytes, read_npz

SIZE = 28
CLASSES = 10
UNSIGNED_BYTE = 8
WRITERS = "mnist_writers.npz"
HIGH_SCHOOL = 4
"""NIST's code for the digits of high-school students; 0 is the code of its employees."""
GROUPS = ((1, 2, 3, 4, 5), (0, 6, 7, 8, 9))
ROWS_PER_CLIENT = (1500, 1500)
MODELS = ("mnist-cnn", "mnist-cnn-linear", "mnist-mlp")


def read_idx(path: Path, *shape: int) -> NDArray[np.uint8]:
    """Read the items of an idx file of unsigned bytes, each of this shape: () for labels, (28, 28) for images."""
    data, rank = read_bytes(path), 1 + len(shape)
    start, magic = 4 + 4 * rank, bytes([0, 0, UNSIGNED_BYTE, rank])
    if data[:4] != magic:
        raise DataError(f"{path} must start with the idx magic {magic.hex()} (got {data[:4].hex()}); download it again")
    if len(data) < start:
        raise DataError(f"{path} ends within its header of {start} bytes; download it again")
    sizes = struct.unpack(f">{rank}I", data[4:start])
    if sizes[1:] != shape:
        raise DataError(f"{path} must contain items of shape {shape} (got {sizes[1:]})")
    if len(data) - start != math.prod(sizes):
        got = len(data) - start
        raise DataError(f"{path} must have {math.prod(sizes)} bytes after its header (got {got}); download it again")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(sizes)


def read_idx_folder(task: str) -> tuple[Raw, Raw]:
    """Read training and test rows of the task's four idx files."""
    return _read_part(task, "train"), _read_part(task, "t10k")


def read_mnist(writers: bool = False) -> tuple[Raw, Raw]:
    """Read training and test rows of MNIST, with their writers if the file exists (an error if `writers`)."""
    train, test = read_idx_folder("mnist")
    path = find_file("mnist", WRITERS) if writers else optional_file("mnist", WRITERS)
    if path is None:
        return train, test
    columns = read_npz(path, ("train_writer", "train_hsf", "test_writer", "test_hsf"))
    try:
        return _with_writers(train, columns, "train"), _with_writers(test, columns, "test")
    except DataError as error:
        raise DataError(f"{path} does not belong to the images in its folder: {error}") from None


def _read_part(task: str, part: str) -> Raw:
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    images, labels = (find_file(task, f"{name}.gz", name) for name in names)
    x, y = read_idx(images, SIZE, SIZE), read_idx(labels)
    if len(x) != len(y):
        raise DataError(f"each image needs one label ({images} has {len(x)} images, {labels} has {len(y)} labels)")
    if len(y) and y.max() >= CLASSES:
        raise DataError(f"{labels} must contain labels from 0 to {CLASSES - 1} (got {y.max()})")
    return Raw(x[..., np.newaxis], y.astype(np.int64), CLASSES)


def _with_writers(raw: Raw, columns: Mapping[str, NDArray[Any]], part: str) -> Raw:
    student = (columns[f"{part}_hsf"] == HIGH_SCHOOL).astype(np.uint8)
    return replace(raw, attributes={"hsf4": student}, ids=Ids("writer", columns[f"{part}_writer"].astype(np.int64)))


def _load_mnist(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, MNIST)
    return build_federation(*read_mnist(writers=config.partition == "natural"), config, MNIST, seed)


def _load_two_groups(config: TaskConfig, seed: int) -> Federation:
    """Build the federation of [M2F]: 40 clients in two groups of labels, 1,500 rows each, tested on their labels."""
    config = settle(config, TWO_GROUPS)
    settings = {"groups": config.groups or GROUPS, "size": config.size or ROWS_PER_CLIENT}
    return build_federation(*read_mnist(), config.model_copy(update=settings), TWO_GROUPS, seed)


def _load_fashion(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, FASHION)
    return build_federation(*read_idx_folder("fashion-mnist"), config, FASHION, seed)


MNIST = TaskSpec(
    name="mnist",
    about="70,000 handwritten digits of 28 x 28 pixels, 10 classes; 539 writers of the training rows",
    load=_load_mnist,
    models=MODELS,
    partitions=(*MADE, "natural"),
    clients=100,
)

TWO_GROUPS = TaskSpec(
    name="mnist-two-groups",
    about="MNIST by M2F: 40 clients, half with the digits 1 to 5, half with 0 and 6 to 9",
    load=_load_two_groups,
    models=("m2f-cnn", *MODELS),
    partitions=("label-draws",),
    clients=40,
    test="matched",
)

FASHION = TaskSpec(
    name="fashion-mnist",
    about="70,000 pieces of clothing of 28 x 28 pixels, 10 classes",
    load=_load_fashion,
    models=MODELS,
    clients=100,
)
