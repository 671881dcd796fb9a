"""Task `shakespeare`: the next character of a speech from the 80 before it; each client is one role of a play."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.registry import MADE, TaskSpec
from fedmerit.tasks.source import find_file

FILE = "roles.jsonl.gz"
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""The newline and printable ASCII: 96 classes. All remaining characters count as spaces."""
LENGTH = 80
"""Number of characters before the predicted one, as in LEAF."""
STRIDE = 10
"""Characters between rows; LEAF has a row for each, ten times as many."""
FEWEST = 1000
"""Roles with fewer characters are dropped."""
TEST_SHARE = 0.2
"""Share of a role's text, at its end, for testing; no row crosses the border."""
VERSE = "verse"
"""Attribute of a row: whether its line begins with a capital, as lines of verse do."""


def read_roles(path: Path) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the roles: all speeches, each on separate lines."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                role = json.loads(line)
                try:
                    yield f"{role['play']}: {role['role']}", "\n".join(role["speeches"])
                except (TypeError, KeyError):
                    raise DataError(f"{path}, line {number} needs play, role and speeches; download it again") from None
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is damaged ({error}); download it again") from None


def encode(text: str) -> NDArray[np.int16]:
    """Encode characters as their places in the alphabet.

    >>> encode("\\n a").tolist()
    [0, 1, 66]
    """
    places = {character: place for place, character in enumerate(ALPHABET)}
    return np.array([places.get(character, places[" "]) for character in text], dtype=np.int16)


def windows(text: str) -> tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.uint8]]:
    """Split a text into rows: the characters before, the next character, and whether its line is verse."""
    characters = encode(text)
    starts = np.arange(0, max(len(text) - LENGTH, 0), STRIDE)
    x = characters[starts[:, None] + np.arange(LENGTH)] if len(starts) else np.empty((0, LENGTH), np.int16)
    breaks = [text.rfind("\n", 0, start + LENGTH) + 1 for start in starts.tolist()]
    verse = np.array([text[place : place + 1].isupper() for place in breaks], dtype=np.uint8)
    return x, characters[starts + LENGTH].astype(np.int64), verse


def make_rows(roles: Iterator[tuple[str, str]]) -> Raw:
    """Build all rows of the roles with enough text; those of the last part of each text are test rows."""
    parts: list[tuple[NDArray[Any], ...]] = []
    names: list[str] = []
    for name, text in roles:
        if len(text) < FEWEST:
            continue
        cut = int(len(text) * (1 - TEST_SHARE))
        for tested, part in ((False, text[:cut]), (True, text[cut:])):
            rows = windows(part)
            parts.append((*rows, np.full(len(rows[1]), len(names)), np.full(len(rows[1]), tested)))
        names.append(name)
    if not names:
        raise DataError(f"task 'shakespeare' needs a role of at least {FEWEST:,} characters (got none)")
    x, y, verse, role, for_test = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Raw(x, y, len(ALPHABET), {VERSE: verse}, Ids("role", role, tuple(names)), for_test)


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, SHAKESPEARE)
    rows = make_rows(read_roles(find_file("shakespeare", FILE)))
    return build_federation(rows, None, config, SHAKESPEARE, seed, random_share=TEST_SHARE)


SHAKESPEARE = TaskSpec(
    name="shakespeare",
    about="the next character of a speech from the 80 before it, 96 classes; one client per role of a play",
    load=_load,
    models=("shakespeare-lstm", "shakespeare-lstm-small"),
    partitions=("natural", *MADE),
)
