"""Task `compas`: ProPublica's defendants; was a person charged again within two years?"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedmerit.config.reading import read_file, unpacked
from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Raw
from fedmerit.tasks.formats.hub import read_words
from fedmerit.tasks.formats.tabular import age_groups, check_width, codes, encode, fixed_split
from fedmerit.tasks.source import find_file, hub_name
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec

FILE = "compas-scores-two-years.csv"
NUMBERS = ("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count")
WORDS = ("sex", "race", "c_charge_degree")
NEEDED = (*NUMBERS, *WORDS, "days_b_screening_arrest", "is_recid", "score_text", "two_year_recid")
DAYS = 30
"""ProPublica's filter: charge and screening lie at most that many days apart."""
TRAIN_SHARE = 0.8
FEATURES = 15


def read_compas(rows: Iterable[Mapping[str, str]]) -> tuple[Raw, Raw]:
    """Training and test rows of ProPublica's 6,172; the split is the same in every run. sex: 1 is male."""
    counted = [row for row in rows if _counts(row)]
    if not counted:
        raise DataError("no row of COMPAS passes ProPublica's filter")
    columns = {name: [row[name] for row in counted] for name in NEEDED}
    fitted = fixed_split(len(counted), TRAIN_SHARE)
    everything = Raw(
        check_width(encode(columns, NUMBERS, WORDS, fitted), FEATURES),
        np.array(columns["two_year_recid"], dtype=np.int64),
        2,
        {
            "sex": codes(columns["sex"], ("Female", "Male")),
            "white": np.array([race == "Caucasian" for race in columns["race"]], dtype=np.uint8),
            "race": codes(columns["race"]),
            "age": age_groups(columns["age"]),
        },
    )
    return everything.take(fitted), everything.take(~fitted)


def _counts(row: Mapping[str, str]) -> bool:
    """The usual filter of ProPublica's analysis."""
    days = row["days_b_screening_arrest"]
    near = days != "" and abs(float(days)) <= DAYS
    return near and row["is_recid"] != "-1" and row["c_charge_degree"] != "O" and row["score_text"] != "N/A"


def _read(path: Path) -> list[dict[str, str]]:
    try:
        content = unpacked(read_file(path), path) if path.suffix == ".gz" else read_file(path)
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a readable CSV ({error}); fetch it again") from None
    missing = [name for name in NEEDED if not rows or rows[0].get(name) is None]
    if missing:
        raise DataError(f"{path} lacks the columns {', '.join(missing)}")
    return rows


def _read_hub(name: str) -> list[dict[str, str]]:
    columns = read_words(name, NEEDED)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _load(config: TaskConfig, seed: int) -> Federation:
    name = hub_name(config, default="")
    if name == "":
        raise ConfigError("task 'compas' has no data set of its own on the hub; name one: task.source = \"hub:NAME\"")
    config = settle(config, COMPAS)
    rows = _read(find_file("compas", f"{FILE}.gz", FILE)) if name is None else _read_hub(name)
    return build_federation(*read_compas(rows), config, COMPAS, seed)


COMPAS = TaskSpec(
    name="compas",
    about="6,172 defendants in Broward County: charged again within two years? Attributes sex, white, race, age",
    load=_load,
    models=("compas-mlp", "compas-linear"),
    partitions=(*MADE, *SENSITIVE),
    clients=10,
)
