"""Task `german-credit`: 1,000 applicants of a German bank (Statlog); is the credit a good risk?"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedmerit.config.reading import read_file, unpacked
from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Raw
from fedmerit.tasks.formats.tabular import age_groups, encode, fixed_split
from fedmerit.tasks.source import find_file, hub_name
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec

FILE = "german.data"
NAMES = (
    *("status", "months", "history", "purpose", "amount", "savings", "employment", "rate", "personal", "debtors"),
    *("residence", "property", "age", "plans", "housing", "credits", "job", "liable", "telephone", "foreign", "risk"),
)
NUMBERS = ("months", "amount", "rate", "residence", "age", "credits", "liable")
CODES: Mapping[str, Sequence[str]] = {
    "status": ("A11", "A12", "A13", "A14"),
    "history": ("A30", "A31", "A32", "A33", "A34"),
    "purpose": ("A40", "A41", "A42", "A43", "A44", "A45", "A46", "A47", "A48", "A49", "A410"),
    "savings": ("A61", "A62", "A63", "A64", "A65"),
    "employment": ("A71", "A72", "A73", "A74", "A75"),
    "personal": ("A91", "A92", "A93", "A94", "A95"),
    "debtors": ("A101", "A102", "A103"),
    "property": ("A121", "A122", "A123", "A124"),
    "plans": ("A141", "A142", "A143"),
    "housing": ("A151", "A152", "A153"),
    "job": ("A171", "A172", "A173", "A174"),
    "telephone": ("A191", "A192"),
    "foreign": ("A201", "A202"),
}
"""UCI's codes of each column, whether they occur or not: A47 and A95 do not."""
RISKS = ("2", "1")
"""Bad and good, as labels 0 and 1."""
WOMEN = ("A92", "A95")
TRAIN_SHARE = 0.8


def read_german_credit(rows: Sequence[Sequence[str]]) -> tuple[Raw, Raw]:
    """Training and test rows; the split is the same in every run. Label 1 is a good risk; sex: 1 is male."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}
    fitted = fixed_split(len(rows), TRAIN_SHARE)
    indicators = [np.array(columns[name])[:, None] == np.array(known) for name, known in CODES.items()]
    everything = Raw(
        np.hstack([encode(columns, NUMBERS, (), fitted), *indicators]).astype(np.float32),
        np.array([RISKS.index(risk) for risk in columns["risk"]], dtype=np.int64),
        2,
        {
            "sex": np.array([personal not in WOMEN for personal in columns["personal"]], dtype=np.uint8),
            "foreign": np.array([code == "A201" for code in columns["foreign"]], dtype=np.uint8),
            "age": age_groups(columns["age"]),
        },
    )
    return everything.take(fitted), everything.take(~fitted)


def _read(path: Path) -> list[list[str]]:
    """UCI's lines of 21 cells, checked one by one."""
    try:
        content = unpacked(read_file(path), path) if path.suffix == ".gz" else read_file(path)
        rows = [line.split() for line in content.decode("ascii").splitlines() if line.strip()]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable file of German credit ({error}); fetch it again") from None
    if not rows:
        raise DataError(f"{path} holds no row")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(NAMES):
            raise DataError(f"{path}: a row has {len(NAMES)} cells; row {number} has {len(row)}")
        for name, cell in zip(NAMES, row, strict=True):
            known = RISKS if name == "risk" else CODES.get(name)
            if not (cell.isdecimal() if known is None else cell in known):
                wanted = "a whole number" if known is None else f"one of {', '.join(known)}"
                raise DataError(f"{path}: {name} is {wanted}; row {number} has {cell!r}")
    return rows


def _load(config: TaskConfig, seed: int) -> Federation:
    if hub_name(config, default="") is not None:
        raise ConfigError("task 'german-credit' reads UCI's file alone; leave out task.source")
    config = settle(config, GERMAN_CREDIT)
    rows = _read(find_file("german-credit", f"{FILE}.gz", FILE))
    return build_federation(*read_german_credit(rows), config, GERMAN_CREDIT, seed)


GERMAN_CREDIT = TaskSpec(
    name="german-credit",
    about="1,000 applicants of a German bank: is the credit a good risk? Attributes sex, foreign, age",
    load=_load,
    models=("german-credit-mlp", "german-credit-linear"),
    partitions=(*MADE, *SENSITIVE),
    clients=10,
)
