"""The tables of reproductions/coverage.md: every numbered item has a row, and every row an answer that stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "reproductions/coverage.md").read_text()
PAPERS = {"PMCFL": (10, 7, 3), "DAFL": (4, 1, 1), "M2F": (12, 3, 3), "FedVal": (2, 0, 0)}
"""Equations, tables and figures that each paper numbers."""


TABLE = (ROOT / "docs/papers.md").read_text().partition("## Coverage")[2].partition("\n## ")[0]
"""The coverage table of docs/papers.md."""


def rows(paper: str) -> list[list[str]]:
    part = PAGE.partition(f"## {paper}, item by item")[2].partition("\n##")[0]
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
            top = ROOT if path.startswith("reproductions/") else ROOT / "src/fedmerit"
            assert (top / path).is_file(), path
        for path in re.findall(r"`(tests/[\w/]+\.py)`", row[3]):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize(("paper", "ends"), [("DAFL", (29,)), ("M2F", (11, 28))])
def test_algorithms_are_covered_line_by_line(paper: str, ends: tuple[int, ...]):
    spans = [re.search(r"lines (\d+)-(\d+)", row[0]) for row in rows(paper)]
    lines = [number for span in spans if span for number in range(int(span[1]), int(span[2]) + 1)]
    assert lines == [number for end in ends for number in range(1, end + 1)]


def test_the_nine_steps_of_m2f_and_the_three_studies_of_dafl_have_rows():
    assert "nine steps" in "\n".join(row[0] for row in rows("M2F"))
    told = "\n".join(row[1] for row in rows("DAFL"))
    assert "studies A and B" in told
    assert "study C" in told


@pytest.mark.parametrize(
    ("paper", "places"),
    [
        ("PMCFL", ("sec. 4.1", "sec. 4.2", "sec. 4.3", "sec. 5.1", "sec. 5.2", "sec. 5.3", "sec. 6", "sec. 7")),
        ("DAFL", ("sec. 2.2", "sec. 3, settings", "sec. 3, measures", "footnotes 2, 4", "sec. 4", "sec. 5")),
        ("M2F", ("sec. 3.2", "sec. 5.1", "sec. 5.2", "sec. 6")),
        ("FedVal", ("sec. 1", "sec. 2", "Alg. 1", "Results")),
    ],
)
def test_every_section_with_something_to_do_has_a_row(paper: str, places: tuple[str, ...]):
    told = [row[0] for row in rows(paper)]
    assert [place for place in places if not any(one.startswith(place) for one in told)] == []


def compact_rows() -> list[list[str]]:
    header, _, *lines = [line for line in TABLE.splitlines() if line.startswith("| ")]
    assert header == "| item | implemented | `tested` | `reproduced` | verdict |"
    return [line.strip("| ").split(" | ") for line in lines]


def test_the_compact_table_names_files_and_tests_that_exist():
    for _, implemented, tested, reproduced, verdict in compact_rows():
        path = implemented.strip("`")
        assert (ROOT / path if path.startswith("reproductions/") else ROOT / "src/fedmerit" / path).is_file(), path
        file, _, name = tested.strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), flags=re.M), tested
        assert reproduced
        assert verdict


def test_the_compact_table_has_every_equation_table_and_algorithm_of_each_paper():
    """Figures of the field or the framework (PMCFL 1, DAFL 1, M2F 1) and tables of notation have nothing to run."""
    items = " ".join(row[0] for row in compact_rows())
    parts = re.split(r"PMCFL |DAFL |M2F |FedVal ", items)[1:]
    for part, (paper, (equations, tables, figures)) in zip(parts, PAPERS.items(), strict=True):
        spelt = re.sub(r"(\d+)–(\d+)", lambda m: ", ".join(map(str, range(int(m[1]), int(m[2]) + 1))), part)
        first = 1 if paper == "DAFL" else 2
        assert numbers(r"eq\.", spelt) >= set(range(1, equations + 1)), paper
        assert numbers("Tables?", spelt) >= set(range(first, tables + 1)), paper
        assert numbers(r"(?:Fig\.|Figures?)", spelt) >= set(range(2, figures + 1)), paper
