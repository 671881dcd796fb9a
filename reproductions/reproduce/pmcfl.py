"""PMCFL's Tables 2 to 7 [PMCFL, sec. 6]: MNIST spread evenly and by shards, CelebA by person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from fedmerit.study.study import Study
from fedmerit.study.tables import saved_table
from fedmerit.study.text_table import TextTable
from reproductions.published import Errors, RoundsTable, published
from reproductions.reproduce.agreement import best_agreement
from reproductions.reproduce.cells import CENSORED, LEGEND, gain_cell, mean_cell, printed, rounds_cell, times
from reproductions.reproduce.charts import Curve, draw_curves
from reproductions.reproduce.footnotes import Footnotes
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Result, Setting, Studies

PAPER = "PMCFL: Anelli, Deldjoo, Di Noia, Ferrara, Prioritized Multi-Criteria Federated Learning"
MNIST_TARGETS, FACES_TARGETS = (0.7, 0.8, 0.9, 0.95), (0.7, 0.8, 0.85)
RUN = {"fraction": 0.1}
DS = "DS"
EXCHANGED = ("IS", "CB")
"""Criteria whose names are in doubt in Tables 6 and 7 (finding-2)."""
SHARES = tuple(place / 10 for place in range(1, 10))
LATER = {(5, "CB>DS>IS"), (4, "CB>IS>DS")}
"""Table 6 at 70 %: columns, counted from 1, whose right neighbour needs fewer rounds, and their rows."""
FIGURES = {2: "2a", 4: "2b", 6: "3"}
"""The figure of a table's runs: the global accuracy after each round."""
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#17becf", "#9467bd", "#e08214", "#8c564b", "#e377c2", "#7f7f7f", "#000000")
"""A colour per row, in the order of the tables."""
RATES = (0.5, 0.215, 0.1, 0.05, 0.0215, 0.01)
"""The grid of the authors' scripts for the learning rate, and a decade lower [PMCFL, sec. 5.3]."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A study as PMCFL's table of rounds with this number, and the next one, which is of errors."""

    number: int

    def __call__(self, setting: Setting, studies: Studies) -> Result:
        """A table of rounds per target, the rounds saved, the errors, and the figure of the curves."""
        (study,) = studies.values()
        rounds = [self._rounds(study, setting, place) for place in range(len(setting.targets))]
        others = [saved_table(study), self._errors(study)] if len(study.rows) > 1 else []
        number = FIGURES[self.number]
        picture = draw_curves(f"Figure {number}: accuracy on all test rows", _curves(study), "round")
        return Result((*rounds, *others), {f"figure{number}": picture}, (LEGEND, CENSORED))

    def _rounds(self, study: Study, setting: Setting, place: int) -> TextTable:
        """One target: DS in rounds, the other rows in rounds gained, published above measured."""
        table, target = published().pmcfl_rounds[self.number], setting.targets[place]
        shares = SHARES[: len(table.baseline[place])]
        notes = self._footnotes(place)
        lines = [line for row in study.rows for line in self._lines(study, row, target, shares, place, notes)]
        header = ("rounds" if study.rows == [DS] else "DS: rounds; others: gain", *(f"{share:.0%}" for share in shares))
        above = "at or above" if study.plan.or_equal else "above"
        title = f"Table {self.number}: rounds until a share of the devices is {above} {table.targets[place]} %"
        other = "" if round(100 * target) == table.targets[place] else f" (measured: {above} {100 * target:g} %)"
        below = () if study.rows == [DS] else notes.below  # all errata are about gains
        return TextTable(title + other, (*header, "mean"), tuple(lines), below)

    def _lines(
        self, study: Study, row: str, target: float, shares: Sequence[float], place: int, notes: Footnotes
    ) -> Iterator[tuple[str, ...]]:
        """The published line, then the measured one; a null row has no published line."""
        table, measured = published().pmcfl_rounds[self.number], _measured(study, row, target, shares)
        if row == DS or row in table.gains:
            yield _name(row, notes, self.number == 6), *_printed(table, self.number, row, place, notes)
            yield "measured", *measured
        else:
            yield f"{row}, measured", *measured

    def _footnotes(self, place: int) -> Footnotes:
        if self.number != 6:
            return Footnotes(("finding-4",))
        falling = ("pmcfl-falling-rounds",) if place == 0 else ()
        return Footnotes(("finding-4", "pmcfl-averages", "finding-2", *falling))

    def _errors(self, study: Study) -> TextTable:
        """Test images that both best models got right, one alone or neither; measured on the same images, by seed."""
        number = self.number + 1
        celeba = self.number == 6
        notes = Footnotes(("finding-3", "finding-2") if celeba else ("finding-3",))
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
            for line in (_errors(_name(row, notes, celeba), matrix, notes), ("measured", *_agreement(study, row)))
        ]
        below = (
            "if unrelated: images that both would get wrong if their errors had nothing to do with each other; "
            "DS, row: accuracy. Measured is the model of each run's best round, as in the paper",
            *notes.below,
        )
        return TextTable(f"Table {number}: errors of the best models against those of DS", header, tuple(lines), below)


