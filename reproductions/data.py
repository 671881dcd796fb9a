"""Variants of data sets that published experiments need: the authors' people, LEAF's sample of writers, negatives.

Each is a `TaskSpec`, named in a configuration by `task.data = "reproductions.data:NAME"`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.datasets.celeba import CELEBA, people_with, read_faces
from fedmerit.tasks.datasets.femnist import FEMNIST, TEST_SHARE, read_writers
from fedmerit.tasks.federation import Federation, Raw

Rows: TypeAlias = NDArray[np.int64]
IDENTITIES, AUTHORS_FEWEST = 10_177, 10
"""People of CelebA, numbered from 1; images that those of the authors' subset have at least."""
PER_FILE = 100
"""Writers in a file of LEAF's."""


def authors_people() -> Rows:
    """Half of all identities as the authors of [PMCFL] draw them: the first 5,088 of Python's shuffle from seed 0.

    >>> authors_people()[:3].tolist(), len(authors_people())
    ([2, 3, 5], 5088)
    """
    people = list(range(1, IDENTITIES + 1))
    random.Random(0).shuffle(people)
    return np.sort(np.array(people[: IDENTITIES // 2], dtype=np.int64))


def authors_images(people: NDArray[Any]) -> Rows:
    """The images of the authors' people that have at least ten."""
    rows = np.flatnonzero(np.isin(people, authors_people()))
    return rows[people_with(people[rows], AUTHORS_FEWEST)]


def share_of_images(people: NDArray[Any], share: float, seed: int) -> Rows:
    """A share of all images, drawn image by image; of these, the images of people with at least five."""
    drawn = generator(seed, "sampled images").permutation(len(people))[: round(share * len(people))]
    rows = np.sort(drawn)
    return rows[people_with(people[rows])]


def share_of_writers(rows: Raw, share: float, seed: int) -> Raw:
    """LEAF's sample: of each file of 100 writers, whole writers in random order up to the share of its rows.

    The number of rows is rounded down as LEAF does, and the last writer is cut.
    """
    if rows.ids is None:
        raise DataError("writers are drawn from rows that say who wrote them")
    writers = rows.ids.values
    files = writers // PER_FILE
    taken = [np.empty(0, dtype=np.int64)]
    for file in np.unique(files):
        draw = generator(seed, "sampled writers", int(file))
        inside = np.flatnonzero(files == file)
        missing = int(share * len(inside))
        for writer in draw.permutation(np.unique(writers[inside])):
            if missing == 0:
                break
            written = inside[writers[inside] == writer]
            taken.append(written if len(written) <= missing else _cut(written, rows.for_test, missing, draw))
            missing -= len(taken[-1])
    return rows.take(np.sort(np.concatenate(taken)))


def _cut(rows: Rows, for_test: NDArray[np.bool_] | None, count: int, draw: np.random.Generator) -> Rows:
    """Some of a writer's rows at random; one to train on is always among them."""
    order = draw.permutation(rows)
    if for_test is not None:
        first = int(np.argmin(for_test[order]))  # the first that is not for testing
        order[[0, first]] = order[[first, 0]]
    return order[:count]


def _load_authors(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, CELEBA)
    return build_federation(read_faces(authors_images), None, config, CELEBA, seed)


def _load_writers(config: TaskConfig, seed: int, share: float = 1.0, negatives: bool = False) -> Federation:
    """Some of the writers; as negatives, ink is 255 and paper 0."""
    config, rows = settle(config, FEMNIST), read_writers()
    rows = rows if share == 1 else share_of_writers(rows, share, seed)
    rows = replace(rows, x=255 - rows.x) if negatives else rows
    return build_federation(rows, None, config, FEMNIST, seed, random_share=TEST_SHARE)


CELEBA_AUTHORS = replace(CELEBA, load=_load_authors)
"""CelebA with the people of PMCFL's authors, 4,168 of all."""
FEMNIST_TENTH = replace(FEMNIST, load=partial(_load_writers, share=0.1))
"""A tenth of FEMNIST by writers, as DAFL takes it."""
FEMNIST_NEGATIVES = replace(FEMNIST, load=partial(_load_writers, negatives=True))
"""FEMNIST with ink on black: most pixels are 0."""
