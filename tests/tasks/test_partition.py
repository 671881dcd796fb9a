"""Partitions: laws that hold for all data, and what each kind does."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError, UserError
from fedmerit.tasks.federation import Ids
from fedmerit.tasks.partition import Parts, partition

GROUPS = ((0, 1), (2, 3))
MADE = [
    TaskConfig(partition="iid"),
    TaskConfig(partition="shards"),
    TaskConfig(partition="dirichlet", alpha=5.0),
    TaskConfig(partition="label-groups", groups=GROUPS),
]
few = settings(max_examples=15, deadline=None)
labelled = st.integers(40, 200).flatmap(
    lambda rows: st.lists(st.integers(0, 4), min_size=rows, max_size=rows).map(lambda y: [0, 1, 2, 3] * 4 + y)
)


def spread(labels: Any, config: TaskConfig, clients: int | None = 5, seed: int = 0, ids: Any = None) -> Parts:
    owner = None if ids is None else Ids("writer", np.asarray(ids, np.int64))
    return partition(np.asarray(labels, np.int64), owner, config, clients, seed)


def same(one: Parts, two: Parts) -> bool:
    return one.names == two.names and all(map(np.array_equal, one.rows, two.rows))


@pytest.mark.parametrize("config", MADE, ids=lambda config: config.partition)
@few
@given(labels=labelled, clients=st.integers(2, 6), seed=st.integers(0, 2**40))
def test_made_partitions_are_disjoint_and_repeatable(
    config: TaskConfig, labels: list[int], clients: int, seed: int
) -> None:
    parts = spread(labels, config, clients, seed)
    rows = np.concatenate(parts.rows)
    assert parts.names == tuple(map(str, range(clients)))
    assert len(np.unique(rows)) == len(rows), "a row went to two clients"
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts.rows), "each has rows, in file order"
    assert rows.max() < len(labels)
    assert same(parts, spread(labels, config, clients, seed))


@few
@given(labels=labelled, clients=st.integers(2, 6), seed=st.integers(0, 99))
def test_what_is_covered(labels: list[int], clients: int, seed: int) -> None:
    y = np.array(labels)
    covered = {config.partition: np.sort(np.concatenate(spread(y, config, clients, seed).rows)) for config in MADE}
    assert np.array_equal(covered["iid"], np.arange(len(y)))
    assert np.array_equal(covered["dirichlet"], np.arange(len(y)))
    assert np.array_equal(covered["label-groups"], np.flatnonzero(y < 4))
    assert len(covered["shards"]) == len(y) // (2 * clients) * 2 * clients


@pytest.mark.parametrize("config", MADE, ids=lambda config: config.partition)
def test_seeds_differ(config: TaskConfig) -> None:
    labels = np.arange(200) % 5
    assert not same(spread(labels, config, seed=1), spread(labels, config, seed=2))


def test_iid_sizes_differ_by_one_at_most() -> None:
    assert sorted(map(len, spread(np.zeros(23), MADE[0]).rows)) == [4, 4, 5, 5, 5]


def test_shards_are_blocks_of_the_sorted_labels() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 20))
    parts = spread(labels, TaskConfig(partition="shards"), clients=5)
    assert sorted(label for rows in parts.rows for label in np.unique(labels[rows])) == list(range(10))
    assert all(len(np.unique(labels[rows])) == 2 for rows in parts.rows)


def test_label_groups() -> None:
    labels = np.arange(100) % 5
    parts = spread(labels, MADE[3], clients=5)
    sets = [set(labels[rows].tolist()) for rows in parts.rows]
    assert sets == [{0, 1}, {0, 1}, {0, 1}, {2, 3}, {2, 3}]
    assert [len(rows) for rows in parts.rows] == [14, 13, 13, 20, 20]


@pytest.mark.parametrize(
    ("groups", "clients", "message"),
    [
        ((), 5, "one list of labels per group"),
        (((0,), ()), 5, "none empty"),
        (((0, 1), (1, 2)), 5, "each label in one group only"),
        (((0, 0),), 5, "each label in one group only"),
        (((0, 9),), 5, r"the data, \[0, 1, 2, 3, 4\] \(got \[\[0, 9\]\]"),
        (((0,), (1,), (2,)), 2, "2 clients, 3 groups"),
    ],
)
def test_bad_groups(groups: Any, clients: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spread(np.arange(100) % 5, TaskConfig(partition="label-groups", groups=groups), clients)


@pytest.mark.parametrize(
    ("config", "labels", "clients", "message"),
    [
        *(
            (TaskConfig(partition="dirichlet", alpha=alpha), np.arange(60) % 3, 50, "left a client .*raise task.alpha")
            for alpha in (0.001, 1e-300)
        ),
        (
            TaskConfig(partition="label-groups", groups=((0,), (1,))),
            [0] * 90 + [1],
            4,
            r"group \[1\] has 1 .* 2 clients",
        ),
        *((config, [0, 1, 2, 3] * 2, 9, "more clients than samples: 9 clients, 8 training rows") for config in MADE),
        (MADE[1], np.zeros(9), 5, "5 clients with 2 shards each, 9 training rows"),
        (MADE[0], np.zeros(9), None, r"set task.clients"),
    ],
)
def test_rows_or_numbers_that_do_not_suffice(
    config: TaskConfig, labels: Any, clients: int | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        spread(labels, config, clients)


@few
@given(ids=st.lists(st.integers(-5, 20), min_size=1, max_size=80), seed=st.integers(0, 99))
def test_natural_gives_each_its_own(ids: list[int], seed: int) -> None:
    parts = spread(np.zeros(len(ids)), TaskConfig(partition="natural"), None, seed, ids)
    assert parts.names == tuple(f"writer {owner}" for owner in sorted(set(ids)))
    for owner, rows in zip(sorted(set(ids)), parts.rows, strict=True):
        assert np.array_equal(rows, np.flatnonzero(np.array(ids) == owner))


def test_natural_clients_have_the_names_that_the_data_gives() -> None:
    owners = Ids("writer", np.array([2, 0, 2], np.int64), ("Ann", "Bob", "Cem"))
    parts = partition(np.zeros(3, np.int64), owners, TaskConfig(partition="natural"), None, 0)
    assert parts.names == ("Ann", "Cem")
    assert [rows.tolist() for rows in parts.rows] == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("config", "digest"),
    [
        (TaskConfig(partition="iid"), "f35a3038d6034385"),
        (TaskConfig(partition="shards"), "f770d13f326ccf01"),
        (TaskConfig(partition="dirichlet", alpha=5.0), "469911d17e84f618"),
        (TaskConfig(partition="dirichlet", alpha=0.2), "ee415e408c6a34c2"),
    ],
    ids=lambda value: value.partition if isinstance(value, TaskConfig) else "",
)
def test_made_partitions_agree_with_flower(config: TaskConfig, digest: str) -> None:
    """The digests are of the rows that the partitioners of flwr-datasets 0.6 give for the same labels and seeds."""
    labels = np.random.default_rng(0).integers(0, 5, 200)
    rows = [part.tolist() for part in spread(labels, config, clients=6, seed=7).rows]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == digest


def test_natural_with_a_number_of_clients() -> None:
    ids = np.arange(300) % 30
    natural = TaskConfig(partition="natural")
    ten, twenty, other = (
        spread(ids, natural, clients, seed, ids).names for clients, seed in ((10, 1), (20, 1), (10, 2))
    )
    assert len(ten) == 10
    assert set(ten) < set(twenty), "more clients with the same seed are the same and more"
    assert list(ten) == sorted(ten, key=lambda name: int(name.split()[1]))
    assert ten != other
    with pytest.raises(DataError, match=r"task.clients = 31, but the data has 30 with the id 'writer'"):
        spread(ids, natural, 31, 0, ids)


DRAWS = TaskConfig(partition="label-draws", groups=GROUPS, size=(6, 6), alpha=1.0)


@few
@given(labels=labelled, clients=st.integers(2, 6), seed=st.integers(0, 99), least=st.sampled_from([3, 6]))
def test_drawn_rows_belong_to_the_clients_group(labels: list[int], clients: int, seed: int, least: int) -> None:
    config = DRAWS.model_copy(update={"size": (least, 6)})
    parts = spread(labels, config, clients, seed)
    members = [len(block) for block in np.array_split(np.arange(clients), 2)]
    for client, rows in enumerate(parts.rows):
        assert least <= len(rows) <= 6
        assert len(np.unique(rows)) == len(rows), "no row twice with one client"
        assert set(np.asarray(labels)[rows]) <= set(GROUPS[0] if client < members[0] else GROUPS[1])
    assert same(parts, spread(labels, config, clients, seed))


def test_small_alpha_makes_clients_of_a_group_unlike() -> None:
    labels = [0, 1, 2, 3] * 200

    def largest(alpha: float) -> float:
        parts = spread(labels, DRAWS.model_copy(update={"size": (50, 50), "alpha": alpha}), 20)
        return float(np.mean([np.bincount(np.asarray(labels)[rows]).max() / len(rows) for rows in parts.rows]))

    assert largest(0.05) > 0.8 > 0.65 > largest(50.0)


def test_more_rows_than_there_are_is_an_error() -> None:
    with pytest.raises(DataError, match=r"task\.size"):
        spread([0, 1, 2, 3] * 10, DRAWS.model_copy(update={"size": (30, 30)}), 2)