def _curves(study: Study) -> list[Curve]:
    """The global accuracy of each row, round by round, over its finished runs."""
    colours, curves = dict(zip(study.rows, COLOURS, strict=False)), study.curves
    lines = []
    for row in study.rows:
        finished = [run.seed for run in study.runs if run.row == row and str(run) not in study.unfinished]
        of_row = curves[(curves["row"] == row) & curves["seed"].isin(finished)]
        if len(of_row):
            by_seed = np.array([group["accuracy"].to_numpy(dtype=float) for _, group in of_row.groupby("seed")])
            lines.append(Curve(row, by_seed, colours[row], "none"))
    return lines


def _name(row: str, notes: Footnotes, doubtful: bool) -> str:
    text = f"{row}, published"
    return notes("finding-2", text) if doubtful and row.split(">")[0] in EXCHANGED else text


def _printed(table: RoundsTable, number: int, row: str, place: int, notes: Footnotes) -> Iterator[str]:
    if row == DS:
        cells = table.baseline[place]
        yield from (printed(cell) for cell in cells)
        known = [cell for cell in cells if cell is not None]
        yield f"({sum(known) / len(known):.1f})" if len(known) == len(cells) else printed(None)
        return
    for column, gain in enumerate(table.gains[row][place], start=1):
        text = printed(gain, "+d")
        falls = number == 6 and place == 0 and (column, row) in LATER
        yield notes("pmcfl-falling-rounds", text) if falls else text
    average = notes("finding-4", f"{table.averages[row][place]:+.2f}")
    yield notes("pmcfl-averages", average) if number == 6 else average


def _measured(study: Study, row: str, target: float, shares: Sequence[float]) -> Iterator[str]:
    columns = [*((share,) for share in shares), tuple(shares)]
    for column in columns:
        baseline, of_row = (times(study, name, target, column) for name in (DS, row))
        yield rounds_cell(baseline) if row == DS else gain_cell(baseline, of_row)


def _errors(name: str, matrix: Errors, notes: Footnotes) -> tuple[str, ...]:
    counts = (matrix.both_wrong, matrix.ds_wrong, matrix.row_wrong, matrix.both_right)
    cells = [f"{count:,}" for count in counts]
    return (
        name,
        notes("finding-3", cells[0]),
        *cells[1:],
        f"{matrix.both_wrong_if_unrelated:.1f}",
        f"{matrix.ds_accuracy:.4f}",
        f"{matrix.accuracy:.4f}",
    )


def _agreement(study: Study, row: str) -> Iterator[str]:
    """The measured line of a matrix: means over the finished seeds."""
    counted = best_agreement(study)
    finished = counted[counted["row"] == row]
    for name in ("neither", "only_row", "only_baseline", "both", "neither_if_independent"):
        yield mean_cell(finished[name].to_numpy(dtype=float))
    total = finished[["neither", "only_row", "only_baseline", "both"]].sum(axis=1, skipna=False)
    for name in ("only_baseline", "only_row"):
        yield mean_cell(((finished["both"] + finished[name]) / total).to_numpy(dtype=float), 4)


def _rows(*criteria: str) -> tuple[Mapping[str, Any], ...]:
    """Each criterion alone, then all orders, as the tables list them; normalised by the sum, as in the paper."""
    first, second, third = criteria
    swapped = [(second, first, third), (third, first, second), (second, third, first), (third, second, first)]
    orders = [(first,), (second,), (third,), (first, second, third), (first, third, second), *swapped]
    assert set(orders[3:]) == set(permutations(criteria))
    return tuple(
        {"name": ">".join(order), "recipe": {"name": "prioritized", "criteria": list(order), "normalise": "sum"}}
        for order in orders
    )


def _mnist(partition: str, lr: float, rounds: int) -> dict[str, Base]:
    """Convolutions without activation, as in the authors' code; the paper does not say."""
    task = {"data": "mnist", "partition": partition, "clients": 100, "model": "mnist-cnn-linear", "test": "slices"}
    train = {"lr": lr, "epochs": 5, "batch": "full"}
    return {WHOLE: {"task": task, "train": train, "run": RUN | {"rounds": rounds}}}


