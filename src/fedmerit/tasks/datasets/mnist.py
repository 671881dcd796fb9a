"""Tasks `mnist`, `mnist-two-groups` and `fashion-mnist`: 60,000 + 10,000 grey images of 28 x 28, 10 classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.formats.hub import read_labelled
from fedmerit.tasks.formats.idx import read_pair
from fedmerit.tasks.formats.npz import read_npz
from fedmerit.tasks.source import find_file, hub_name, optional_file
from fedmerit.tasks.task_spec import MADE, TaskSpec

SIZE = 28
CLASSES = 10
WRITERS = "mnist_writers.npz"
HIGH_SCHOOL = 4
"""NIST's number for the digits of high-school students; 0 are those of its employees."""
GROUPS = ((1, 2, 3, 4, 5), (0, 6, 7, 8, 9))
ROWS_PER_CLIENT = 1500
MODELS = ("mnist-cnn", "mnist-cnn-linear", "mnist-mlp")


def read_idx_folder(task: str) -> tuple[Raw, Raw]:
    """Training and test rows of the task's four idx files."""
    return _read_part(task, "train"), _read_part(task, "t10k")


def read_mnist(writers: bool = False) -> tuple[Raw, Raw]:
    """Training and test rows of MNIST, with their writers where the file is there (an error if it must be)."""
    train, test = read_idx_folder("mnist")
    path = find_file("mnist", WRITERS) if writers else optional_file("mnist", WRITERS)
    if path is None:
        return train, test
    columns = read_npz(path, ("train_writer", "train_hsf", "test_writer", "test_hsf"))
    try:
        return _with_writers(train, columns, "train"), _with_writers(test, columns, "test")
    except DataError as error:
        raise DataError(f"{path} does not belong to the images beside it: {error}") from None


def read_hub(name: str) -> tuple[Raw, Raw]:
    """Training and test rows of a data set of the hub."""
    (x, y), (test_x, test_y) = read_labelled(name, SIZE, CLASSES)
    return Raw(x, y, CLASSES), Raw(test_x, test_y, CLASSES)


def _read_part(task: str, part: str) -> Raw:
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    images, labels = (find_file(task, f"{name}.gz", name) for name in names)
    return Raw(*read_pair(images, labels, SIZE, CLASSES), CLASSES)


def _with_writers(raw: Raw, columns: Mapping[str, NDArray[Any]], part: str) -> Raw:
    student = (columns[f"{part}_hsf"] == HIGH_SCHOOL).astype(np.uint8)
    return replace(raw, attributes={"hsf4": student}, ids=Ids("writer", columns[f"{part}_writer"].astype(np.int64)))


def _load_mnist(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, MNIST)
    natural = config.partition == "natural"
    name = hub_name(config, default="ylecun/mnist")
    if name is None:
        return build_federation(*read_mnist(writers=natural), config, MNIST, seed)
    if natural:
        raise ConfigError(
            f"partition 'natural' needs the writers of MNIST, and these are only in {WRITERS} of a folder; "
            f'got task.source = {config.source!r}; set task.source = "folder"'
        )
    return build_federation(*read_hub(name), config, MNIST, seed)


def _load_two_groups(config: TaskConfig, seed: int) -> Federation:
    """The federation of [M2F]: 40 clients in two groups of labels, 1,500 rows each, tested on their labels."""
    config = settle(config, TWO_GROUPS)
    settings = {"groups": config.groups or GROUPS, "size": config.size or ROWS_PER_CLIENT}
    name = hub_name(config, default="ylecun/mnist")
    rows = read_mnist() if name is None else read_hub(name)
    return build_federation(*rows, config.model_copy(update=settings), TWO_GROUPS, seed)


def _load_fashion(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, FASHION)
    name = hub_name(config, default="zalando-datasets/fashion_mnist")
    rows = read_idx_folder("fashion-mnist") if name is None else read_hub(name)
    return build_federation(*rows, config, FASHION, seed)


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
