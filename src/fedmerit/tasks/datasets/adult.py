"""Task `adult`: the UCI census rows; does a person earn more than 50,000 dollars a year?"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import read_file, unpacked
from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.formats.hub import read_words
from fedmerit.tasks.formats.tabular import age_groups, check_width, codes, encode, fixed_split
from fedmerit.tasks.source import find_file, hub_name
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec

NAMES = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)
NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
WORDS = ("workclass", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
"""`education` says the same as `education_num`; `fnlwgt` is the census' sampling weight, not a trait of a person."""

FEATURES = 91
TRAIN_SHARE = 2 / 3
"""Of a hub's table: UCI's own share."""


DOCTORATE = "Doctorate"
CLIENTS = ("doctorate", "others")
"""The two clients of the natural partition, as in AFL's experiments: the people with a doctorate, and all others."""


def read_adult() -> tuple[Raw, NDArray[np.bool_]]:
    """UCI's rows, and which of them are for training."""
    train = _read(find_file("adult", "adult.data.gz", "adult.data"))
    test = _read(find_file("adult", "adult.test.gz", "adult.test"))
    columns = {name: [*train[name], *test[name]] for name in NAMES}
    fitted = np.arange(len(columns["age"])) < len(train["age"])
    return _encoded(columns, fitted), fitted


def read_hub(name: str) -> tuple[Raw, NDArray[np.bool_]]:
    """A hub's table, split by us: it has no test rows of its own."""
    columns = read_words(name, NAMES)
    fitted = fixed_split(len(columns["age"]), TRAIN_SHARE)
    return _encoded(columns, fitted), fitted


def _encoded(columns: Mapping[str, list[str]], fitted: NDArray[np.bool_]) -> Raw:
    """All rows, scaled by those that are `fitted`, with the attributes sex (1: male), white, race and age."""
    return Raw(
        check_width(encode(columns, NUMBERS, WORDS, fitted), FEATURES),
        np.array([word.rstrip(".") == ">50K" for word in columns["income"]], dtype=np.int64),
        2,
        {
            "sex": codes(columns["sex"], ("Female", "Male")),
            "white": np.array([race == "White" for race in columns["race"]], dtype=np.uint8),
            "race": codes(columns["race"]),
            "age": age_groups(columns["age"]),
        },
        Ids("person", np.array([word != DOCTORATE for word in columns["education"]], dtype=np.int64), CLIENTS),
        ~fitted,
    )


def _read(path: Path) -> dict[str, list[str]]:
    try:
        content = unpacked(read_file(path), path) if path.suffix == ".gz" else read_file(path)
        lines = content.decode("ascii").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable file of the census ({error}); fetch it again") from None
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("|")]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(NAMES):
            raise DataError(f"{path}: a row has {len(NAMES)} cells; row {number} has {len(row)}")
    if not rows:
        raise DataError(f"{path} holds no row")
    return {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, ADULT)
    name = hub_name(config, default="scikit-learn/adult-census-income")
    rows, fitted = read_adult() if name is None else read_hub(name)
    if config.partition == "natural":  # there each client is tested on its own people
        return build_federation(rows, None, config, ADULT, seed)
    return build_federation(rows.take(fitted), rows.take(~fitted), config, ADULT, seed)


ADULT = TaskSpec(
    name="adult",
    about="48,842 people of the 1994 US census: above 50,000 dollars a year? Attributes sex, white, race, age",
    load=_load,
    models=("adult-mlp", "adult-linear"),
    partitions=(*MADE, *SENSITIVE, "natural"),
    clients=20,
)
