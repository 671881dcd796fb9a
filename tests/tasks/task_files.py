"""Small data files for the tests of the tasks, and the way to the real ones."""

import gzip
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ATTRIBUTES = ("Blurry", "Smiling", "Young")


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(path: Path, array: np.ndarray) -> Path:
    data = idx_bytes(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_mnist(folder: Path, train: int = 200, test: int = 60, suffix: str = ".gz") -> None:
    """The four files, with images whose first pixel is the row's number."""
    for part, count in (("train", train), ("t10k", test)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 0, 0] = np.arange(count) % 256
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(count) % 10)


def write_writers(folder: Path, train: int = 200, test: int = 60) -> None:
    np.savez(
        folder / "mnist_writers.npz",
        train_writer=(np.arange(train) % 8 * 100).astype(np.int16),
        train_hsf=np.where(np.arange(train) % 8 < 3, 4, 0).astype(np.uint8),
        test_writer=(5000 + np.arange(test) % 3).astype(np.int16),
        test_hsf=np.full(test, 4, np.uint8),
    )


def picture(width: int, height: int, colour: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def face_arrays(images_per_person: dict[int, int]) -> dict[str, np.ndarray]:
    """The arrays of `celeba_faces64.npz`; a person's images take turns in smiling, and row i is i grey."""
    people = np.repeat(list(images_per_person), list(images_per_person.values())).astype(np.uint16)
    files = []
    for row in range(len(people)):
        file = io.BytesIO()
        picture(64, 64, (row, row, row)).save(file, "JPEG", quality=95)
        files.append(file.getvalue())
    rows = np.arange(len(people))
    return {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offset": np.cumsum([0, *map(len, files)]).astype(np.uint32),
        "identity": people,
        "attributes": np.stack([rows % 7 == 0, rows % 2 == 0, rows >= 0], axis=1).astype(np.uint8),
        "attribute_names": np.array(ATTRIBUTES),
    }


def real_folder(task: str) -> Path:
    """The folder of the real data, or a skip that says what is missing."""
    root = os.environ.get("FEDMERIT_DATA")
    if not root:
        pytest.skip("FEDMERIT_DATA is not set: no real data to test on")
    folder = Path(root) / task
    if not folder.is_dir():
        pytest.skip(f"FEDMERIT_DATA has no folder {task}")
    return folder


def writer_arrays(images_per_writer: dict[str, int]) -> dict[str, np.ndarray]:
    """The arrays of `femnist_writers_full.npz`; row i is i grey, and each writer's last tenth is for testing.

    As in the real file, the first image of a writer is there twice; the copies come on top of the numbers given.
    """
    sizes = np.array(list(images_per_writer.values()))
    writer = np.repeat(np.arange(len(sizes)), sizes + 1)
    starts = np.cumsum([0, *(sizes[:-1] + 1)])
    duplicate = np.zeros(len(writer), bool)
    duplicate[starts] = True
    place = np.arange(len(writer)) - starts[writer]
    row = np.cumsum(~duplicate) - 1 + duplicate  # a copy has the number of the row after it, which it is a copy of
    return {
        "images": np.broadcast_to((row % 256).astype(np.uint8)[:, None, None], (len(row), 28, 28)).copy(),
        "labels": (row % 62).astype(np.uint8),
        "writer": writer.astype(np.uint16),
        "split": (place > np.floor(0.9 * sizes)[writer]).astype(np.uint8),
        "duplicate": duplicate,
        "writer_names": np.array(list(images_per_writer)),
    }


def save_writers(data: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = data / "femnist" / "femnist_writers_full.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return path
