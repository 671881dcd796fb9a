"""What is told of the machine: cores, the processor's name, its widest instructions."""

import os
from pathlib import Path

import pytest

from fedmerit.core.system import cores, instruction_set, processor, quarter_of_ram


def cpuinfo(folder: Path, text: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(text)
    return path


def test_the_processor_is_named_as_the_system_names_it(tmp_path: Path):
    told = cpuinfo(tmp_path, "processor : 0\nmodel name\t: Some CPU: fast\nmodel name\t: another\n")
    assert processor(told) == "Some CPU: fast"
    assert processor(tmp_path / "none")  # without the file the kind of machine


@pytest.mark.parametrize(
    ("line", "widest"),
    [
        ("flags\t\t: sse4_2 avx avx2", "AVX2"),
        ("flags\t\t: sse4_2 avx avx512f avx2", "AVX-512"),
        ("Features\t: fp asimd sve", "SVE"),
        ("flags\t\t: fpu avx2x", "unknown"),
    ],
)
def test_the_widest_instructions_count(tmp_path: Path, line: str, widest: str):
    assert instruction_set(cpuinfo(tmp_path, f"processor : 0\n{line}\n")) == widest


def test_without_the_file_the_instructions_are_unknown(tmp_path: Path):
    assert instruction_set(tmp_path / "none") == "unknown"


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {process, 3, 5, 7}, raising=False)
    assert cores() == 4
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_a_quarter_of_the_memory_is_for_updates(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert quarter_of_ram() == 1_024_000
