"""PMCFL's Tables 2 to 7 [PMCFL, sec. 6]: MNIST spread evenly and by shards, CelebA by person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from fedmerit.errors import ConfigError
from fedmerit.study.study import Study
from fedmerit.study.tables import saved_table
from fedmerit.study.text_table import TextTable
from reproductions.errata.findings import exchanged
from reproductions.published import Errors, RoundsTable, published
from reproductions.reproduce.agreement import best_agreement
from reproductions.reproduce.cells import CENSORED, LEGEND, Runs, gain_cell, mean_cell, printed, rounds_cell, times
from reproductions.reproduce.charts import Curve, draw_curves
from reproductions.reproduce.footnotes import Footnotes
from reproductions.reproduce.measured import Measured
from reproductions.reproduce.reproduction import NULL, WHOLE, Base, Reproduction, Result, Setting, Studies

PAPER = "PMCFL: Anelli, Deldjoo, Di Noia, Ferrara, Prioritized Multi-Criteria Federated Learning"
MNIST_TARGETS, FACES_TARGETS = (0.7, 0.8, 0.9, 0.95), (0.7, 0.8, 0.85)
RUN = {"fraction": 0.1}
DS = "DS"
EXCHANGED = ("IS", "CB")
"""Criteria whose names are exchanged in Table 6 (finding-2): published rows are shown next to what they really are."""
SHARES = tuple(place / 10 for place in range(1, 10))
LATER = {(5, "CB>DS>IS"), (4, "CB>IS>DS")}
"""Table 6 at 70 %: columns, counted from 1, whose right neighbour needs fewer rounds, and their printed rows."""
FIGURES = {2: "2a", 4: "2b", 6: "3"}
"""The figure of a table's runs: the global accuracy after each round, drawn as the difference to DS."""
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
        if len(study.rows) == 1:
            return Result(tuple(rounds), {}, (LEGEND, CENSORED))
        name, curves = FIGURES[self.number], _differences(study)
        far = max((float(np.abs(curve.values).max()) for curve in curves), default=0.0)
        end = max(np.ceil(100 * far) / 100, 0.01)
        picture = draw_curves(f"Figure {name}: accuracy minus that of DS", curves, "round", (-end, end))
        return Result(
            (*rounds, saved_table(study), self._errors(study)), {f"figure{name}": picture}, (LEGEND, CENSORED)
        )

    def alike(self, row: str) -> object:
        """Rows of the same value have the same weights.

        In Table 2 every client has 600 rows and all ten labels, so DS and LD are constant: only the place of MW counts.
        """
        order = row.split(">")
        return row if self.number != 2 or row == NULL else order.index("MW") if "MW" in order else None

    def of_measured(self, setting: Setting, measured: Measured) -> Result:
        """The tables of rounds from a file of measured runs, and how near they are to the published ones."""
        rounds = [self._rounds(measured, setting, place) for place in range(len(setting.targets))]
        groups: dict[object, list[str]] = {}
        for row in measured.rows:
            groups.setdefault(self.alike(row), []).append(row)
        listed = {
            "rows with the same weights, run once": [" = ".join(rows) for rows in groups.values() if len(rows) > 1],
            "diverged, not averaged": measured.diverged,
            "not run yet": measured.missing,
        }
        notes = [f"{what}: {'; '.join(items)}" for what, items in listed.items() if items]
        return Result((*rounds, self._nearness(measured, setting)), {}, (LEGEND, CENSORED, *notes))

    def _nearness(self, measured: Measured, setting: Setting) -> TextTable:
        """For each row the cells that come near to the published rounds."""
        table, horizon, lines = published().pmcfl_rounds[self.number], measured.horizon, []
        for row in (row for row in measured.rows if row != NULL):
            cells = near = within = 0
            for place, target in enumerate(setting.targets):
                for share, rounds in zip(SHARES, table.rounds(self._printed_name(row), place), strict=False):
                    of_row = times(measured, row, target, (share,))
                    if rounds is None or rounds > horizon or not of_row.known.any():
                        continue
                    apart = abs(float(np.nanmean(of_row.values)) - rounds)
                    cells, near = cells + 1, near + (apart <= 1)
                    within += apart <= _null_spread(measured, target, share)
            lines.append((row, *map(str, (cells, near, within))))
        below = (
            f"cells: those with at most {horizon} published rounds; near: the mean over the seeds is at most that many "
            "rounds from the published number. Spread of the null row: its largest difference from DS over the seeds",
        )
        header = ("row", "cells", "within 1 round", "within the null row's spread")
        return TextTable(f"Table {self.number}: measured against published rounds", header, tuple(lines), below)

    def _printed_name(self, row: str) -> str:
        return exchanged(row, *EXCHANGED) if self.number == 6 else row

    def _rounds(self, study: Runs, setting: Setting, place: int) -> TextTable:
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
        self, study: Runs, row: str, target: float, shares: Sequence[float], place: int, notes: Footnotes
    ) -> Iterator[tuple[str, ...]]:
        """The published line, then the measured one; a null row has no published line."""
        table, measured = published().pmcfl_rounds[self.number], _measured(study, row, target, shares)
        name = self._printed_name(row)
        if row == DS or name in table.gains:
            text = f"{row}, published" if name == row else notes("finding-2", f"{row}, published as {name}")
            yield text, *_printed(table, self.number, name, place, notes)
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
        number, notes = self.number + 1, Footnotes(("finding-3",))
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
            for line in (_errors(f"{row}, published", matrix, notes), ("measured", *_agreement(study, row)))
        ]
        below = (
            "if unrelated: images that both would get wrong if their errors had nothing to do with each other; "
            "DS, row: accuracy. Measured is the model of each run's best round, as in the paper",
            *notes.below,
        )
        return TextTable(f"Table {number}: errors of the best models against those of DS", header, tuple(lines), below)


