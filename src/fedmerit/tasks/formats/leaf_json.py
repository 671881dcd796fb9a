"""LEAF's JSON files: users, their numbers of samples, and each user's images and labels.

A folder holds all of a user's rows in `all_data`, or LEAF's split of them in `train` and `test`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import read_file
from fedmerit.errors import DataError

KEYS = ("users", "num_samples", "user_data")
LAYOUT = "LEAF's JSON files: all_data/*.json, or train/*.json and test/*.json"
REMAKE = "make the files again with LEAF's preprocess.sh"
BRIGHTEST = 255


@dataclass(frozen=True, slots=True)
class Writers:
    """Images, labels and the writer of each row, as its place in `names`.

    `file` is the file of each writer; `for_test` marks the test rows where LEAF's split is known.
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    writer: NDArray[np.int64]
    names: tuple[str, ...]
    file: NDArray[np.int64]
    for_test: NDArray[np.bool_] | None = None

    def select(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Writers:
        """Some of the rows; writers keep their places."""
        for_test = None if self.for_test is None else self.for_test[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], writer=self.writer[rows], for_test=for_test)


class User(NamedTuple):
    """A user's rows, and where they were found."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    path: Path
    file: int


class Shape(NamedTuple):
    """What every user's rows must look like: square grey images, and labels below `classes`."""

    size: int
    classes: int


def read_leaf(folder: Path, size: int, classes: int) -> Writers:
    """All users of a folder: of its train and test files where it has them, else of `all_data` or of its own."""
    shape = Shape(size, classes)
    train, test = _files(folder / "train"), _files(folder / "test")
    if train and test:
        return _join_pair(_read(train, shape), _read(test, shape))
    files = [] if train or test else _files(folder / "all_data") or _files(folder)
    if not files:
        got = "only one of the two" if train or test else "none" if folder.is_dir() else "no such folder"
        raise DataError(f"{folder} must hold {LAYOUT}; found {got}; copy the folder `data` of LEAF's femnist")
    return _join([_read(files, shape)])


def has_leaf(folder: Path) -> bool:
    """Whether there is anything that `read_leaf` would read."""
    return any(_files(folder / part) for part in ("train", "test", "all_data", "."))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.is_file())


def _read(files: Sequence[Path], shape: Shape) -> dict[str, User]:
    """The users of several files, each in one file only."""
    users: dict[str, User] = {}
    for number, path in enumerate(files):
        for name, user in _read_file(path, number, shape).items():
            if name in users:
                raise DataError(
                    f"{path}: user {name!r} is in {users[name].path.name}, too, and each user must be in one file; "
                    "remove one of the files"
                )
            users[name] = user
    return users


def _read_file(path: Path, number: int, shape: Shape) -> dict[str, User]:
    names, counts, user_data = _tables(path)
    unlisted = sorted(user_data.keys() - set(names))
    if unlisted:
        raise DataError(f"{path}: user {unlisted[0]!r} of user_data must be in users, too; {REMAKE}")
    users: dict[str, User] = {}
    for name, count in zip(names, counts, strict=True):
        where = f"{path}, user {name!r}"
        if name in users:
            raise DataError(f"{where}: each user must be in users once; {REMAKE}")
        if name not in user_data:
            raise DataError(f"{where}: every one of users must be in user_data; {REMAKE}")
        users[name] = User(*_rows(where, user_data[name], count, shape), path, number)
    return users


def _tables(path: Path) -> tuple[list[str], list[Any], dict[str, Any]]:
    """The three tables of a file."""
    data = _parse(path)
    missing = [key for key in KEYS if key not in data] if isinstance(data, dict) else list(KEYS)
    if missing:
        raise DataError(f"{path} must be an object with {', '.join(KEYS)}; missing: {', '.join(missing)}; {REMAKE}")
    names, counts, user_data = (data[key] for key in KEYS)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names) and isinstance(counts, list)):
        raise DataError(f"{path}: users must be a list of names, num_samples a list of numbers; {REMAKE}")
    if not isinstance(user_data, dict):
        raise DataError(f"{path}: user_data must be an object; got {type(user_data).__name__}; {REMAKE}")
    if len(names) != len(counts):
        raise DataError(
            f"{path}: users and num_samples must be equally long; got {len(names)} and {len(counts)}; {REMAKE}"
        )
    return names, counts, user_data


