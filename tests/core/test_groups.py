"""Groups: planted directions are found again, each cut does what it says, and the numbering depends on nothing else."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from fedmerit import ByCosine
from fedmerit.core.models.grouping import LEVELS, Cut, OneGroup, silhouette
from fedmerit.core.state import PairDistances
from fedmerit.core.types import Groups
from fedmerit.core.updates import Updates

NOBODY = PairDistances()
many = settings(max_examples=60, deadline=None)


def grouped(grouping: ByCosine | OneGroup, rows: Updates, met: PairDistances = NOBODY) -> Groups:
    return grouping(rows, range(len(rows)), met)


def updates(*rows: list[float]) -> Updates:
    return Updates(np.array(rows, dtype=np.float32))


def planted(groups: int, each: int, noise: float = 0.2, seed: int = 0, d: int = 400) -> tuple[Updates, list[int]]:
    """Clients around one direction per group, in turn."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(groups, d))
    truth = [client % groups for client in range(groups * each)]
    rows = np.stack([centres[group] + noise * random.normal(size=d) for group in truth])
    lengths = random.uniform(0.1, 10, size=(len(rows), 1))
    return Updates((rows * lengths).astype(np.float32)), truth


def by_hand(distances: np.ndarray, beta: float) -> list[int]:
    """Algorithm 2 word by word: while the closest two groups are nearer than beta, merge them."""
    groups = [[i] for i in range(len(distances))]
    while len(groups) > 1:
        gaps = {
            (a, b): np.mean(distances[np.ix_(groups[a], groups[b])]) for a, b in combinations(range(len(groups)), 2)
        }
        (a, b), nearest = min(gaps.items(), key=lambda item: item[1])
        if nearest >= beta:
            break
        groups[a] += groups.pop(b)
    return [next(number for number, group in enumerate(groups) if i in group) for i in range(len(distances))]


def same_partition(one: object, other: object) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return bool(((a[:, None] == a) == (b[:, None] == b)).all())


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_planted_groups_are_recovered_by_the_gap(groups: int):
    rows, truth = planted(groups, each=6)
    found = grouped(ByCosine(), rows)
    assert found.labels.tolist() == truth
    assert 0.1 < found.cut < 1


def test_like_clients_stay_one_group():
    rows, _ = planted(1, each=12)
    assert len(grouped(ByCosine(), rows).members) == 1


@many
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 9),
    beta=st.floats(0.05, 1.9),
)
def test_a_constant_cut_is_the_papers_loop(seed: int, n: int, beta: float):
    rows = Updates(np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32))
    found = grouped(ByCosine(beta), rows)
    assert same_partition(found.labels, by_hand(found.distances, beta))


@many
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    cut=st.sampled_from(["gap", "silhouette", 1.0]),
)
def test_laws_of_any_grouping(seed: int, n: int, cut: str):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(n, 5)).astype(np.float32)
    rows[random.random(n) < 0.2] = 0
    found = grouped(ByCosine(cut), Updates(rows))
    members = found.members
    assert sorted(np.concatenate(members).tolist()) == list(range(n)), "everybody is in one group"
    assert [places[0] for places in members] == sorted(places[0] for places in members), "numbered by first client"
    still = ~rows.any(axis=1)
    if still.any():
        assert len(set(found.labels[still])) == 1
        assert not still.all() or len(members) == 1
        assert set(found.labels[still]).isdisjoint(found.labels[~still]), "who does not move is apart"
    weights = random.random(n)
    spread = found.spread(weights)
    assert spread.shape == (len(members), n)
    assert spread.sum(axis=0) == pytest.approx(weights)
    order = random.permutation(n)
    assert same_partition(grouped(ByCosine(cut), Updates(rows[order])).labels, found.labels[order])


@many
@given(seed=st.integers(0, 10**6), n=st.integers(3, 15), groups=st.integers(2, 6))
def test_the_silhouette_is_scikit_learns(seed: int, n: int, groups: int):
    random = np.random.default_rng(seed)
    points = random.normal(size=(n, 3))
    distances = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
    labels = np.concatenate([np.arange(min(groups, n - 1)), random.integers(0, min(groups, n - 1), n)])[:n]
    assert silhouette(distances, labels) == pytest.approx(silhouette_score(distances, labels, metric="precomputed"))
    assert silhouette(distances, np.zeros(n, dtype=np.intp)) == 0


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_planted_groups_have_the_best_silhouette(groups: int):
    rows, truth = planted(groups, each=4)
    assert same_partition(grouped(ByCosine(cut="silhouette"), rows).labels, np.array(truth))


