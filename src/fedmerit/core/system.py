"""The machine: how many cores there are to use, how much memory, which processor, and its widest instructions."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
WIDEST = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2", "sve": "SVE", "asimd": "NEON"}
"""Flags of a processor, widest first, and what they are called: sums round otherwise with other widths."""


def cores() -> int:
    """The cores this process may run on: the default number of workers and of threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quarter_of_ram() -> int:
    """Bytes for updates where nobody said how many."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def processor(cpuinfo: Path = CPUINFO) -> str:
    """The processor's own name where the system tells it, else the kind of machine."""
    return _field(cpuinfo, "model name") or platform.processor() or platform.machine()


def instruction_set(cpuinfo: Path = CPUINFO) -> str:
    """The widest instructions of the processor, as far as the system tells."""
    flags = (_field(cpuinfo, "flags") or _field(cpuinfo, "Features")).split()
    return next((name for flag, name in WIDEST.items() if flag in flags), "unknown")


def _field(cpuinfo: Path, name: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
