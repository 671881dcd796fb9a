"""Pictures to arrays: decode, crop and stack, each mistake with the picture it is about."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.showing import printable
from fedmerit.errors import DataError
from fedmerit.tasks.source import need

if TYPE_CHECKING:
    from PIL.Image import Image


def decode(data: bytes, source: str) -> Image:
    """The picture that the bytes of a JPEG or PNG file hold."""
    pillow = need("PIL.Image")
    try:
        picture: Image = pillow.open(io.BytesIO(data))
        picture.load()
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        LookupError,
        ArithmeticError,
        MemoryError,
        struct.error,
    ) as error:
        raise DataError(f"{source} is not a readable picture ({printable(str(error), 200)}); fetch it again") from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise DataError(f"{source} is larger than any picture should be ({error})") from None
    return picture


def face(picture: Image, size: int) -> NDArray[np.uint8]:
    """The centre square of a colour picture, averaged down to size x size."""
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    square = picture.convert("RGB").crop((left, top, left + side, top + side))
    # Area averaging: CelebA's 178 pixels shrink to 64, where interpolation would skip pixels.
    return np.asarray(square.resize((size, size), need("PIL.Image").Resampling.BOX))


def grey(picture: Image) -> NDArray[np.uint8]:
    """A grey picture as (height, width, 1)."""
    return np.asarray(picture.convert("L"))[..., np.newaxis]


def stack(arrays: Iterable[NDArray[Any]], count: int, shape: tuple[int, int, int], source: str) -> NDArray[np.uint8]:
    """The arrays as one (count, *shape): filled row by row, so that only one copy is ever held."""
    stacked = np.empty((count, *shape), dtype=np.uint8)
    for row, array in enumerate(arrays):
        if array.shape != shape:
            raise DataError(f"{source}, image {row}: must be of shape {shape}; got {array.shape}")
        stacked[row] = array
    return stacked
