"""PMCFL's tables from a study: rounds and gains (Tables 2, 4, 6), errors on the same images (Tables 3, 5, 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedmerit.papers.published import Errors, RoundsTable, published
from fedmerit.papers.reproduce.cells import CENSORED, LEGEND, gain_cell, mean_cell, printed, rounds_cell, times
from fedmerit.papers.reproduce.entry import Setting, Studies, Told
from fedmerit.papers.reproduce.marks import Marks
from fedmerit.study.study import Study
from fedmerit.study.tables import saved_table
from fedmerit.study.text_table import TextTable

DS = "DS"
EXCHANGED = ("IS", "CB")
SHARES = tuple(place / 10 for place in range(1, 10))
LATER = {(5, "CB>DS>IS"), (4, "CB>IS>DS")}
"""Table 6 at 70 %: the cell, counted from 1, of which the one to its right needs fewer rounds."""


@dataclass(frozen=True, slots=True)
class Tables:
    """How a study of PMCFL is told: by the number of its table of rounds; the next one is that of errors."""

    number: int

    def __call__(self, setting: Setting, studies: Studies) -> Told:
        """All targets, what the gains amount to, and the errors."""
        (study,) = studies.values()
        rounds = [self._rounds(study, setting, place) for place in range(len(setting.targets))]
        others = [saved_table(study), self._errors(study)] if len(study.rows) > 1 else []
        return Told((*rounds, *others), notes=(LEGEND, CENSORED))

    def _rounds(self, study: Study, setting: Setting, place: int) -> TextTable:
        """One target: DS in rounds, the other rows in rounds gained, published above measured."""
        table, target = published().pmcfl_rounds[self.number], setting.targets[place]
        shares = SHARES[: len(table.baseline[place])]
        marks = self._marks(place)
        lines = [
            line
            for row in study.rows
            for line in (
                (_name(row, marks, self.number == 6), *_printed(table, self.number, row, place, marks)),
                ("measured", *_measured(study, row, target, shares)),
            )
        ]
        header = ("rounds" if study.rows == [DS] else "DS: rounds; others: gain", *(f"{share:.0%}" for share in shares))
        title = f"Table {self.number}: rounds until a share of the devices is above {table.targets[place]} %"
        other = "" if round(100 * target) == table.targets[place] else f" (measured: above {100 * target:g} %)"
        below = () if study.rows == [DS] else marks.below  # all errata are about gains
        return TextTable(title + other, (*header, "mean"), tuple(lines), below)

    def _marks(self, place: int) -> Marks:
        if self.number != 6:
            return Marks(("finding-4",))
        falling = ("pmcfl-falling-rounds",) if place == 0 else ()
        return Marks(("finding-4", "pmcfl-averages", "finding-2", *falling))

    def _errors(self, study: Study) -> TextTable:
        """Test images that both models got right, one alone or neither; measured: per seed, on the same images."""
        number = self.number + 1
        celeba = self.number == 6
        marks = Marks(("finding-3", "finding-2") if celeba else ("finding-3",))
        header = (
            "test images",
            "both wrong",
            "only DS wrong",
            "only row wrong",
            "both right",
            "if unrelated",
            "DS",
            "row",
        )
        lines = [
            line
            for row, matrix in published().pmcfl_errors[number].items()
            if row in study.rows
            for line in (_errors(_name(row, marks, celeba), matrix, marks), ("measured", *_agreement(study, row)))
        ]
        below = (
            "if unrelated: images that both would get wrong if their errors had nothing to do with each other; "
            "DS, row: accuracy",
            *marks.below,
        )
        return TextTable(f"Table {number}: errors against those of DS", header, tuple(lines), below)


def _name(row: str, marks: Marks, doubtful: bool) -> str:
    text = f"{row}, published"
    return marks("finding-2", text) if doubtful and row.split(">")[0] in EXCHANGED else text


def _printed(table: RoundsTable, number: int, row: str, place: int, marks: Marks) -> Iterator[str]:
    if row == DS:
        cells = table.baseline[place]
        yield from (printed(cell) for cell in cells)
        known = [cell for cell in cells if cell is not None]
        yield f"({sum(known) / len(known):.1f})" if len(known) == len(cells) else printed(None)
        return
    for column, gain in enumerate(table.gains[row][place], start=1):
        text = printed(gain, "+d")
        falls = number == 6 and place == 0 and (column, row) in LATER
        yield marks("pmcfl-falling-rounds", text) if falls else text
    average = marks("finding-4", f"{table.averages[row][place]:+.2f}")
    yield marks("pmcfl-averages", average) if number == 6 else average


def _measured(study: Study, row: str, target: float, shares: Sequence[float]) -> Iterator[str]:
    columns = [*((share,) for share in shares), tuple(shares)]
    for column in columns:
        base, mine = (times(study, name, target, column) for name in (DS, row))
        yield rounds_cell(base) if row == DS else gain_cell(base, mine)


def _errors(name: str, matrix: Errors, marks: Marks) -> tuple[str, ...]:
    counts = (matrix.both_wrong, matrix.ds_wrong, matrix.row_wrong, matrix.both_right)
    cells = [f"{count:,}" for count in counts]
    return (
        name,
        marks("finding-3", cells[0]),
        *cells[1:],
        f"{matrix.both_wrong_if_unrelated:.1f}",
        f"{matrix.ds_accuracy:.4f}",
        f"{matrix.accuracy:.4f}",
    )


def _agreement(study: Study, row: str) -> Iterator[str]:
    """Means over the finished seeds."""
    figures = study.figures
    mine = figures[(figures["row"] == row) & figures["finished"]]
    for name in ("neither", "only_row", "only_baseline", "both", "neither_if_independent"):
        yield mean_cell(mine[name].to_numpy(dtype=float))
    total = mine[["neither", "only_row", "only_baseline", "both"]].sum(axis=1)
    for name in ("only_baseline", "only_row"):
        yield mean_cell(((mine["both"] + mine[name]) / total).to_numpy(dtype=float), 4)
