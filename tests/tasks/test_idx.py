"""idx files, good and bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from task_files import idx_bytes, write_idx

from fedmerit.errors import DataError
from fedmerit.tasks.formats.idx import read_images, read_labels, read_pair

IMAGES = np.arange(3 * 4 * 4).reshape(3, 4, 4).astype(np.uint8)
GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize("name", ["images.gz", "images"])
def test_gzipped_and_plain_files_read_alike(tmp_path: Path, name: str) -> None:
    images = read_images(write_idx(tmp_path / name, IMAGES), 4, 4)
    assert images.shape == (3, 4, 4, 1)
    assert np.array_equal(images[..., 0], IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(GOOD, mtime=0)[:-20], "cut off"),
        (gzip.compress(GOOD, mtime=0)[:5], "cut off"),
        (b"\x1f\x8b" + b"nonsense" * 4, "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:-8] + b"\0" * 8, "CRC|cannot be read"),
        (b"PK" + GOOD[2:], "idx magic 00000803; got 504b0803"),
        (b"\0\0\x0d\x03" + GOOD[4:], "idx magic"),
        (idx_bytes(np.arange(5)), "idx magic 00000803; got 00000801"),
        (GOOD[:9], "within its header"),
        (GOOD[:3], "idx magic"),
        (GOOD[:-1], "must hold 48 bytes after its header, as that says; got 47"),
        (GOOD + b"x", "got 49"),
        (idx_bytes(np.empty((0, 4, 4))), "at least one"),
        (idx_bytes(np.zeros((3, 4, 5))), "must hold images of 4 x 4; got 4 x 5"),
        (GOOD[:4] + b"\xff" * 12 + GOOD[16:], "bytes after its header"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "some-images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_images(path, 4, 4)
    assert str(path) in str(caught.value)


def test_labels_out_of_range(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "labels.gz", np.array([0, 9, 10]))
    assert read_labels(path, 11).tolist() == [0, 9, 10]
    with pytest.raises(DataError, match="labels from 0 to 9; got 10"):
        read_labels(path, 10)


def test_counts_must_agree(tmp_path: Path) -> None:
    images, labels = write_idx(tmp_path / "images", IMAGES), write_idx(tmp_path / "labels", np.arange(4))
    with pytest.raises(DataError, match=r"holds 3 images, .* 4 labels"):
        read_pair(images, labels, 4, 10)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_images(tmp_path / "absent", 4, 4)
