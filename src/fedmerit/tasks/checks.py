"""Checks of input data: lengths, types, ranges, names and layout; each error is one line with a fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.targets import TargetKind
from fedmerit.core.types import Samples
from fedmerit.errors import DataError

if TYPE_CHECKING:
    from fedmerit.tasks.federation import Federation, Split

CHANNELS = (1, 2, 3, 4)
"""Possible numbers of channels, to distinguish (N, 3, H, W) from (N, H, W, 3)."""


def as_array(values: Any, what: str) -> NDArray[Any]:
    """Convert an array, tensor or list of numbers to numpy."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{what} must form one array (got {type(values).__name__} of different shapes; {error})"
        ) from None


def as_labels(values: Any) -> NDArray[Any]:
    """Convert integer or boolean labels to int64; `check_labels` rejects other types."""
    labels = as_array(values, "labels")
    return labels.astype(np.int64) if labels.dtype.kind in "iub" and labels.dtype != np.int64 else labels


def as_rows(arrays: Any, whose: str) -> tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]:
    """Convert (inputs, labels) or (inputs, labels, attributes) to numpy; floating-point inputs become float32."""
    if not isinstance(arrays, tuple | list) or len(arrays) not in (2, 3):
        got = type(arrays).__name__
        raise DataError(f"the {whose} must be (inputs, labels), or (inputs, labels, attributes) (got {got})")
    x, y, attributes = (*arrays, {})[:3]
    inputs = as_array(x, f"inputs of the {whose}")
    columns = {str(name): as_array(column, str(name)) for name, column in attributes.items()}
    return inputs.astype(np.float32) if inputs.dtype.kind == "f" else inputs, as_labels(y), columns


def check_split(split: Split) -> None:
    """Check one label and one value of each attribute per row, and the offsets; cheap, for every split."""
    x, y, offsets = split.x, split.y, split.offsets
    if x.ndim == 0 or y.ndim not in (1, 2) or offsets.ndim != 1:
        raise DataError(
            f"a split needs rows (N, ...), labels (N,) or (N, labels) and offsets (clients + 1,) (got shapes "
            f"{x.shape}, {y.shape} and {offsets.shape})"
        )
    check_columns(len(x), {"labels": y, **{f"values of {name}": v for name, v in split.attributes.items()}})
    if offsets.dtype.kind not in "iu" or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(x):
        shown = f"{offsets[0]}..{offsets[-1]}" if len(offsets) else "none"
        raise DataError(f"offsets must be integers from 0 to the number of rows, {len(x)} (got {shown})")


def check_columns(rows: int, columns: Mapping[str, NDArray[Any]]) -> None:
    """Check that every column has one value per row."""
    for name, column in columns.items():
        if len(column) != rows:
            raise DataError(f"every column needs one value per row ({rows} rows, {len(column)} {name})")


def check_federation(federation: Federation) -> None:
    """Check everything that a run relies on, before any client trains."""
    classes, names = federation.classes, federation.names
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1:
        raise DataError(f"classes must be an integer, 1 or more (got {classes!r})")
    splits = {"training": federation.train, "test": federation.test, "validation": federation.validation}
    for which, split in splits.items():
        if len(split.offsets) != len(names) + 1:
            raise DataError(
                f"every client needs one name ({len(names)} names, "
                f"{len(split.offsets) - 1} clients in the {which} rows)"
            )
        if (np.diff(split.offsets) < 0).any():
            raise DataError(f"offsets must not decrease (those of the {which} rows do)")
        check_samples(Samples(split.x, split.y, classes, split.attributes), f"{which} rows", federation.target)
    if not len(federation.train.y):
        raise DataError("no client has a training row; add rows, or lower the shares for test and validation")
    parties = {which: split.x for which, split in splits.items()}
    if federation.server is not None:
        check_samples(federation.server, "server's rows", federation.target)
        parties["server's"] = federation.server.x
    _check_alike(parties)


