"""Task `celeba`: faces of 64 x 64 RGB, does the person smile?; each client is one person."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw
from fedmerit.tasks.formats.hub import flags, integers, open_all, pictures
from fedmerit.tasks.formats.images import decode, face, stack
from fedmerit.tasks.formats.npz import read_npz
from fedmerit.tasks.source import find_file, hub_name
from fedmerit.tasks.task_spec import MADE, TaskSpec

FILE = "celeba_faces64.npz"
LABEL = "Smiling"
SIZE = 64
FEWEST = 5
"""People with fewer images are left out, as in [PMCFL] and in LEAF."""
IDENTITIES, AUTHORS_FEWEST = 10_177, 10
"""People of CelebA, numbered from 1; images that those of the authors' subset have at least."""


def read_faces(sample: Sample | None = None) -> Raw:
    """The faces of `celeba_faces64.npz`, in file order; `sample` says whose and which."""
    path = find_file("celeba", FILE)
    columns = read_npz(path, ("jpeg", "offset", "identity", "attributes", "attribute_names"))
    _check(path, columns)
    rows = chosen_images(columns["identity"], sample or Sample())
    data, offset = columns["jpeg"].tobytes(), columns["offset"].astype(np.int64)
    faces = (decode(data[offset[row] : offset[row + 1]], f"{path}, image {row}") for row in rows)
    names = [str(name) for name in columns["attribute_names"]]
    attributes = {name: columns["attributes"][rows, i].astype(np.uint8) for i, name in enumerate(names)}
    return _raw(faces, columns["identity"][rows], attributes, str(path))


def read_hub(name: str, sample: Sample | None = None) -> Raw:
    """CelebA from the hub: every split, since each person's own rows are the test set."""
    rows = open_all(name, ("image", "celeb_id", LABEL))
    people = integers(rows, "celeb_id", name)
    keep = chosen_images(people, sample or Sample())
    rows = rows.select(keep)
    return _raw(pictures(rows, name), people[keep], flags(rows, name), name)


@dataclass(frozen=True, slots=True)
class Sample:
    """Which images count: those of the authors' people alone, or a share of all, drawn image by image."""

    authors: bool = False
    share: float = 1.0
    seed: int = 0


def authors_people() -> NDArray[np.int64]:
    """Half of all identities as the authors of [PMCFL] draw them: the first 5,088 of Python's shuffle from seed 0.

    >>> authors_people()[:3].tolist(), len(authors_people())
    ([2, 3, 5], 5088)
    """
    people = list(range(1, IDENTITIES + 1))
    random.Random(0).shuffle(people)
    return np.sort(np.array(people[: IDENTITIES // 2], dtype=np.int64))


def chosen_images(people: NDArray[Any], sample: Sample) -> NDArray[np.int64]:
    """The rows of people with at least five images, of the authors' people with at least ten."""
    chosen = np.isin(people, authors_people()) if sample.authors else np.ones(len(people), np.bool_)
    if sample.share < 1:
        drawn = generator(sample.seed, "sampled images").permutation(len(people))[: round(sample.share * len(people))]
        chosen &= np.isin(np.arange(len(people)), drawn)
    rows = np.flatnonzero(chosen)
    fewest = AUTHORS_FEWEST if sample.authors else FEWEST
    _, person, counts = np.unique(people[rows], return_inverse=True, return_counts=True)
    kept: NDArray[np.int64] = rows[counts[person] >= fewest] if len(rows) else rows
    if len(kept) == 0:
        raise DataError(f"celeba needs people with at least {fewest} images; got {len(rows)} images and no such person")
    return kept


def _raw(faces: Iterable[Any], people: NDArray[Any], attributes: dict[str, NDArray[np.uint8]], source: str) -> Raw:
    if LABEL not in attributes:
        raise DataError(f"{source} must hold the attribute {LABEL}, which is the label; got {', '.join(attributes)}")
    x = stack((face(picture, SIZE) for picture in faces), len(people), (SIZE, SIZE, 3), source)
    return Raw(x, attributes[LABEL].astype(np.int64), 2, attributes, Ids("person", people.astype(np.int64)))


def _check(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """The arrays of the file fit each other."""
    people, names = len(columns["identity"]), len(columns["attribute_names"])
    if columns["attributes"].shape != (people, names):
        got = columns["attributes"].shape
        raise DataError(f"{path}: attributes must be ({people}, {names}), images x names; got {got}")
    values = np.unique(columns["attributes"])
    if not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: attributes must be 0 or 1; got {values[:5].tolist()}")
    offset = columns["offset"].astype(np.int64)
    if (
        len(offset) != people + 1
        or offset[0] != 0
        or (np.diff(offset) <= 0).any()
        or offset[-1] != len(columns["jpeg"])
    ):
        raise DataError(
            f"{path}: offset must rise from 0 to the {len(columns['jpeg'])} bytes of jpeg in {people + 1} values; "
            f"got {len(offset)} values up to {offset[-1:]}"
        )


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, CELEBA)
    name = hub_name(config, default="flwrlabs/celeba")
    sample = Sample(config.people == "authors", config.sample, seed)
    rows = read_faces(sample) if name is None else read_hub(name, sample)
    return build_federation(rows, None, config, CELEBA, seed)


CELEBA = TaskSpec(
    name="celeba",
    about="faces of 64 x 64 pixels with 40 attributes, does the person smile; one client per person",
    load=_load,
    models=("celeba-cnn", "celeba-mlp"),
    partitions=("natural", *MADE),
    sampled=True,
)
