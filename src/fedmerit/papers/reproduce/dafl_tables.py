"""DAFL's Table 1 from a study: rounds to target by single criterion, by order, and with the order adjusted online."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedmerit.papers.published import DAFL_DEVICES, DaflRow, published
from fedmerit.papers.reproduce.cells import (
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
from fedmerit.papers.reproduce.entry import Setting, Studies, Told
from fedmerit.papers.reproduce.marks import Marks
from fedmerit.study.study import Study
from fedmerit.study.tables import saved_table
from fedmerit.study.text_table import TextTable

SINGLE = ("Ds", "Md", "Ld")
ORDERS = ("Ds>Ld>Md", "Ds>Md>Ld", "Ld>Ds>Md", "Md>Ds>Ld", "Ld>Md>Ds", "Md>Ld>Ds")
FINAL, MEAN = "Final", "mean"
GROUPS = {"Low": (0, 1), "Mid": (2, 3), "High": (4, 5)}
COLUMNS = tuple((share / 100,) for share in DAFL_DEVICES) + tuple(
    tuple(DAFL_DEVICES[place] / 100 for place in places) for places in GROUPS.values()
)
STUDIES = {"Ind": SINGLE, "MCA": (*ORDERS, MEAN), FINAL: (*ORDERS, MEAN)}


def tell(setting: Setting, studies: Studies) -> Told:
    """A table per target, what adjusting amounts to, and the rounds that each row saved against Ds."""
    (study,) = studies.values()
    tables = [_table(study, target, place) for place, target in enumerate(setting.targets)]
    whole = all(f"{FINAL} {order}" in study.rows and order in study.rows for order in ORDERS)
    online = [_online(study, setting.targets)] if whole else []
    saved = [saved_table(study)] if len(study.rows) > 1 else []
    return Told((*tables, *online, *saved), notes=(LEGEND, CENSORED))


def _table(study: Study, target: float, place: int) -> TextTable:
    """Published above measured; a mean row is of those six, seed by seed."""
    at = list(published().dafl_rounds)[place]
    marks = Marks(("finding-5", "dafl-means", "dafl-test-sets"))
    lines = [
        line
        for block, rows in STUDIES.items()
        for row in rows
        for line in _lines(study, block, row, target, published().dafl_rounds[at][block].get(row), marks)
    ]
    header = ("row", *(f"{share} %" for share in DAFL_DEVICES), *GROUPS)
    other = "" if round(100 * target) == at else f" (measured: above {100 * target:g} %)"
    title = f"Table 1: rounds until a share of the devices is above {at} %{other}"
    return TextTable(title, header, tuple(lines), marks.below)


def _lines(
    study: Study, block: str, row: str, target: float, found: DaflRow | None, marks: Marks
) -> Iterator[tuple[str, ...]]:
    """Final has published rows for the best start and the mean alone."""
    names = [_study_row(block, one) for one in (ORDERS if row == MEAN else (row,))]
    if not all(name in study.rows for name in names):
        return
    label = f"{block} {row}"
    if found is None:
        yield f"{label}, measured", *_measured(study, names, target)
    else:
        yield _published(f"{label}, published", block, row, found, marks)
        yield "measured", *_measured(study, names, target)


def _study_row(block: str, row: str) -> str:
    return f"{FINAL} {row}" if block == FINAL else row


def _published(label: str, block: str, row: str, found: DaflRow, marks: Marks) -> tuple[str, ...]:
    if block == FINAL:
        label = marks("dafl-test-sets", label)
    elif row.startswith(("Ld", "Md")):
        label = marks("finding-5", label)
    cells = [printed(value) for value in (*found.cells, *found.means)]
    return label, *(marks("dafl-means", cell) if row == MEAN and cell != UNKNOWN else cell for cell in cells)


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
