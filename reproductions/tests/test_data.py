"""Variants of data sets for reproductions: the authors' people of CelebA, LEAF's sample of writers, negatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.config.schema import TaskConfig
from fedmerit.tasks.build import own_test_rows
from fedmerit.tasks.federation import Ids, Raw
from fedmerit.tasks.registry import find_task
from reproductions.data import authors_images, share_of_images, share_of_writers


def numbered(sizes: list[int], tests: int | None = None) -> Raw:
    """Writers of these sizes, 60 places apart; every `tests`-th row is for testing, but never a writer's first."""
    writer = np.repeat(np.arange(len(sizes)) * 60, sizes)
    first = np.diff(writer, prepend=-1) > 0
    row = np.arange(len(writer))
    for_test = None if tests is None else (row % tests == 0) & ~first
    return Raw(row[:, None], row, 62, ids=Ids("writer", writer), for_test=for_test)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    share=st.floats(0.5, 1),
    tests=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 999),
)
def test_sampling_takes_whole_writers_up_to_the_share(sizes: list[int], share: float, tests: int | None, seed: int):
    rows = numbered([size + 2 for size in sizes], tests)
    some = share_of_writers(rows, share, seed)
    assert rows.ids is not None
    assert some.ids is not None
    writers = some.ids.values
    assert (np.diff(some.y) > 0).all(), "rows stay in file order, none twice"
    assert np.array_equal(writers, rows.ids.values[some.y]), "rows stay with their writers"
    for file in np.unique(rows.ids.values // 100):
        before, after = (values[values // 100 == file] for values in (rows.ids.values, writers))
        assert len(after) == int(share * len(before))
        kept, whole = np.bincount(after, minlength=2000), np.bincount(before, minlength=2000)
        assert ((kept > 0) & (kept < whole)).sum() <= 1, "one writer of a file is cut at most"
    if some.for_test is not None:
        assert set(writers[~some.for_test]) == set(writers), "everybody has a row to train on"
    assert np.array_equal(share_of_writers(rows, share, seed).y, some.y)


def test_a_tenth_of_the_real_writers(data_folder: Callable[[str], Path]):
    data_folder("femnist")
    federation = find_task("reproductions.data:FEMNIST_TENTH").load(TaskConfig(), 0)
    assert 25 <= len(federation.names) <= 45
    assert abs(federation.train.sizes.sum() + federation.test.sizes.sum() - 4_596) <= 3


def test_negatives(data_folder: Callable[[str], Path]):
    data_folder("femnist")
    config = TaskConfig(clients=9, server=50, validation=0.1)
    plain, negative = (find_task(name).load(config, 0) for name in ("femnist", "reproductions.data:FEMNIST_NEGATIVES"))
    for split in ("train", "test", "validation", "server"):
        one, two = getattr(plain, split).x, getattr(negative, split).x
        assert two.dtype == np.uint8
        assert (255 - one == two).all()


def test_the_authors_people_of_celeba(data_folder: Callable[[str], Path]):
    """4,168 people, 77,098 images to train on and 19,319 for testing, as every matrix of PMCFL's Table 7 has."""
    with np.load(data_folder("celeba") / "celeba_annotations.npz") as file:
        people = file["identity"]
    rows = authors_images(people)
    clients = [np.flatnonzero(people[rows] == person) for person in np.unique(people[rows])]
    train, test = own_test_rows(clients, np.zeros(len(rows), np.int64), "slices", seed=0)
    assert (len(clients), sum(map(len, train)), sum(map(len, test))) == (4168, 77_098, 19_319)
    half = share_of_images(people, 0.5, 1)
    assert np.bincount(people[half])[people[half]].min() >= 5
    assert len(half) < len(people) / 2
