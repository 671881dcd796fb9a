"""idx files, good and bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from task_files import idx_bytes, write_idx

from fedmerit.errors import DataError
from fedmerit.tasks.datasets.mnist import read_idx

IMAGES = np.arange(3 * 4 * 4).reshape(3, 4, 4).astype(np.uint8)
GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize("name", ["images.gz", "images"])
def test_gzipped_and_plain_files_read_alike(tmp_path: Path, name: str) -> None:
    assert np.array_equal(read_idx(write_idx(tmp_path / name, IMAGES), 4, 4), IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "idx magic"),
        (gzip.compress(b"", mtime=0), "idx magic"),
        (gzip.compress(GOOD, mtime=0)[:-20], "truncated"),
        (gzip.compress(GOOD, mtime=0)[:5], "truncated"),
        (b"\x1f\x8b" + b"nonsense" * 4, "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:-8] + b"\0" * 8, "CRC|cannot be read"),
        (b"PK" + GOOD[2:], "idx magic 00000803 .got 504b0803"),
        (b"\0\0\x0d\x03" + GOOD[4:], "idx magic"),
        (idx_bytes(np.arange(5)), "idx magic 00000803 .got 00000801"),
        (GOOD[:9], "within its header"),
        (GOOD[:3], "idx magic"),
        (GOOD[:-1], "must have 48 bytes after its header .got 47"),
        (GOOD + b"x", "got 49"),
        (idx_bytes(np.zeros((3, 4, 5))), r"items of shape \(4, 4\) \(got \(4, 5\)"),
        (GOOD[:4] + b"\xff" * 4 + GOOD[8:], "bytes after its header"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "some-images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 4, 4)
    assert str(path) in str(caught.value)
