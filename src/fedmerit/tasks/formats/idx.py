"""The idx format of MNIST: a header with type and dimensions, then the bytes; plain or gzipped."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import read_file, unpacked
from fedmerit.errors import DataError

GZIP = b"\x1f\x8b"
UNSIGNED_BYTE = 8
WAY_OUT = "fetch the file again"


def read_images(path: Path, height: int, width: int) -> NDArray[np.uint8]:
    """Grey images of one size, as (N, height, width, 1)."""
    images = _read(path, rank=3)
    if images.shape[1:] != (height, width):
        got = " x ".join(map(str, images.shape[1:]))
        raise DataError(f"{path} must hold images of {height} x {width}; got {got}")
    return images[..., np.newaxis]


def read_labels(path: Path, classes: int) -> NDArray[np.int64]:
    """Labels from 0 to classes - 1."""
    labels = _read(path, rank=1).astype(np.int64)
    if labels.max() >= classes:
        raise DataError(f"{path} must hold labels from 0 to {classes - 1}; got {labels.max()}")
    return labels


def read_pair(images: Path, labels: Path, size: int, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Square images and their labels, as many of the one as of the other."""
    x, y = read_images(images, size, size), read_labels(labels, classes)
    if len(x) != len(y):
        raise DataError(f"each image needs one label: {images} holds {len(x)} images, {labels} {len(y)} labels")
    return x, y


def _read(path: Path, rank: int) -> NDArray[np.uint8]:
    data = _bytes(path)
    start = 4 + 4 * rank
    shape = _shape(path, data[:start], rank)
    expected, got = math.prod(shape), len(data) - start
    if got != expected:
        raise DataError(f"{path} must hold {expected} bytes after its header, as that says; got {got}; {WAY_OUT}")
    if expected == 0:
        raise DataError(f"{path} must hold at least one item; its header says {shape}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _bytes(path: Path) -> bytes:
    try:
        data = read_file(path)
        return unpacked(data, path) if data.startswith(GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read or is cut off ({error}); {WAY_OUT}") from None


def _shape(path: Path, header: bytes, rank: int) -> tuple[int, ...]:
    if not header:
        raise DataError(f"{path} is empty; {WAY_OUT}")
    magic = bytes([0, 0, UNSIGNED_BYTE, rank])
    if header[:4] != magic:
        raise DataError(f"{path} must start with the idx magic {magic.hex()}; got {header[:4].hex()}; {WAY_OUT}")
    if len(header) != 4 + 4 * rank:
        raise DataError(f"{path} ends within its header of {4 + 4 * rank} bytes; {WAY_OUT}")
    return struct.unpack(f">{rank}I", header[4:])