def check_names(names: Sequence[str]) -> None:
    """Check that names are distinct texts, none of them empty."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise DataError(f"names must be one text per client (got {names!r:.80})")
    if empty := [place for place, name in enumerate(names) if not name.strip()]:
        raise DataError(f"every client needs a name (that of client {empty[0]} is {names[empty[0]]!r}); give it one")
    name, times = Counter(names).most_common(1)[0] if len(names) else ("", 0)
    if times != 1:
        raise DataError(f"names must be distinct ({f'{times} clients are called {name!r}' if times else 'got none'})")


def check_samples(samples: Samples, whose: str, target: TargetKind = "classes") -> None:
    """Check the rows of one party."""
    columns = {"labels": samples.y, **{f"values of {name}": v for name, v in samples.attributes.items()}}
    check_columns(len(samples.x), {f"{name} in the {whose}": column for name, column in columns.items()})
    check_inputs(samples.x, whose)
    if len(samples):
        check_labels(samples.y, samples.classes, whose, target)


def check_inputs(x: NDArray[Any], whose: str) -> None:
    """Check that inputs are finite numbers in a supported layout."""
    if x.dtype.kind not in "fiub":
        raise DataError(
            f"inputs must be numbers (the {whose} contain {_kind(x)}); encode them with Federation.from_frame"
        )
    if x.ndim < 2 and len(x):
        raise DataError(
            f"inputs must have shape (rows, features) or (rows, height, width, channels) (got {x.shape}); for one row, "
            "use x[None]"
        )
    if x.ndim == 4 and x.shape[1] in CHANNELS and x.shape[3] not in CHANNELS:
        raise DataError(
            f"images must be (rows, height, width, channels); the {whose} are {x.shape}, channels first: "
            "use x.transpose(0, 2, 3, 1)"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
        raise DataError(
            f"inputs must be finite; row {row} of the {whose} contains NaN or infinity; drop it, or impute it with "
            "Federation.from_frame"
        )


def check_labels(y: NDArray[Any], classes: int, whose: str, target: TargetKind = "classes") -> None:
    """Check integers 0..classes - 1, or finite numbers."""
    if target not in get_args(TargetKind):
        raise DataError(f"target must be one of {', '.join(get_args(TargetKind))} (got {target!r})")
    if target == "number":
        if y.ndim != 1 or y.dtype.kind not in "iuf":
            raise DataError(
                f"a target that is a number needs one per row, (N,) (the {whose} contain {_kind(y)} of {y.shape})"
            )
        if not np.isfinite(y).all():
            row = int(np.flatnonzero(~np.isfinite(y))[0])
            raise DataError(f"numbers to predict must be finite (row {row} of the {whose} is {y[row]}); drop the row")
        return
    rule = f"labels must be integers 0..{classes - 1} for {classes} classes"
    if y.ndim != 1:
        raise DataError(f"classes must be labels (N,); the {whose} have {y.shape}: use y.ravel()")
    if y.dtype.kind not in "iu":
        numbers = "; to predict numbers set target='number'" if y.dtype.kind == "f" else ""
        raise DataError(
            f"{rule}; the {whose} contain {_kind(y)}; number them: np.unique(y, return_inverse=True)[1]{numbers}"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > classes - 1:
        raise DataError(f"{rule}; the {whose} contain {low}..{high}; count the classes from 0, or set `classes`")


def _check_alike(parties: Mapping[str, NDArray[Any]]) -> None:
    """Check that all rows have one shape and scale: bytes mean 0..1, other numbers themselves."""
    filled = {which: x for which, x in parties.items() if len(x)}
    for which, x in filled.items():
        train = filled["training"]
        if x.shape[1:] != train.shape[1:]:
            raise DataError(f"rows must have one shape (training rows {train.shape[1:]}, {which} rows {x.shape[1:]})")
        if (x.dtype == np.uint8) != (train.dtype == np.uint8):
            raise DataError(
                f"rows must all be bytes (0..255), or none (training rows {train.dtype}, {which} rows {x.dtype})"
            )


def _kind(values: NDArray[Any]) -> str:
    if values.dtype.kind in "UOS" and values.size:
        return f"{type(values.flat[0]).__name__} such as {values.flat[0]!r:.40}"
    return str(values.dtype)
