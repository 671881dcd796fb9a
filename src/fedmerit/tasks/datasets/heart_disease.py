"""Task `heart-disease`: patients of four hospitals, as FLamby cuts them; is there a heart disease?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import read_file
from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.formats.table_files import Table
from fedmerit.tasks.formats.tabular import check_width
from fedmerit.tasks.source import find_file, need
from fedmerit.tasks.table import table_federation
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NAMES = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
DROPPED = ("slope", "ca", "thal")
"""Mostly missing outside of Cleveland: FLamby drops the columns, then the rows that still have a gap."""
CODED = {"cp": (2, 3, 4), "restecg": (1, 2)}
"""Columns of codes, with the codes that get an indicator: all but the first."""
FEATURES = 13
TRAIN_SHARE, DRAW = 0.66, 43
"""FLamby's split of each hospital's patients: scikit-learn's, in proportion to the label, from this state."""


def read_hospitals() -> tuple[Table, NDArray[np.bool_]]:
    """The patients without a gap of all four, and which of them FLamby tests on."""
    parts = [_complete(find_file("heart-disease", f"processed.{name}.data")) for name in HOSPITALS]
    columns = {name: np.concatenate([part[:, NAMES.index(name)] for part in parts]) for name in NAMES}
    ill = columns.pop("num") > 0
    for name, codes in CODED.items():
        values = columns.pop(name)
        columns |= {f"{name} {code}": (values == code).astype(np.float64) for code in codes}
    for name in DROPPED:
        del columns[name]
    hospital = np.empty(len(ill), dtype=object)
    hospital[:] = [name for name, part in zip(HOSPITALS, parts, strict=True) for _ in part]
    table = Table({**columns, "ill": ill.astype(np.float64), "hospital": hospital}, {}, "heart-disease")
    return table, np.concatenate([_for_test(part[:, -1] > 0) for part in parts])


def _complete(path: Path) -> NDArray[np.float64]:
    """Rows of numbers; NaN only in the columns that are dropped."""
    try:
        lines = [line.split(",") for line in read_file(path).decode("ascii").split()]
        rows = np.array([[float(cell) if cell not in ("", "?") else np.nan for cell in cells] for cells in lines])
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable file of UCI's heart disease data ({error})") from None
    if rows.ndim != 2 or rows.shape[1] != len(NAMES):
        raise DataError(f"{path} must have {len(NAMES)} columns in every row; got {rows.shape}")
    needed = [place for place, name in enumerate(NAMES) if name not in DROPPED]
    return np.asarray(rows[~np.isnan(rows[:, needed]).any(axis=1)])


def _for_test(ill: NDArray[np.bool_]) -> NDArray[np.bool_]:
    split = need("sklearn.model_selection").train_test_split
    enough = min(ill.sum(), (~ill).sum()) > 2
    _, tested = split(
        np.arange(len(ill)),
        train_size=TRAIN_SHARE,
        test_size=1 - TRAIN_SHARE,
        random_state=DRAW,
        stratify=ill if enough else None,
    )
    marks = np.zeros(len(ill), dtype=np.bool_)
    marks[tested] = True
    return marks


def _load(config: TaskConfig, seed: int) -> Federation:
    if config.source != "folder":
        raise ConfigError(f"task 'heart-disease' is read from FEDMERIT_DATA alone; got task.source = {config.source!r}")
    table, for_test = read_hospitals()
    keys = {"client": "hospital", "label": "ill", "attributes": ("sex",)}
    federation = table_federation(table, config.model_copy(update=keys), HEART, seed, for_test)
    check_width(federation.train.x, FEATURES)
    return federation


HEART = TaskSpec(
    name="heart-disease",
    about="740 patients of four hospitals, FLamby's cut: a heart disease? Attribute sex; one client per hospital",
    load=_load,
    models=("heart-linear", "heart-mlp"),
    partitions=("natural", *MADE, *SENSITIVE),
    clients=4,
)
