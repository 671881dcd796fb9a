"""Tasks `adult`, `compas` and `german-credit`: published tables of people, with sensitive attributes.

Each table is declared: its file, its columns of numbers and of words, its label and its attributes. Numbers are
standardised by the training rows of all clients, and each word becomes an indicator.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, SENSITIVE, TaskSpec
from fedmerit.tasks.source import find_file, read_bytes

Row: TypeAlias = Mapping[str, str]
Columns: TypeAlias = Mapping[str, NDArray[np.str_]]
TRAIN_SHARE = 0.8
AGES = (25, 46)
"""Age groups: below 25, 25 to 45, above."""


@dataclass(frozen=True, slots=True)
class PeopleTable:
    """A published table: its files, and the roles of its columns.

    files: training and test rows; of a single file the same four fifths are for training in every run.
    header: the columns in order, if the file does not name them.
    numbers, words: the columns to learn from; for words the list of all, or () for those that occur.
    label: a column, its words for label 0, and those for label 1.
    attributes: for each, a column and its words for group 1; () for a group per word, or AGES.
    counts, filtered: a filter of rows, and the columns it reads.
    clients: the owner of each row, for natural partitions.
    """

    task: str
    files: tuple[str, ...]
    numbers: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    label: tuple[str, tuple[str, ...], tuple[str, ...]]
    attributes: Mapping[str, tuple[str, tuple[str | int, ...]]]
    header: tuple[str, ...] = ()
    delimiter: str = ","
    counts: Callable[[Row], bool] | None = None
    filtered: tuple[str, ...] = ()
    clients: Callable[[Columns], Ids] | None = None

    def read(self) -> tuple[Raw, NDArray[np.bool_]]:
        """Read all rows as inputs and labels, and which of them are for training."""
        parts = [self._rows(find_file(self.task, f"{name}.gz", name)) for name in self.files]
        rows = [row for part in parts for row in part]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        train = np.arange(len(rows)) < len(parts[0]) if len(parts) > 1 else _fixed_split(len(rows))
        label, _, positive = self.label
        everything = Raw(
            self._inputs(columns, train),
            np.isin(columns[label], positive).astype(np.int64),
            2,
            {name: _groups(columns[column], words) for name, (column, words) in self.attributes.items()},
            self.clients(columns) if self.clients else None,
            ~train,
        )
        return everything, train

    def _rows(self, path: Path) -> list[Row]:
        """Read and filter the rows, by column; every used cell is checked."""
        try:
            text = io.StringIO(read_bytes(path).decode())
            lines = list(csv.reader(text, delimiter=self.delimiter, skipinitialspace=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path} is not a readable table ({error}); fetch it again") from None
        lines = [[cell.strip() for cell in line] for line in lines if line and not line[0].startswith("|")]
        header = self.header or tuple(lines.pop(0) if lines else ())
        needed = (*self.numbers, *self.words, self.label[0], *self.filtered)
        if lacking := [name for name in needed if name not in header]:
            raise DataError(f"{path} lacks the columns {', '.join(lacking)}; use the table as published")
        for number, line in enumerate(lines, start=1):
            if len(line) != len(header):
                raise DataError(f"{path}: row {number} must have {len(header)} cells (got {len(line)})")
        rows: list[Row] = [dict(zip(header, line, strict=True)) for line in lines]
        rows = [row for row in rows if self.counts(row)] if self.counts else rows
        if not rows:
            raise DataError(f"{path} has no row after filtering; use the table as published")
        self._check(path, rows)
        return rows

    def _check(self, path: Path, rows: Sequence[Row]) -> None:
        label, *classes = self.label
        allowed = {**self.words, label: (*classes[0], *classes[1])}
        for number, row in enumerate(rows, start=1):
            for name in self.numbers:
                if not row[name].isdecimal():
                    raise DataError(f"{path}: {name} must be an integer (row {number} has {row[name]!r})")
            for name, words in allowed.items():
                if words and row[name] not in words:
                    raise DataError(
                        f"{path}: {name} must be one of {', '.join(words)} (row {number} has {row[name]!r})"
                    )

    def _inputs(self, columns: Columns, train: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Standardise numbers by the training rows, then add an indicator per word."""
        parts = []
        for name in self.numbers:
            values = columns[name].astype(np.float64)
            parts.append((values - values[train].mean()) / (values[train].std() or 1.0))
        for name, words in self.words.items():
            parts += [columns[name] == word for word in words or np.unique(columns[name])]
        return np.column_stack(parts).astype(np.float32)


