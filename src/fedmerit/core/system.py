"""The machine: usable cores, memory, processor and its widest vector instructions."""

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
WIDEST = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2", "sve": "SVE", "asimd": "NEON"}
"""Processor flags, widest first, and their usual names: floating-point sums round differently at different widths."""


def cores() -> int:
    """Number of cores this process may use: the default number of workers and threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quarter_of_ram() -> int:
    """A quarter of the memory in bytes: the default buffer for updates."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def processor(cpuinfo: Path = CPUINFO) -> str:
    """Name of the processor, or the kind of machine where the system does not report it."""
    return _field(cpuinfo, "model name") or platform.processor() or platform.machine()


def instruction_set(cpuinfo: Path = CPUINFO) -> str:
    """Widest vector instructions that the system reports; `unknown` otherwise."""
    flags = (_field(cpuinfo, "flags") or _field(cpuinfo, "Features")).split()
    return next((name for flag, name in WIDEST.items() if flag in flags), "unknown")


def _field(cpuinfo: Path, name: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
