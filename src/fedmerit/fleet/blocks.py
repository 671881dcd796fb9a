"""Blocks: arrays shared by several processes of one machine, without anything to clean up after a kill."""

import mmap
import os
import tempfile
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmerit.core.system import quarter_of_ram
from fedmerit.errors import RunFailed


class Block:
    """An array in anonymous memory, or with `folder` in a nameless file: it disappears with its last process.

    Only the file descriptor is sent to a worker; both sides see the same bytes.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, folder: Path | None = None) -> None:
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        descriptor = _nameless_file(folder)
        if folder is None:
            os.ftruncate(descriptor, size)
        else:
            _reserve(descriptor, size)
        self._open(descriptor, size, shape, np.dtype(dtype).str, folder is not None)

    def _open(self, descriptor: int, size: int, shape: tuple[int, ...], dtype: str, on_disk: bool) -> None:
        self.on_disk = on_disk
        self._descriptor, self._size, self._shape, self._dtype = descriptor, size, shape, dtype
        self._map = mmap.mmap(descriptor, size)
        self.array: NDArray[Any] = np.frombuffer(self._map, dtype=dtype, count=int(np.prod(shape))).reshape(shape)

    def release(self) -> None:
        """Release the block from this process's resident memory; its content stays."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    @classmethod
    def of_updates(cls, rows: int, length: int, memory: int | None = None, spill_to: Path | None = None) -> Self:
        """A block of float32 rows: in memory up to `memory` bytes (default: a quarter of the RAM), else in a file."""
        budget = quarter_of_ram() if memory is None else memory
        folder = None if rows * length * 4 <= budget else spill_to or Path(tempfile.gettempdir())
        return cls((rows, length), np.float32, folder)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Self:
        """Copy an array into a new block."""
        block = cls(array.shape, array.dtype)
        if array.any():  # a new block is already zero, and uses no memory until it is written to
            block.array[...] = array
        _let_go(array)
        return block

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (DupFd(self._descriptor), self._size, self._shape, self._dtype, self.on_disk)

    def __del__(self) -> None:
        if (descriptor := getattr(self, "_descriptor", None)) is not None:
            os.close(descriptor)  # the mapping stays as long as an array needs it


def _let_go(array: NDArray[Any]) -> None:
    """Release rows that are mapped from a file from this process's memory; a later access reads them again."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    if isinstance(owner, np.memmap) and owner.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        owner._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _attach(handle: Any, size: int, shape: tuple[int, ...], dtype: str, on_disk: bool) -> Block:
    block = Block.__new__(Block)
    block._open(handle.detach(), size, shape, dtype, on_disk)
    return block


def _reserve(descriptor: int, size: int) -> None:
    """Reserve the space now: a full disk is an error here, but a crash when writing through a mapping."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        raise RunFailed(
            f"cannot reserve {size / 2**30:.1f} GiB for updates on disk ({error.strerror}); free some space"
        ) from None


def _nameless_file(folder: Path | None) -> int:
    """Open anonymous memory on Linux, otherwise a temporary file that is unlinked at once."""
    if folder is None and hasattr(os, "memfd_create"):
        return os.memfd_create("fedmerit", os.MFD_CLOEXEC)
    descriptor, name = tempfile.mkstemp(prefix="fedmerit-", dir=folder)
    os.unlink(name)
    return descriptor
