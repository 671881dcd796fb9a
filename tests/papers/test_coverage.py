"""The coverage table of docs/papers.md: every numbered item has a row, and every row an answer that stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/papers.md").read_text()
PAPERS = {"PMCFL": (10, 7, 3), "DAFL": (4, 1, 1), "M2F": (12, 3, 3), "FedVal": (2, 0, 0)}
"""Equations, tables and figures that each paper numbers."""


def rows(paper: str) -> list[list[str]]:
    part = PAGE.partition(f"### {paper}, item by item")[2].partition("\n##")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]


def numbers(word: str, text: str) -> set[int]:
    """The numbers that follow a word: `Tables 2, 4, 6`, `eq. 7, eq. 8`, `Figures 2a, 2b, 3`."""
    found = re.findall(rf"{word} ((?:\d+[ab]?(?:, | and )?)+)", text)
    return {int(number) for group in found for number in re.findall(r"\d+", group)}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_numbered_item_has_a_row(paper: str):
    places = "\n".join(row[0] for row in rows(paper))
    equations, tables, figures = PAPERS[paper]
    assert numbers(r"eq\.", places) >= set(range(1, equations + 1))
    assert numbers("Tables?", places) >= set(range(1, tables + 1))
    assert numbers(r"(?:Fig\.|Figures?)", places) >= set(range(1, figures + 1))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_has_an_answer(paper: str):
    for row in rows(paper):
        assert len(row) == 4, row
        assert row[3].startswith(("faithful", "differs: ", "not done: ")), row


@pytest.mark.parametrize("paper", PAPERS)
def test_every_file_is_there(paper: str):
    for row in rows(paper):
        for path in re.findall(r"`([\w/]+\.py)`", row[2]):
            assert (ROOT / "src/fedmerit" / path).is_file(), path
        for path in re.findall(r"`(tests/[\w/]+\.py)`", row[3]):
            assert (ROOT / path).is_file(), path


def test_dafls_algorithm_is_covered_line_by_line():
    spans = [re.search(r"lines (\d+)-(\d+)", row[0]) for row in rows("DAFL")]
    lines = [number for span in spans if span for number in range(int(span[1]), int(span[2]) + 1)]
    assert lines == list(range(1, 30))
