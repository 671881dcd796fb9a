"""Blocks: what is copied into them from a mapped file does not stay in memory twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmerit.fleet.blocks import Block

ROWS = 500_000
SMAPS = Path("/proc/self/smaps")


def resident(path: Path) -> int:
    """Bytes of a mapped file in this process's memory."""
    total, here = 0, False
    for line in SMAPS.read_text().splitlines():
        if "-" in line.split()[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(not SMAPS.exists(), reason="Linux says in /proc what is in memory")
@pytest.mark.parametrize("as_view", [False, True])
def test_a_mapped_file_is_let_go_of_once_it_is_copied(tmp_path: Path, as_view: bool) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(ROWS))
    mapped = np.load(path, mmap_mode="r")
    rows = np.asarray(mapped[1:]) if as_view else mapped
    assert rows.sum() > 0
    assert resident(path) > 2**20
    block = Block.of(rows)
    assert resident(path) < 2**20
    np.testing.assert_array_equal(block.array, rows)


def test_changes_that_only_this_process_has_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(ROWS))
    private = np.load(path, mmap_mode="c")
    private[7] = -1
    assert Block.of(private).array[7] == -1
    assert private[7] == -1
