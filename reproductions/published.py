"""Published numbers: the tables of PMCFL, DAFL and M2F as printed, mistakes included, and sizes of their data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from pydantic import TypeAdapter

Cells = tuple[int | None, ...]
"""One cell per share of devices; None where a dash is printed."""

CAP = 100
"""Rounds of a CelebA run; [PMCFL, Table 6] prints them where a run did not reach its target."""

DAFL_DEVICES = (20, 30, 40, 50, 70, 75)
"""Columns of [DAFL, Table 1]: per cent of the devices; two each are a group (Low, Mid, High) with a printed mean."""

MNIST_LABELS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
"""Training images of MNIST by digit."""

CELEBA_TESTS = {2: 284, 3: 464, 4: 1283, 5: 598, 6: 1536, 7: 3}
"""Test images of a client: number of such clients, in the split of the public code of [PMCFL]."""

CELEBA_TEXT_TESTS = {1: 1326, 2: 3594, 3: 2897, 4: 529, 5: 7}
"""The same of the split that the text of [PMCFL] describes, on the public list of identities, mean of 100 draws."""

CELEBA_TEXT_TOTAL = (19_357, 31)
"""Test images of that split, mean and deviation of these draws (`data.share_of_images`, 0.5, seeds 1 to 100)."""

CELEBA_ROUND = 417
"""A tenth of these clients take part in a round."""


@dataclass(frozen=True, slots=True)
class RoundsTable:
    """A table of rounds [PMCFL, sec. 6]: of DS until 10 %, 20 % ... of the devices are above a target; others as gains.

    A gain is the rounds of DS minus those of the row. Each has one tuple of cells per target.
    """

    targets: tuple[int, ...]
    baseline: tuple[Cells, ...]
    gains: Mapping[str, tuple[Cells, ...]]
    averages: Mapping[str, tuple[float, ...]]

    def rounds(self, row: str, place: int) -> Cells:
        """Rounds of a row at the target in this place; None where neither the row nor DS gives a number."""
        if row == "DS":
            return self.baseline[place]
        pairs = zip(self.baseline[place], self.gains[row][place], strict=True)
        return tuple(None if gain is None else (CAP if base is None else base) - gain for base, gain in pairs)


class Errors(NamedTuple):
    """A matrix of Tables 3, 5 and 7 [PMCFL, sec. 6]: test images by whether DS and the row's run are right."""

    both_wrong: int
    ds_wrong: int
    row_wrong: int
    both_right: int

    @property
    def accuracy(self) -> float:
        """Share of the images that the row's run has right."""
        return (self.ds_wrong + self.both_right) / sum(self)

    @property
    def ds_accuracy(self) -> float:
        """Share of the images that DS has right."""
        return (self.row_wrong + self.both_right) / sum(self)

    @property
    def both_wrong_if_unrelated(self) -> float:
        """Images that two unrelated models of these accuracies would both have wrong."""
        return (self.both_wrong + self.ds_wrong) * (self.both_wrong + self.row_wrong) / sum(self)


class DaflRow(NamedTuple):
    """A row of [DAFL, Table 1]: rounds for each of DAFL_DEVICES, and the printed means of Low, Mid and High."""

    cells: tuple[float | None, ...]
    means: tuple[float | None, ...]


class M2fClient(NamedTuple):
    """A row of [M2F, Tables 2 and 3]; accuracy in per cent."""

    number: int
    epochs: int
    samples: int
    rate: float
    accuracy: float
    convergent: int
    reached: int


@dataclass(frozen=True, slots=True)
class Published:
    """All tables: by their number, DAFL's by target, then study (Ind, MCA, Final), then row."""

    pmcfl_rounds: Mapping[int, RoundsTable]
    pmcfl_errors: Mapping[int, Mapping[str, Errors]]
    dafl_rounds: Mapping[int, Mapping[str, Mapping[str, DaflRow]]]
    m2f_clients: Mapping[int, tuple[M2fClient, ...]]


@cache
def published() -> Published:
    """The tables in `published.json`."""
    text = files("reproductions").joinpath("published.json").read_text(encoding="utf-8")
    return TypeAdapter(Published).validate_json(text)