def _parse(path: Path) -> Any:
    try:
        return json.loads(read_file(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its rights") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON, or is cut off ({error}); {REMAKE}") from None


def _rows(where: str, data: Any, count: Any, shape: Shape) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """A user's images and labels, as many as the file says."""
    x, y = (data.get("x"), data.get("y")) if isinstance(data, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list):
        raise DataError(f"{where}: user_data must have two lists, x and y; {REMAKE}")
    if not len(x) == len(y) == count:
        raise DataError(
            f"{where}: num_samples, x and y must agree; num_samples says {count}, there are {len(x)} in x "
            f"and {len(y)} in y; {REMAKE}"
        )
    if count == 0:  # a user may have nothing to be tested on
        return np.empty((0, shape.size, shape.size, 1), np.uint8), np.empty(0, np.int64)
    return _images(where, x, shape.size), _labels(where, y, shape.classes)


def _images(where: str, x: list[Any], size: int) -> NDArray[np.uint8]:
    """Pixels from 0 to 1 back to bytes; LEAF divided bytes by 255."""
    for row, image in enumerate(x):
        if not isinstance(image, list) or len(image) != size * size:
            got = len(image) if isinstance(image, list) else type(image).__name__
            raise DataError(f"{where}: image {row} must be a list of {size * size} pixels; got {got}; {REMAKE}")
    values = _array(x, ndim=2, kinds="iuf")
    if values is None:
        raise DataError(f"{where}: pixels must be numbers from 0 to 1; some are not numbers; {REMAKE}")
    wrong = values[~((values >= 0) & (values <= 1))]  # NaN is neither below 0 nor above 1
    if len(wrong):
        raise DataError(f"{where}: pixels must be numbers from 0 to 1; got {wrong[0]:g}; {REMAKE}")
    pixels: NDArray[np.uint8] = np.rint(BRIGHTEST * values).astype(np.uint8)
    return pixels.reshape(len(x), size, size, 1)


def _labels(where: str, y: list[Any], classes: int) -> NDArray[np.int64]:
    values = _array(y, ndim=1, kinds="iu")
    rule = f"{where}: labels must be whole numbers from 0 to {classes - 1}"
    if values is None:
        raise DataError(f"{rule}; some are not whole numbers; {REMAKE}")
    if not 0 <= values.min() <= values.max() < classes:
        raise DataError(f"{rule}; got {values.min()} to {values.max()}; {REMAKE}")
    return values.astype(np.int64)


def _array(values: list[Any], ndim: int, kinds: str) -> NDArray[Any] | None:
    """The values as an array; None where they are not of that shape or not numbers of these kinds."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # lists of different lengths; numbers beyond any kind
        return None
    return array if array.ndim == ndim and array.dtype.kind in kinds else None


def _join_pair(train: dict[str, User], test: dict[str, User]) -> Writers:
    alone = sorted(train.keys() ^ test.keys())
    if alone:
        user = train.get(alone[0]) or test[alone[0]]
        raise DataError(f"{user.path}: user {alone[0]!r} must be in both train and test, and is only here; {REMAKE}")
    return _join([train, test])


def _join(parts: Sequence[dict[str, User]]) -> Writers:
    """One row after the other: user by user, and of each user first the rows to train on, then those for testing."""
    for name, user in parts[0].items():
        if len(user.y) == 0:
            raise DataError(f"{user.path}, user {name!r}: needs at least one row to train on; got none; {REMAKE}")
    if not parts[0]:
        raise DataError(f"LEAF's files need at least one user; all lists of users are empty; {REMAKE}")
    pieces = [part[name] for name in parts[0] for part in parts]
    counts = np.array([len(piece.y) for piece in pieces])
    places = np.arange(len(pieces))
    return Writers(
        x=np.concatenate([piece.x for piece in pieces]),
        y=np.concatenate([piece.y for piece in pieces]),
        writer=np.repeat(places // len(parts), counts),
        names=tuple(parts[0]),
        file=np.array([user.file for user in parts[0].values()], dtype=np.int64),
        for_test=np.repeat(places % 2 == 1, counts) if len(parts) == 2 else None,
    )
