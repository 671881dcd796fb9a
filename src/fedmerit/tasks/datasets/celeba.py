"""Task `celeba`: faces of 64 x 64 RGB, does the person smile?; each client is one person."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.showing import printable
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, TaskSpec
from fedmerit.tasks.source import find_file, need, read_npz

FILE = "celeba_faces64.npz"
LABEL = "Smiling"
SIZE = 64
FEWEST = 5
"""People with fewer images are dropped, as in [PMCFL] and in LEAF."""
Choice: TypeAlias = Callable[[NDArray[Any]], NDArray[np.int64]]
"""Maps the person of each image to the rows to use."""
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, LookupError, ArithmeticError, MemoryError, struct.error)
"""Exceptions of Pillow for a damaged image."""


def people_with(people: NDArray[Any], fewest: int = FEWEST) -> NDArray[np.int64]:
    """Rows of people with at least `fewest` images."""
    _, person, counts = np.unique(people, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[person] >= fewest) if len(people) else np.empty(0, np.int64)
    if len(rows) == 0:
        raise DataError(f"celeba needs people with at least {fewest} images (got {len(people)} images, no such person)")
    return rows


def read_faces(choose: Choice = people_with) -> Raw:
    """Read the faces of `celeba_faces64.npz`, in file order; `choose` selects images."""
    path = find_file("celeba", FILE)
    columns = read_npz(path, ("jpeg", "offset", "identity", "attributes", "attribute_names"))
    _check(path, columns)
    rows = choose(columns["identity"])
    data, offset = columns["jpeg"].tobytes(), columns["offset"].astype(np.int64)
    x = np.empty((len(rows), SIZE, SIZE, 3), dtype=np.uint8)
    for place, row in enumerate(rows):
        x[place] = decode(data[offset[row] : offset[row + 1]], f"{path}, image {row}")
    names = [str(name) for name in columns["attribute_names"]]
    attributes = {name: columns["attributes"][rows, i].astype(np.uint8) for i, name in enumerate(names)}
    people = Ids("person", columns["identity"][rows].astype(np.int64))
    return Raw(x, attributes[LABEL].astype(np.int64), 2, attributes, people)


def decode(data: bytes, source: str) -> NDArray[np.uint8]:
    """Decode a JPEG or PNG file, crop its centre square and average it down to 64 x 64."""
    pillow = need("PIL.Image")
    try:
        picture = pillow.open(io.BytesIO(data))
        picture.load()
    except UNREADABLE as error:
        raise DataError(f"{source} is not a readable image ({printable(str(error), 200)}); download it again") from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise DataError(f"{source} is too large for an image ({error}); download it again") from None
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    square = picture.convert("RGB").crop((left, top, left + side, top + side))
    # Area averaging: from CelebA's 178 pixels to 64, where interpolation would skip pixels.
    return np.asarray(square.resize((SIZE, SIZE), pillow.Resampling.BOX))


def _check(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """Check that the arrays of the file fit each other."""
    people, names = len(columns["identity"]), columns["attribute_names"].tolist()
    if LABEL not in names:
        raise DataError(f"{path} must contain the attribute {LABEL}, the label (got {', '.join(names)})")
    if columns["attributes"].shape != (people, len(names)):
        got = columns["attributes"].shape
        raise DataError(f"{path}: attributes must be ({people}, {len(names)}), images x names; got {got}")
    values = np.unique(columns["attributes"])
    if not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: attributes must be 0 or 1; got {values[:5].tolist()}")
    offset, size = columns["offset"].astype(np.int64), len(columns["jpeg"])
    if len(offset) != people + 1 or offset[0] != 0 or (np.diff(offset) <= 0).any() or offset[-1] != size:
        raise DataError(
            f"{path}: offset must rise from 0 to the {size} bytes of jpeg in {people + 1} values; "
            f"got {len(offset)} values up to {offset[-1:]}"
        )


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, CELEBA)
    return build_federation(read_faces(), None, config, CELEBA, seed)


CELEBA = TaskSpec(
    name="celeba",
    about="faces of 64 x 64 pixels with 40 attributes, does the person smile; one client per person",
    load=_load,
    models=("celeba-cnn", "celeba-mlp"),
    partitions=("natural", *MADE),
)