def _groups(column: NDArray[np.str_], words: tuple[str | int, ...]) -> NDArray[np.uint8]:
    """Groups of a column: 1 for these words, otherwise 0; without words one per word, sorted; or age groups."""
    if words == AGES:
        return np.searchsorted(AGES, column.astype(np.float64), side="right").astype(np.uint8)
    if words:
        return np.isin(column, words).astype(np.uint8)
    return np.unique(column, return_inverse=True)[1].astype(np.uint8)


def _fixed_split(rows: int) -> NDArray[np.bool_]:
    """Which rows are for training: TRAIN_SHARE of them, the same in every run."""
    chosen = np.zeros(rows, dtype=np.bool_)
    chosen[generator(0, "table split").permutation(rows)[: round(TRAIN_SHARE * rows)]] = True
    return chosen


def _task(table: PeopleTable, about: str, clients: int, natural: bool = False) -> TaskSpec:
    def load(config: TaskConfig, seed: int) -> Federation:
        config = settle(config, spec)
        rows, train = table.read()
        if config.partition == "natural":  # each client is tested on its own rows
            return build_federation(rows, None, config, spec, seed)
        return build_federation(rows.take(train), rows.take(~train), config, spec, seed)

    models = (f"{table.task}-mlp", f"{table.task}-linear")
    partitions = (*MADE, *SENSITIVE, *(["natural"] if natural else []))
    spec = TaskSpec(table.task, about, load, models, partitions, clients)
    return spec


def _by_doctorate(columns: Columns) -> Ids:
    """AFL's two clients: people with a doctorate, and the remaining ones."""
    return Ids("person", (columns["education"] != "Doctorate").astype(np.int64), ("doctorate", "others"))


ADULT = _task(
    PeopleTable(
        task="adult",
        files=("adult.data", "adult.test"),
        header=(
            *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation"),
            *("relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country"),
            "income",
        ),
        # `education` says the same as `education_num`; `fnlwgt` is the census' sampling weight, not a person's trait.
        numbers=("age", "education_num", "capital_gain", "capital_loss", "hours_per_week"),
        words=dict.fromkeys(
            ("workclass", "marital_status", "occupation", "relationship", "race", "sex", "native_country"), ()
        ),
        label=("income", ("<=50K", "<=50K."), (">50K", ">50K.")),
        attributes={
            "sex": ("sex", ("Male",)),
            "white": ("race", ("White",)),
            "race": ("race", ()),
            "age": ("age", AGES),
        },
        clients=_by_doctorate,
    ),
    "48,842 people of the 1994 US census: above 50,000 dollars a year? Attributes sex, white, race, age",
    clients=20,
    natural=True,
)


def _passes_filter(row: Row) -> bool:
    """The usual filter of ProPublica's analysis: charge and screening lie at most 30 days apart."""
    days = row["days_b_screening_arrest"]
    near = days != "" and abs(float(days)) <= 30
    return near and row["is_recid"] != "-1" and row["c_charge_degree"] != "O" and row["score_text"] != "N/A"


COMPAS = _task(
    PeopleTable(
        task="compas",
        files=("compas-scores-two-years.csv",),
        numbers=("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count"),
        words={"sex": (), "race": (), "c_charge_degree": ()},
        label=("two_year_recid", ("0",), ("1",)),
        attributes={
            "sex": ("sex", ("Male",)),
            "white": ("race", ("Caucasian",)),
            "race": ("race", ()),
            "age": ("age", AGES),
        },
        counts=_passes_filter,
        filtered=("days_b_screening_arrest", "is_recid", "score_text"),
    ),
    "6,172 defendants in Broward County: charged again within two years? Attributes sex, white, race, age",
    clients=10,
)

GERMAN_CREDIT = _task(
    PeopleTable(
        task="german-credit",
        files=("german.data",),
        delimiter=" ",
        header=(
            *("status", "months", "history", "purpose", "amount", "savings", "employment", "rate", "personal"),
            *("debtors", "residence", "property", "age", "plans", "housing", "credits", "job", "liable", "telephone"),
            *("foreign", "risk"),
        ),
        numbers=("months", "amount", "rate", "residence", "age", "credits", "liable"),
        # UCI's codes of each column, whether they occur or not: A47 and A95 do not.
        words={
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
        },
        label=("risk", ("2",), ("1",)),  # bad and good
        attributes={
            "sex": ("personal", ("A91", "A93", "A94")),
            "foreign": ("foreign", ("A201",)),
            "age": ("age", AGES),
        },
    ),
    "1,000 applicants of a German bank: is the credit a good risk? Attributes sex, foreign, age",
    clients=10,
)