def _small_mnist(partition: str, lr: float, rounds: int) -> dict[str, Base]:
    base = _mnist(partition, lr, rounds)[WHOLE]
    small = {"task": base["task"] | {"model": "mnist-mlp"}, "train": base["train"] | {"epochs": 2, "batch": 60}}
    return {WHOLE: {**base, **small}}


def _faces(model: str, train: Mapping[str, Any], rounds: int, **task: Any) -> dict[str, Base]:
    faces = {"data": "celeba", "partition": "natural", "model": model, "test": "slices"}
    return {WHOLE: {"task": faces | task, "train": {"epochs": 5, **train}, "run": RUN | {"rounds": rounds}}}


MLP = "a network 784-64-10 in place of two convolutions, 2 epochs in batches of 60 in place of 5 whole-set steps"
LINEAR = "convolutions without activation, as in the authors' code: the paper names none"
ACTIVATED = "convolutions with ReLU: the paper names no activation, and the network of the authors' code is another one"
NO_RATE = "the learning rate: the paper states none (--tune-rate searches it as the paper did)"
FACES_HERE = "the 278 people of FEDMERIT_DATA in place of 4,168, so that 28 take part in a round instead of 417"

TABLE_2 = Reproduction(
    name="pmcfl-table2",
    paper=PAPER,
    about="MNIST spread evenly: nine rows, rounds to target (Table 2) and errors (Table 3)",
    rows=_rows("DS", "LD", "MW"),
    settings={
        "small": Setting(
            _small_mnist("iid", 0.3, 30),
            0.25,
            (MLP, "learning rate 0.3 in place of 0.215", "30 rounds in place of 1,000"),
            MNIST_TARGETS,
            RATES,
        ),
        "medium": Setting(_mnist("iid", 0.215, 40), 33, (LINEAR, "40 rounds"), MNIST_TARGETS, RATES),
        "paper": Setting(_mnist("iid", 0.215, 1000), 33, (LINEAR,), MNIST_TARGETS, RATES),
    },
    make_result=Tables(2),
)

TABLE_4 = Reproduction(
    name="pmcfl-table4",
    paper=PAPER,
    about="MNIST spread by shards: nine rows, rounds to target (Table 4) and errors (Table 5)",
    rows=_rows("DS", "LD", "MW"),
    settings={
        "small": Setting(
            _small_mnist("shards", 0.2, 40),
            0.25,
            (
                MLP,
                "learning rate 0.2 in place of 0.1",
                "40 rounds in place of 1,000",
                "lower targets, which this network reaches in that time",
            ),
            (0.7, 0.8, 0.85, 0.9),
            RATES,
        ),
        "medium": Setting(_mnist("shards", 0.1, 60), 33, (LINEAR, "60 rounds"), MNIST_TARGETS, RATES),
        "paper": Setting(_mnist("shards", 0.1, 1000), 33, (LINEAR,), MNIST_TARGETS, RATES),
    },
    make_result=Tables(4),
)

TABLE_6 = Reproduction(
    name="pmcfl-table6",
    paper=PAPER,
    about="CelebA, does the person smile: nine rows, rounds to target (Table 6) and errors (Table 7)",
    rows=_rows("DS", "IS", "CB"),
    settings={
        "small": Setting(
            _faces("celeba-mlp", {"lr": 0.01, "batch": 10}, 40),
            0.6,
            (
                FACES_HERE,
                "a network 12,288-32-1 in place of two convolutions, batches of 10 in place of whole-set steps",
                NO_RATE,
                "40 rounds in place of 100",
                "lower targets, which this network reaches in that time",
            ),
            (0.5, 0.6, 0.7),
            RATES,
        ),
        "medium": Setting(
            _faces("celeba-cnn", {"lr": 0.05, "batch": "full"}, 60),
            14,
            (FACES_HERE, NO_RATE, ACTIVATED, "60 rounds"),
            FACES_TARGETS,
            RATES,
        ),
        "paper": Setting(
            _faces("celeba-cnn", {"lr": 0.05, "batch": "full"}, 100, data="reproductions.data:CELEBA_AUTHORS"),
            220,
            (NO_RATE, ACTIVATED),
            FACES_TARGETS,
            RATES,
        ),
    },
    make_result=Tables(6),
)

PMCFL = (TABLE_2, TABLE_4, TABLE_6)