def test_updates_that_are_all_alike_or_all_noise_are_one_group():
    random = np.random.default_rng(0)
    for shared in (0.0, 1.0):
        rows = Updates((random.normal(size=(20, 2000)) + shared * random.normal(size=2000)).astype(np.float32))
        found = grouped(ByCosine(cut="silhouette"), rows)
        assert len(found.members) == 1
        assert found.cut is not None


def test_two_clients_part_when_they_pull_against_each_other():
    assert grouped(ByCosine(), updates([1, 0], [0.5, 1])).labels.tolist() == [0, 0]
    assert grouped(ByCosine(), updates([1, 0], [-0.5, 1])).labels.tolist() == [0, 1]


def test_one_client_and_nobody():
    assert grouped(ByCosine(), updates([1, 2])).labels.tolist() == [0]
    assert grouped(ByCosine(), updates([0, 0])).labels.tolist() == [0]
    nobody = grouped(ByCosine(), Updates(np.empty((0, 3), dtype=np.float32)))
    assert (len(nobody.labels), nobody.members) == (0, [])


def test_one_group_takes_everybody():
    rows, _ = planted(3, each=2)
    found = grouped(OneGroup(), rows)
    assert isinstance(found, Groups)
    assert (found.labels.tolist(), found.cut, found.distances) == ([0] * 6, None, None)


def test_over_all_rounds_the_mean_of_the_meetings_counts():
    """Client 2 is away once; pairs count as often as they met."""
    grouping, pairs = ByCosine(0.9, over="all"), NOBODY
    rounds = [(0, 1, 2), updates([1, 0], [1, 0], [0, 1])], [(0, 1), updates([1, 0], [0, 1])]
    for ids, rows in (*rounds, [(0, 1, 2), updates([1, 0], [0, 1], [1, 0])]):
        found, alone = (one(rows, ids, pairs) for one in (grouping, ByCosine(0.9)))
        if len(ids) == 2:
            assert found.distances[0, 1] == pytest.approx(1)
            assert found.labels.tolist() == [0, 0], "0 and then 1: nearer than 0.9 on average"
            assert alone.labels.tolist() == [0, 1], "in this round alone they are far apart"
        pairs = pairs.after(ids, found.distances)
    assert pairs.mean((0, 1, 2)) == pytest.approx(np.array([[0, 2 / 3, 1 / 2], [2 / 3, 0, 1], [1 / 2, 1, 0]]))


def test_meetings_do_not_depend_on_who_came_first():
    one, other = np.array([[0, 0.5], [0.5, 0]]), np.array([[0, 0.25], [0.25, 0]])
    ab = NOBODY.after((3, 7), one).after((1, 7), other)
    ba = NOBODY.after((1, 7), other).after((3, 7), one)
    assert ab.ids == ba.ids == (1, 3, 7)
    assert ab.mean((3, 7))[0, 1] == 0.5
    assert np.array_equal(ab.sums, ba.sums)
    assert np.array_equal(ab.counts, ba.counts)


def test_the_gap_looks_at_the_later_half_of_the_merges():
    """Merges at 0, 1, 1, 1 and 1.5: the jump from 0 is the largest, but an early one; the last decides."""
    axes = np.eye(4)
    rows = updates(*axes[[0, 0, 1, 2, 3]].tolist(), (-axes.sum(axis=0)).tolist())
    found = grouped(ByCosine(), rows)
    assert found.labels.tolist() == [0, 0, 0, 0, 0, 1]
    assert found.cut == pytest.approx(1.25, abs=1e-6)


def test_a_jump_of_just_the_level_parts_the_groups(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LEVELS, "gap", 1.0)
    rows = updates([1, 0], [2, 0], [3, 0], [0, 1])
    assert grouped(ByCosine(), rows).labels.tolist() == [0, 0, 0, 1]


def test_there_are_at_most_half_as_many_groups_as_clients(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LEVELS, "gap", 0.0)
    for number in range(3, 9):
        rows = Updates(np.eye(number, dtype=np.float32) + np.float32(0.01))
        rows.row(0)[:] += 0.001
        assert len(grouped(ByCosine(), rows).members) <= number // 2 + 1


@pytest.mark.parametrize("cut", ["gap", "silhouette"])
def test_where_no_cut_is_good_enough_all_are_together_and_the_cut_says_so(cut: Cut, monkeypatch: pytest.MonkeyPatch):
    """Farther than any two can be: 2 and 1 more."""
    monkeypatch.setitem(LEVELS, cut, 1.0)
    found = grouped(ByCosine(cut), updates([1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [1.0, 0.6]))
    assert (found.labels.tolist(), found.cut) == ([0, 0, 0, 0], 3.0)
