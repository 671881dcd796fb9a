"""DAFL's Table 1 on FEMNIST [DAFL, sec. 3]: single criteria, six orders, and the order adjusted in every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmerit.study.study import Study
from fedmerit.study.tables import saved_table
from fedmerit.study.text_table import TextTable
from reproductions.published import DAFL_DEVICES, DaflRow, published
from reproductions.reproduce.cells import (
    CENSORED,
    LEGEND,
    UNKNOWN,
    Times,
    gain_cell,
    mean_times,
    printed,
    rounds_cell,
    times,
)
from reproductions.reproduce.footnotes import Footnotes
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Result, Setting, Studies

PAPER = "DAFL: Anelli, Deldjoo, Di Noia, Ferrara, Towards Effective Device-Aware Federated Learning"
CRITERIA = {"Ds": "DS", "Ld": "LD", "Md": "MW"}
SHARES = (0.2, 0.3, 0.4, 0.5, 0.7, 0.75)
TARGETS = (0.75, 0.8)
SINGLE = ("Ds", "Md", "Ld")
ORDERS = ("Ds>Ld>Md", "Ds>Md>Ld", "Ld>Ds>Md", "Md>Ds>Ld", "Ld>Md>Ds", "Md>Ld>Ds")
FINAL, MERGED, MEAN = "Final", "Merged", "mean"
GROUPS = {"Low": (0, 1), "Mid": (2, 3), "High": (4, 5)}
COLUMNS = tuple((share / 100,) for share in DAFL_DEVICES) + tuple(
    tuple(DAFL_DEVICES[place] / 100 for place in places) for places in GROUPS.values()
)
BLOCKS = {"Ind": SINGLE, "MCA": (*ORDERS, MEAN), FINAL: (*ORDERS, MEAN), MERGED: ORDERS[:1]}
"""The rows of the table, block by block; Merged is ours."""
ONE_BY_ONE = {"adjust_on": "test", "tolerance": 0.0}
"""[DAFL, Alg. 1]: every order is a candidate of its own, and the test rows decide."""
MERGED_NOTE = (
    "Final: every order is a candidate, as in the paper. Merged: orders whose weights differ by at most 0.01 in total "
    "variation count as one, our default (search.tolerance), which asks fewer clients"
)


def tables(setting: Setting, studies: Studies) -> Result:
    """A table per target, what adjusting the order saves, and the rounds that each row saves against Ds."""
    (study,) = studies.values()
    by_target = [_table(study, target, place) for place, target in enumerate(setting.targets)]
    whole = all(f"{FINAL} {order}" in study.rows and order in study.rows for order in ORDERS)
    online = [_online(study, setting.targets)] if whole else []
    saved = [saved_table(study)] if len(study.rows) > 1 else []
    return Result((*by_target, *online, *saved), notes=(LEGEND, CENSORED, MERGED_NOTE))


def _table(study: Study, target: float, place: int) -> TextTable:
    """Published above measured rows; a mean row is the mean of the six orders, seed by seed."""
    printed_target = list(published().dafl_rounds)[place]
    notes = Footnotes(("finding-5", "dafl-means", "dafl-test-sets"))
    lines = [
        line
        for block, rows in BLOCKS.items()
        for row in rows
        for line in _lines(study, block, row, target, _printed_row(printed_target, block, row), notes)
    ]
    header = ("row", *(f"{share} %" for share in DAFL_DEVICES), *GROUPS)
    above = "at or above" if study.plan.or_equal else "above"
    other = "" if round(100 * target) == printed_target else f" (measured: {above} {100 * target:g} %)"
    title = f"Table 1: rounds until a share of the devices is {above} {printed_target} %{other}"
    return TextTable(title, header, tuple(lines), notes.below)


def _lines(
    study: Study, block: str, row: str, target: float, printed_row: DaflRow | None, notes: Footnotes
) -> Iterator[tuple[str, ...]]:
    """The published line, then the measured one; of block Final only the best start and the mean are published."""
    names = [_study_row(block, name) for name in (ORDERS if row == MEAN else (row,))]
    if not all(name in study.rows for name in names):
        return
    label = f"{block} {row}"
    if printed_row is None:
        yield f"{label}, measured", *_measured(study, names, target)
    else:
        yield _published(f"{label}, published", block, row, printed_row, notes)
        yield "measured", *_measured(study, names, target)


def _printed_row(target: int, block: str, row: str) -> DaflRow | None:
    """What the paper prints in that place; nothing for our own rows."""
    return published().dafl_rounds[target].get(block, {}).get(row)


def _study_row(block: str, row: str) -> str:
    return f"{block} {row}" if block in (FINAL, MERGED) else row


def _published(label: str, block: str, row: str, printed_row: DaflRow, notes: Footnotes) -> tuple[str, ...]:
    if block == FINAL:
        label = notes("dafl-test-sets", label)
    elif row.startswith(("Ld", "Md")):
        label = notes("finding-5", label)
    cells = [printed(value) for value in (*printed_row.cells, *printed_row.means)]
    return label, *(notes("dafl-means", cell) if row == MEAN and cell != UNKNOWN else cell for cell in cells)


def _measured(study: Study, names: Sequence[str], target: float) -> Iterator[str]:
    return (rounds_cell(mean_times([times(study, name, target, column) for name in names])) for column in COLUMNS)


def _online(study: Study, targets: Sequence[float]) -> TextTable:
    """What adjusting the order saves: the mean of the six fixed orders minus that of the six adjusted ones."""
    header = ("target", *(f"{share} %" for share in DAFL_DEVICES), *GROUPS)
    rows = [(f"{100 * target:g} %", *_saved(study, target)) for target in targets]
    title = (
        "Rounds saved by adjusting the order online: the mean of the six fixed orders minus that of the six adjusted"
    )
    return TextTable(title, header, tuple(rows))


def _saved(study: Study, target: float) -> Iterator[str]:
    for column in COLUMNS:
        fixed, adjusted = (_mean(study, block, target, column) for block in ("MCA", FINAL))
        yield gain_cell(fixed, adjusted)


def _mean(study: Study, block: str, target: float, column: Sequence[float]) -> Times:
    return mean_times([times(study, _study_row(block, row), target, column) for row in ORDERS])


def _row(name: str, order: str) -> Mapping[str, Any]:
    """A row of the study: normalised by the sum and adjusted on the test rows, as in the paper."""
    recipe: dict[str, Any] = {"name": "prioritized", "normalise": "sum"}
    recipe["criteria"] = [CRITERIA[criterion] for criterion in order.split(">")]
    if name.startswith((FINAL, MERGED)):
        search = ONE_BY_ONE if name.startswith(FINAL) else ONE_BY_ONE | {"tolerance": 0.01}
        recipe |= {"name": "device_aware", "search": search}
    return {"name": name, "recipe": recipe}


ROWS = (
    *(_row(name, name) for name in (*SINGLE, *ORDERS)),
    *(_row(f"{FINAL} {order}", order) for order in ORDERS),
    *(_row(f"{MERGED} {order}", order) for order in BLOCKS[MERGED]),
)


def _writers(model: str, train: Mapping[str, Any], rounds: int, **task: Any) -> dict[str, Base]:
    writers = {"data": "femnist", "partition": "natural", "model": model, "test": "slices"}
    run = {"rounds": rounds, "fraction": 0.1}
    return {WHOLE: {"task": writers | task, "train": {"batch": 10, **train}, "run": run}}


DAFL = Reproduction(
    name="dafl-table1",
    paper=PAPER,
    about="FEMNIST by writer: single criteria, six orders, orders adjusted online; rounds to target (Table 1)",
    rows=ROWS,
    settings={
        "small": Setting(
            _writers("femnist-mlp", {"lr": 0.01, "epochs": 5}, 40, clients=100),
            0.12,
            (
                "100 of the 300 writers of FEDMERIT_DATA, mostly digits, in place of 371 of all of FEMNIST",
                "a network 784-64-62 in place of two convolutions",
                "40 rounds in place of 1,000",
                "lower targets, which this network reaches in that time",
            ),
            (0.4, 0.5),
        ),
        "medium": Setting(
            _writers("femnist-cnn", {"lr": 0.02, "epochs": 2}, 60, clients=100),
            6,
            (
                "100 of the 300 writers of FEDMERIT_DATA, mostly digits, in place of 371 of all of FEMNIST",
                "2 epochs at 0.02 in place of 5 at 0.01",
                "60 rounds in place of 1,000",
            ),
            TARGETS,
        ),
        "paper": Setting(
            _writers("femnist-cnn", {"lr": 0.01, "epochs": 5}, 1000, data="reproductions.data:FEMNIST_TENTH"),
            60,
            ("writers are drawn by the seed: about 375, in the paper 371",),
            TARGETS,
        ),
    },
    make_result=tables,
    shares=SHARES,
)
