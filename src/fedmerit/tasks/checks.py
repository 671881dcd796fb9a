"""Checks of data at the door: lengths, types, ranges, names and layout; each mistake is one line with a way out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.targets import TargetKind
from fedmerit.errors import DataError

if TYPE_CHECKING:
    from fedmerit.core.types import Samples
    from fedmerit.tasks.federation import Federation, Split

CHANNELS = (1, 2, 3, 4)
"""How many channels a picture may have, so that (N, 3, H, W) can be told from (N, H, W, 3)."""


def as_array(values: Any, what: str) -> NDArray[Any]:
    """Any array, tensor or list of numbers as numpy's, if it has one shape."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} must form one array; got {type(values).__name__} of unlike parts ({error})") from None


def as_labels(values: Any) -> NDArray[Any]:
    """Labels as int64 where they are whole numbers or flags; others are left for `check_labels` to refuse."""
    labels = as_array(values, "labels")
    return labels.astype(np.int64) if labels.dtype.kind in "iub" and labels.dtype != np.int64 else labels


def as_rows(arrays: Any, whose: str) -> tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]:
    """(inputs, labels) or (inputs, labels, attributes) as numpy's arrays; inputs with a point as float32."""
    if not isinstance(arrays, tuple | list) or len(arrays) not in (2, 3):
        got = type(arrays).__name__
        raise DataError(f"the {whose} are (inputs, labels), or (inputs, labels, attributes); got {got}")
    x, y, attributes = (*arrays, {})[:3]
    inputs = as_array(x, f"inputs of the {whose}")
    columns = {str(name): as_array(column, str(name)) for name, column in attributes.items()}
    return inputs.astype(np.float32) if inputs.dtype.kind == "f" else inputs, as_labels(y), columns


def check_split(split: Split) -> None:
    """One label and one value of each attribute per row, and places that cover the rows; cheap, for every split."""
    x, y, offsets = split.x, split.y, split.offsets
    if x.ndim == 0 or y.ndim not in (1, 2) or offsets.ndim != 1:
        raise DataError(
            f"a split has rows (N, ...), labels (N,) or (N, labels) and offsets (clients + 1,); got the shapes "
            f"{x.shape}, {y.shape} and {offsets.shape}"
        )
    check_columns(len(x), {"labels": y, **{f"values of {name}": v for name, v in split.attributes.items()}})
    if offsets.dtype.kind not in "iu" or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(x):
        shown = f"{offsets[0]}..{offsets[-1]}" if len(offsets) else "none"
        raise DataError(f"offsets are whole numbers that rise from 0 to the {len(x)} rows; got {shown}")


def check_columns(rows: int, columns: Mapping[str, NDArray[Any]]) -> None:
    """Every column has one value per row."""
    for name, column in columns.items():
        if len(column) != rows:
            raise DataError(f"every column needs one value per row: {rows} rows, {len(column)} {name}")


def check_federation(federation: Federation) -> None:
    """Everything that a run takes for granted; told before anybody trains."""
    classes, names = federation.classes, federation.names
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1:
        raise DataError(f"classes is a whole number, 1 or more; got {classes!r}")
    splits = {"training": federation.train, "test": federation.test, "validation": federation.validation}
    for which, split in splits.items():
        if len(split.offsets) != len(names) + 1:
            raise DataError(
                f"every client has a name and every name a client: {len(names)} names, "
                f"{len(split.offsets) - 1} clients in the {which} rows"
            )
        if (np.diff(split.offsets) < 0).any():
            raise DataError(f"offsets never fall, one client's rows follow the other's; those of the {which} rows do")
        check_values(split.x, split.y, classes, f"{which} rows", federation.target)
    if not len(federation.train.y):
        raise DataError("no client has a training row")
    parties = {which: split.x for which, split in splits.items()}
    if federation.server is not None:
        check_samples(federation.server, "server's rows", federation.target)
        parties["server's"] = federation.server.x
    _check_alike(parties)


