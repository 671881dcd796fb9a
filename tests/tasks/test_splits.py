"""Test sets per client: slices and matched, of a common test set or of the client's own rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit.tasks.build import common_test_rows, deal, own_test_rows

some_labels = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(lambda y: np.array(y, np.int64))
clients_labels = st.lists(some_labels, min_size=1, max_size=8)
laws = settings(max_examples=60, deadline=None)


@laws
@given(clients=st.integers(1, 12), rows=st.integers(0, 50))
def test_slices_are_consecutive_and_even(clients: int, rows: int) -> None:
    parts = common_test_rows([np.zeros(1, np.int64)] * clients, np.zeros(rows, np.int64), "slices", 0)
    assert np.concatenate(parts).tolist() == list(range(rows))
    sizes = [len(part) for part in parts]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


@laws
@given(train=clients_labels, test=some_labels, seed=st.integers(0, 999))
def test_matched_rows_fit_the_labels_and_are_used_once(train: list[np.ndarray], test: np.ndarray, seed: int) -> None:
    parts = common_test_rows(train, test, "matched", seed)
    used = np.concatenate(parts)
    assert np.array_equal(np.sort(used), np.flatnonzero(np.isin(test, np.concatenate(train))))
    for labels, rows in zip(train, parts, strict=True):
        assert set(test[rows].tolist()) <= set(labels.tolist())
    assert all(map(np.array_equal, parts, common_test_rows(train, test, "matched", seed)))


@laws
@given(train=clients_labels, test=some_labels)
def test_matched_is_in_proportion(train: list[np.ndarray], test: np.ndarray) -> None:
    parts = common_test_rows(train, test, "matched", 0)
    everyone = np.concatenate(train)
    for label in np.intersect1d(test, everyone):
        for labels, rows in zip(train, parts, strict=True):
            exact = np.sum(test == label) * np.sum(labels == label) / np.sum(everyone == label)
            assert abs(np.sum(test[rows] == label) - exact) < 1


def test_matched_differs_between_seeds() -> None:
    train, test = [np.arange(100) % 5] * 4, np.arange(200) % 5
    one, two = (common_test_rows(train, test, "matched", seed) for seed in (1, 2))
    assert not all(map(np.array_equal, one, two))


@laws
@given(
    total=st.integers(0, 500),
    shares=st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any),
    seed=st.integers(0, 99),
)
def test_deal_gives_all_and_each_its_rounded_share(total: int, shares: list[int], seed: int) -> None:
    counts = deal(total, np.array(shares), np.random.default_rng(seed))
    assert counts.sum() == total
    assert (np.abs(counts - total * np.array(shares) / sum(shares)) < 1).all()
    assert (counts[np.array(shares) == 0] == 0).all()


@pytest.mark.parametrize("way", ["slices", "matched"])
@laws
@given(clients=clients_labels, seed=st.integers(0, 99))
def test_own_rows_are_split_and_one_is_left_to_train(way: str, clients: list[np.ndarray], seed: int) -> None:
    labels = np.concatenate(clients)
    rows = np.split(np.arange(len(labels)), np.cumsum([len(y) for y in clients])[:-1])
    trains, tests = own_test_rows(rows, labels, way, seed)  # type: ignore[arg-type]
    for all_rows, train, test in zip(rows, trains, tests, strict=True):
        assert np.array_equal(np.sort(np.concatenate([train, test])), all_rows)
        assert len(train) >= 1
        assert len(test) == round(0.2 * len(all_rows))
        if way == "slices":
            assert np.array_equal(test, all_rows[: len(test)])
        else:
            for label in np.unique(labels[all_rows]):
                exact = len(test) * np.mean(labels[all_rows] == label)
                assert abs(np.sum(labels[test] == label) - exact) < 1


@laws
@given(clients=clients_labels, seed=st.integers(0, 99))
def test_own_rows_at_random_are_as_many_as_leaf_takes(clients: list[np.ndarray], seed: int) -> None:
    labels = np.concatenate(clients)
    rows = np.split(np.arange(len(labels)), np.cumsum([len(y) for y in clients])[:-1])
    trains, tests = own_test_rows(rows, labels, "random", seed, 0.1)
    for all_rows, train, test in zip(rows, trains, tests, strict=True):
        assert np.array_equal(np.sort(np.concatenate([train, test])), all_rows)
        assert len(train) == max(1, len(all_rows) * 9 // 10)
        assert (np.diff(test) > 0).all()
    assert all(map(np.array_equal, tests, own_test_rows(rows, labels, "random", seed, 0.1)[1]))


def test_the_share_of_own_rows_can_be_set() -> None:
    rows, labels = [np.arange(100)], np.zeros(100, np.int64)
    assert own_test_rows(rows, labels, "slices", 0, 0.3)[1][0].tolist() == list(range(30))
    assert len(own_test_rows(rows, labels, "matched", 0, 0.3)[1][0]) == 30
