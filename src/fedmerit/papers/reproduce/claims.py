"""Claims of a paper one by one: a number per seed that is above 0 where the claim holds, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmerit.core.types import Vector
from fedmerit.papers.reproduce.cells import difference_cell
from fedmerit.study.statistics import paired
from fedmerit.study.text_table import TextTable
from fedmerit.study.verdicts import FEWEST, NOISE, TOO_FEW

SEEN, NOT_SEEN = "seen", "not seen"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed, in which row of the study it is looked for, and by how much it holds, a value per seed."""

    text: str
    row: str
    holds_by: Vector
    digits: int = 2

    @property
    def verdict(self) -> str:
        """By the interval over seeds: above 0, below, or around it."""
        test = paired(self.holds_by)
        if test.seeds < FEWEST:
            return TOO_FEW
        if test.low > 0:
            return SEEN
        return NOISE if test.low <= 0 < test.high else NOT_SEEN


def claims_table(claims: Sequence[Claim]) -> TextTable:
    """A line per claim and row."""
    rows = tuple((one.text, one.row, difference_cell(one.holds_by, one.digits), one.verdict) for one in claims)
    below = (
        "holds by: above 0 where the claim holds; seen: its interval lies above 0; not seen: it does not reach above",
    )
    return TextTable("The paper's claims", ("claim", "row", "holds by", "verdict"), rows, below)