def _differences(study: Study) -> list[Curve]:
    """The global accuracy of each row minus that of DS, round by round, over the seeds that both have finished.

    With a null row, only that has a band over the seeds: the noise, next to which the means of the rows are to be seen.
    """
    finished = {(run.row, run.seed) for run in study.runs if str(run) not in study.unfinished}
    groups = study.curves.groupby(["row", "seed"], sort=False)["accuracy"]
    by_run = {pair: accuracy.to_numpy(dtype=float) for pair, accuracy in groups}
    lines = []
    for row, colour in zip(study.rows, COLOURS, strict=False):
        seeds = [seed for seed in study.plan.seeds if {(DS, seed), (row, seed)} <= finished]
        if row != DS and seeds:
            by_seed = np.array([by_run[row, seed] - by_run[DS, seed] for seed in seeds])
            shown = by_seed if row == NULL or NULL not in study.rows else by_seed.mean(axis=0, keepdims=True)
            lines.append(Curve(row if by_seed.any() else f"{row} (equal to DS)", shown, colour, "none"))
    return lines


def _null_spread(measured: Measured, target: float, share: float) -> float:
    """The largest difference of the null row from DS over the seeds, in rounds; 0 without one."""
    base, null = (times(measured, row, target, (share,)) for row in (DS, NULL))
    apart = np.abs(base.values - null.values)
    return float(np.nanmax(apart)) if (~np.isnan(apart)).any() else 0.0


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


def _measured(study: Runs, row: str, target: float, shares: Sequence[float]) -> Iterator[str]:
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


def _rows(*criteria: str, layers: bool = False) -> tuple[Mapping[str, Any], ...]:
    """Each criterion alone, then all orders, as the tables list them; normalised by the sum, as in the paper.

    With `layers`, MW is that of the authors' code.
    """
    first, second, third = criteria
    swapped = [(second, first, third), (third, first, second), (second, third, first), (third, second, first)]
    orders = [(first,), (second,), (third,), (first, second, third), (first, third, second), *swapped]
    assert set(orders[3:]) == set(permutations(criteria))
    parts = {name: {"name": name, "layers": True} if layers and name == "MW" else name for name in criteria}
    return tuple(
        {
            "name": ">".join(order),
            "recipe": {"name": "prioritized", "criteria": [parts[name] for name in order], "normalise": "sum"},
        }
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
LAYERS = "MW by the mean norm of the layers, as in the authors' code: the text has the norm of the whole model"
NO_RATE = "the learning rate: the paper states none (--tune-rate searches it as the paper did)"
FACES_HERE = "the 278 people of FEDMERIT_DATA in place of 4,168, so that 28 take part in a round instead of 417"

AUTHORS = _rows("DS", "LD", "MW", layers=True)

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
        "medium": Setting(_mnist("iid", 0.215, 40), 14, (LINEAR, LAYERS, "40 rounds"), MNIST_TARGETS, RATES, AUTHORS),
        "paper": Setting(_mnist("iid", 0.215, 1000), 14, (LINEAR, LAYERS), MNIST_TARGETS, RATES, AUTHORS),
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
        "medium": Setting(_mnist("shards", 0.1, 60), 14, (LINEAR, LAYERS, "60 rounds"), MNIST_TARGETS, RATES, AUTHORS),
        "paper": Setting(_mnist("shards", 0.1, 1000), 14, (LINEAR, LAYERS), MNIST_TARGETS, RATES, AUTHORS),
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
            _faces("celeba-mlp", {"lr": 0.01, "batch": 10}, 60),
            0.6,
            (
                FACES_HERE,
                "a network 12,288-32-1 in place of two convolutions, batches of 10 in place of whole-set steps",
                NO_RATE,
                "60 rounds in place of 100",
            ),
            FACES_TARGETS,
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


def tables_of(reproduction: Reproduction) -> Tables:
    """How the tables of rounds are made of measured runs."""
    if not isinstance(reproduction.make_result, Tables):
        names = ", ".join(one.name for one in PMCFL)
        raise ConfigError(f"--measured is an option of {names} (got {reproduction.name}); remove it")
    return reproduction.make_result
