"""Tasks `heart-disease` and `medpar`: patients by hospital, one client per hospital; encoded like any table."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import read_file
from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.registry import MADE, SENSITIVE, TaskSpec
from fedmerit.tasks.source import find_file, need
from fedmerit.tasks.table import table_federation

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NAMES = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
DROPPED = ("slope", "ca", "thal")
"""Mostly missing outside of Cleveland: FLamby drops the columns, then the rows with missing values."""
CODED = {"cp": (2, 3, 4), "restecg": (1, 2)}
"""Columns of codes, with the codes that get an indicator: all except the first."""
TRAIN_SHARE, DRAW = 0.66, 43
"""FLamby's split of each hospital's patients: scikit-learn's, stratified by label, with this random state."""

MEDPAR_COLUMNS = {
    "client": "provnum",
    "label": "died",
    "attributes": ("white",),
    "features": ("los", "hmo", "white", "age80", "type2", "type3"),
}
"""`type` repeats type1 to type3, of which one follows from the remaining two."""


def read_hospitals() -> tuple[Table, NDArray[np.bool_]]:
    """Read the complete patients of all four hospitals, and which of them are FLamby's test rows."""
    parts = [_complete(find_file("heart-disease", f"processed.{name}.data")) for name in HOSPITALS]
    columns = {name: np.concatenate([part[:, NAMES.index(name)] for part in parts]) for name in NAMES}
    ill = columns.pop("num") > 0
    for name, codes in CODED.items():
        values = columns.pop(name)
        columns |= {f"{name} {code}": (values == code).astype(np.float64) for code in codes}
    for name in DROPPED:
        del columns[name]
    hospital = np.repeat(np.array(HOSPITALS, dtype=object), [len(part) for part in parts])
    table = Table({**columns, "ill": ill.astype(np.float64), "hospital": hospital}, {}, "heart-disease")
    return table, np.concatenate([_for_test(part[:, -1] > 0) for part in parts])


def _complete(path: Path) -> NDArray[np.float64]:
    """Read rows of numbers; NaN only in the dropped columns."""
    try:
        lines = [line.split(",") for line in read_file(path).decode("ascii").split()]
        rows = np.array([[float(cell) if cell not in ("", "?") else np.nan for cell in cells] for cells in lines])
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a readable file of UCI's heart disease data ({error}); download it again"
        ) from None
    if rows.ndim != 2 or rows.shape[1] != len(NAMES):
        raise DataError(f"{path} must have {len(NAMES)} columns in every row (got {rows.shape}); download it again")
    needed = [place for place, name in enumerate(NAMES) if name not in DROPPED]
    return np.asarray(rows[~np.isnan(rows[:, needed]).any(axis=1)])


def _for_test(ill: NDArray[np.bool_]) -> NDArray[np.bool_]:
    enough = min(ill.sum(), (~ill).sum()) > 2
    _, tested = need("sklearn.model_selection").train_test_split(
        np.arange(len(ill)),
        train_size=TRAIN_SHARE,
        test_size=1 - TRAIN_SHARE,
        random_state=DRAW,
        stratify=ill if enough else None,
    )
    return np.isin(np.arange(len(ill)), tested)


def _load_heart(config: TaskConfig, seed: int) -> Federation:
    table, for_test = read_hospitals()
    keys = {"client": "hospital", "label": "ill", "attributes": ("sex",)}
    return table_federation(table, config.model_copy(update=keys), HEART, seed, for_test)


def _load_medpar(config: TaskConfig, seed: int) -> Federation:
    table = read_table(find_file("medpar", "medpar.csv"))
    return table_federation(table, config.model_copy(update=MEDPAR_COLUMNS), MEDPAR, seed)


HEART = TaskSpec(
    name="heart-disease",
    about="740 patients of four hospitals, FLamby's cut: a heart disease? Attribute sex; one client per hospital",
    load=_load_heart,
    models=("heart-linear", "heart-mlp"),
    partitions=("natural", *MADE, *SENSITIVE),
    clients=4,
)

MEDPAR = TaskSpec(
    name="medpar",
    about="1,495 patients of 54 hospitals, 1 to 92 each: did the patient die? Attribute white; one client per hospital",
    load=_load_medpar,
    models=("medpar-linear", "medpar-mlp"),
    partitions=("natural", *MADE, *SENSITIVE),
    clients=54,
    test="matched",
)