def check_names(names: Sequence[str]) -> None:
    """Names are texts, each of one client."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise DataError(f"names are one text per client; got {names!r:.80}")
    name, times = Counter(names).most_common(1)[0] if len(names) else ("", 0)
    if times != 1:
        raise DataError(f"names tell clients apart; {f'{times} are called {name!r}' if times else 'got none'}")


def check_samples(samples: Samples, whose: str, target: TargetKind = "classes") -> None:
    """The rows of one party."""
    columns = {"labels": samples.y, **{f"values of {name}": v for name, v in samples.attributes.items()}}
    check_columns(len(samples.x), {f"{name} in the {whose}": column for name, column in columns.items()})
    check_values(samples.x, samples.y, samples.classes, whose, target)


def check_values(x: NDArray[Any], y: NDArray[Any], classes: int, whose: str, target: TargetKind = "classes") -> None:
    """Inputs are finite numbers in a layout that learners know; labels are as the target has them."""
    if x.dtype.kind not in "fiub":
        raise DataError(f"inputs are numbers; the {whose} hold {_kind(x)}; encode them, or use Federation.from_frame")
    if not len(y):
        return
    if x.ndim < 2:
        raise DataError(f"inputs have the shape (rows, features) or (rows, height, width, channels); got {x.shape}")
    if x.ndim == 4 and x.shape[1] in CHANNELS and x.shape[3] not in CHANNELS:
        raise DataError(
            f"pictures are (rows, height, width, channels); the {whose} are {x.shape}, channels first: "
            "use x.transpose(0, 2, 3, 1)"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
        raise DataError(
            f"inputs are finite; row {row} of the {whose} holds NaN or infinity; drop it, fill it in, or use "
            "Federation.from_frame, which does"
        )
    check_labels(y, classes, whose, target)


def check_labels(y: NDArray[Any], classes: int, whose: str, target: TargetKind = "classes") -> None:
    """Whole numbers from 0 to classes - 1; or finite numbers; or a 0 or 1 for each label."""
    if target not in get_args(TargetKind):
        raise DataError(f"the target is one of {', '.join(get_args(TargetKind))}; got {target!r}")
    if target == "number":
        if y.ndim != 1 or y.dtype.kind not in "iuf":
            raise DataError(
                f"a target that is a number has one per row, (N,); the {whose} hold {_kind(y)} of {y.shape}"
            )
        if not np.isfinite(y).all():
            row = int(np.flatnonzero(~np.isfinite(y))[0])
            raise DataError(f"numbers to predict are finite; row {row} of the {whose} holds {y[row]}; drop the row")
        return
    if target == "labels":
        rule, way_out = f"several labels are 0 or 1 each, (N, {classes})", ""
        if y.shape[1:] != (classes,) or y.dtype.kind not in "iu":
            raise DataError(f"{rule}; the {whose} hold {_kind(y)} of {y.shape}")
    else:
        rule = f"labels are whole numbers 0..{classes - 1} for {classes} classes"
        way_out = "; count the classes from 0, or set `classes`"
        if y.ndim != 1:
            raise DataError(
                f"classes are labels (N,); the {whose} have {y.shape}: use y.ravel(), or for several target='labels'"
            )
        if y.dtype.kind not in "iu":
            numbers = "; to predict numbers set target='number'" if y.dtype.kind == "f" else ""
            raise DataError(
                f"{rule}; the {whose} hold {_kind(y)}; number them: np.unique(y, return_inverse=True)[1]{numbers}"
            )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > (1 if target == "labels" else classes - 1):
        raise DataError(f"{rule}; the {whose} hold {low}..{high}{way_out}")


def _check_alike(parties: Mapping[str, NDArray[Any]]) -> None:
    """Rows of one shape and scale for everybody: bytes stand for 0..1, other numbers for themselves."""
    filled = {which: x for which, x in parties.items() if len(x)}
    for which, x in filled.items():
        train = filled["training"]
        if x.shape[1:] != train.shape[1:]:
            raise DataError(f"rows have one shape: training rows {train.shape[1:]}, {which} rows {x.shape[1:]}")
        if (x.dtype == np.uint8) != (train.dtype == np.uint8):
            raise DataError(f"rows are all bytes (0..255) or none: training rows {train.dtype}, {which} rows {x.dtype}")


def _kind(values: NDArray[Any]) -> str:
    if values.dtype.kind in "UOS" and values.size:
        return f"{type(values.flat[0]).__name__} such as {values.flat[0]!r:.40}"
    return str(values.dtype)
