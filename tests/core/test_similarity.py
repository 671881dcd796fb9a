"""The similarity filter: blocks that are excluded over rounds, whichever is the majority of one round, and its laws."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.criteria import similarity
from fedmerit.core.criteria.robust import NormInlier, copies
from fedmerit.core.criteria.similarity import SimilarityFilter, Split, add_round, split
from fedmerit.core.host import Host
from fedmerit.core.round import run_stages
from fedmerit.core.stages.clip import Clip
from fedmerit.core.stages.stages import Stage, stages_of
from fedmerit.core.state import History, PairDistances, State, View
from fedmerit.core.types import Cohort, Matrix, Note
from fedmerit.core.updates import Updates

RANDOM = np.random.default_rng(5)
CLIENTS = (1 + RANDOM.normal(scale=1.5, size=(20, 40))).astype(np.float32)
BY_NORM = "reputation:NormInlier"
BACKDOOR = RANDOM.normal(scale=3, size=40).astype(np.float32)
BACKDOOR -= BACKDOOR.mean()  # not along what the honest clients share


def cohort(index: int, ids: list[int], rows: Matrix) -> Cohort:
    return Cohort(index, tuple(ids), Updates(rows[ids].astype(np.float32)), {})


def everyone(rows: Matrix) -> Cohort:
    return cohort(1, list(range(len(rows))), rows)


def view_of(past: History) -> View:
    return View.of(State(np.zeros(2, np.float32), past), Host.of(CannedFleet(np.zeros((0, 2)), [])), 0)


def measured(stage: Stage, of: Cohort, past: History | None = None) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the facts of a stage and of the stages that it needs, and their notes."""
    after, ran = run_stages(tuple(stages_of([stage])), of, view_of(past or History()))
    return after, ran.notes


def filtered(of: Cohort, past: History | None = None) -> np.ndarray:
    return measured(SimilarityFilter(), of, past)[0].facts["SimilarityFilter"]


def after_rounds(rows: Matrix, rounds: list[list[int]]) -> dict[int, float]:
    """The last value of each client."""
    pairs, values = PairDistances(), {}
    for index, ids in enumerate(rounds, start=1):
        one = cohort(index, ids, rows)
        values |= dict(zip(ids, filtered(one, History(pairs=pairs)).tolist(), strict=True))
        pairs = add_round(pairs, one)
    return values


def mixed_rounds() -> list[list[int]]:
    """Ten of the twenty in each; in the last one most are attackers."""
    rounds = [sorted(np.random.default_rng(seed).permutation(20)[:10].tolist()) for seed in range(8)]
    return [*rounds, [0, 1, 2, *range(12, 19)]]


@pytest.mark.parametrize("attack", ["flip", "backdoor", "none"])
def test_a_block_of_another_kind_is_excluded_even_where_it_is_the_majority_of_a_round(attack: str) -> None:
    rows = CLIENTS.copy()
    if attack == "flip":
        rows[12:] *= -1
    if attack == "backdoor":
        rows[12:] += BACKDOOR
    values = after_rounds(rows, mixed_rounds())
    apart = {client for client in mixed_rounds()[-1] if values[client] == 0}
    attackers = set() if attack == "none" else set(range(12, 19))
    assert attackers <= apart
    assert len(apart - attackers) <= (attack == "backdoor"), "an honest client may be near to it by chance"


def test_the_window_of_the_last_rounds_sees_who_turns_late() -> None:
    """Fifteen honest rounds hide three of flips in the mean over all rounds, but not where each round counts half."""
    pairs = PairDistances()
    for index in range(1, 19):
        one = everyone(flipped_rows() if index > 15 else CLIENTS)
        notes = measured(SimilarityFilter(), one, History(index - 1, pairs=pairs))[1]
        assert [note.client for note in notes] == (list(range(12, 20)) if index > 15 else [])
        pairs = add_round(pairs, one)
        assert all("in the last rounds its updates" in note.text for note in notes)


def test_recent_means_by_hand() -> None:
    """Cosines 1, then 0: a mean of 1/2, and of (1/2 * 1 + 0) / (1/2 + 1) = 1/3 where the last round counts most."""
    pairs = add_round(PairDistances(), cohort(1, [0, 1], np.array([[1.0, 0], [1, 0]])))
    pairs = add_round(pairs, cohort(2, [0, 1, 2], np.array([[1.0, 0], [0, 1], [0, 1]])))
    places = np.arange(3)
    assert pairs.cosines(places)[0, 1:].tolist() == [0.5, 0]
    assert pairs.cosines(places, recent=True)[0].tolist() == pytest.approx([1, 1 / 3, 0])
    assert pairs.cosines(places, recent=True)[1, 2] == 1


def test_a_remembered_client_keeps_the_verdict_on_its_answer() -> None:
    one = replace(everyone(flipped_rows()), facts={"remembered": np.r_[np.zeros(18), 1.0, 1.0]})
    view = view_of(History(1, {18: 1, 19: 1}, recent={BY_NORM: {18: (1.0,), 19: (1.0,)}}))
    view = replace(view, own={"stage:SimilarityFilter": {"verdicts": {"19": "it was one of them"}}})
    after, ran = run_stages(tuple(stages_of([SimilarityFilter()])), one, view)
    assert np.flatnonzero(after.facts["excluded"]).tolist() == [*range(12, 18), 19]
    assert ran.notes[-1].text == "has weight 0: it was one of them"


def test_copies_share_a_weight_and_lose_it_where_they_go_on() -> None:
    rows = CLIENTS.copy()
    rows[1] = 2 * rows[0]
    one = everyone(rows)
    assert copies(one)[:3].tolist() == [1, 1, 0]
    assert NormInlier()(one, History())[:3].tolist() == [0, 0, 1]
    assert filtered(one)[:3].tolist() == [0, 0, 1]
    again = History(2, {0: 2, 1: 2}, recent={BY_NORM: dict.fromkeys(range(20), (1.0,))})
    assert filtered(one, again)[:3].tolist() == [0.5, 0.5, 1]


@given(st.integers(4, 12), st.integers(0, 2**32 - 1))
def test_what_blocks_explain_is_a_share_and_does_not_depend_on_the_order(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 6))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    met = ~np.eye(number, dtype=bool)
    found = split(rows @ rows.T, met)
    assert 0 <= found.explained <= 1 + 1e-9
    assert -1 <= found.between <= 1
    order = random.permutation(number)
    again = split((rows @ rows.T)[np.ix_(order, order)], met)
    assert again.explained == pytest.approx(found.explained, abs=1e-6)


def test_among_few_clients_only_opposed_blocks_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (1 + np.random.default_rng(1).normal(scale=0.5, size=(5, 40))).astype(np.float32)
    rows[3:, :20] = 0  # of another kind
    rows[:3, 20:] = 0
    with monkeypatch.context() as patch:
        for least, kept in ((6, True), (5, False)):
            patch.setattr(similarity, "MIN_CLIENTS", least)
            values = filtered(everyone(rows))
            assert values[3:].any() == values.all() == kept
    rows = CLIENTS[:5].copy()
    for flipped in ([4], [3, 4]):
        rows[flipped] = -CLIENTS[flipped]
        assert np.flatnonzero(filtered(everyone(rows)) == 0).tolist() == flipped


def test_norms_of_all_clients_count_where_most_updates_of_a_round_are_long() -> None:
    rows = np.ones((10, 4)) + np.random.default_rng(1).normal(scale=0.1, size=(10, 4))
    rows[4:] *= 10
    one = cohort(2, list(range(10)), rows)
    past = History(1, recent={"norm": dict.fromkeys(range(10, 30), (2.0,))})
    assert NormInlier()(one, History()).tolist() == [1] * 10
    assert NormInlier()(one, past).tolist() == [1] * 4 + [0] * 6
    left = measured(Clip(times=2.0), one, past)[0].facts["clip"]
    assert left[:4].tolist() == [1] * 4
    assert (left[4:] * one.updates.norms[4:]).tolist() == pytest.approx([4.0] * 6, rel=0.1)


def test_nothing_is_left_of_the_update_of_an_excluded_client() -> None:
    one = replace(cohort(1, [0, 1, 2], np.ones((3, 4))), facts={"excluded": np.array([0.0, 1.0, 0.0])})
    assert measured(Clip(), one)[0].facts["clip"].tolist() == [1, 0, 1]


@given(st.integers(4, 9), st.floats(0.3, 1.0), st.integers(0, 2**32 - 1))
def test_a_split_says_of_its_blocks_what_they_are(number: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 6))
    rows[: number // 2, 0] += 3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines, met = rows @ rows.T, np.triu(random.random((number, number)) < share, 1)
    met |= met.T
    found = split(np.where(met, cosines, 9.0), met)
    if found is None:
        assert not met.any()
        return
    blocks = (~found.second, found.second)
    assert all(one.any() for one in blocks)

    def mean(one: Matrix, other: Matrix) -> float:
        pairs = cosines[np.outer(one, other) & met]
        return float(pairs.mean()) if len(pairs) else 0.0

    assert found.within == pytest.approx((mean(blocks[0], blocks[0]), mean(blocks[1], blocks[1])), abs=1e-9)
    assert found.between == pytest.approx(mean(blocks[0], blocks[1]), abs=1e-9)
    told = np.where(np.equal.outer(found.second, found.second), 0.0, found.between)
    for block, within in zip(blocks, found.within, strict=True):
        told[np.outer(block, block)] = within
    spread = np.square(cosines[met] - cosines[met].mean()).mean()
    left = np.square(cosines[met] - told[met]).mean()
    assert found.explained == pytest.approx(1 - left / spread if spread > 0 else 0.0, abs=1e-6)


def test_two_kinds_are_found_whoever_has_met() -> None:
    cosines = np.where(np.equal.outer(np.arange(8) < 3, np.arange(8) < 3), 0.8, -0.1)
    for met in (~np.eye(8, dtype=bool), np.abs(np.subtract.outer(np.arange(8), np.arange(8))) % 7 > 0):
        found = split(cosines, met)
        assert {tuple(np.flatnonzero(found.second)), tuple(np.flatnonzero(~found.second))} == {
            (0, 1, 2),
            (3, 4, 5, 6, 7),
        }
        assert found.explained == pytest.approx(1)
    assert split(cosines[:3, :3], np.ones((3, 3), dtype=bool)) is None, "three are too few"
    assert split(cosines, np.zeros((8, 8), dtype=bool)) is None, "nobody has met"
    alike = split(np.full((4, 4), 0.5), ~np.eye(4, dtype=bool))
    assert alike is None or alike.explained == pytest.approx(0), "no spread, nothing explained"


def block(size: int, of: int) -> np.ndarray:
    """The last `size` of so many."""
    return np.arange(of) >= of - size


@pytest.mark.parametrize(
    ("second", "within", "between", "explained", "apart"),
    [
        (block(2, 5), (0.3, 0.3), -0.3, 0.7, "go against"),
        (block(2, 5), (0.2, 0.6), 0.1, 0.4, "closer"),  # a coalition
        (block(2, 5), (0.6, 0.2), 0.1, 0.4, None),  # the majority may be as close as it likes
        (block(2, 5), (0.3, 0.3), 0.0, 0.55, "another kind"),
        (block(2, 5), (0.3, 0.3), 0.1, 0.3, None),
        (block(2, 5), (0.8, 0.8), -0.4, 0.85, None),  # honest clients with one of two labels
        (block(2, 5), (0.8, 0.8), -0.7, 0.85, None),  # the same, later
        (block(1, 4), (0.5, 0.0), -0.3, 0.9, "another kind"),  # a client alone is a little against the others
        (block(1, 4), (0.5, 0.0), -0.48, 0.9, "go against"),
        (block(2, 5), (0.0, 0.0), -0.1, 0.0, "go against"),
        (block(2, 5), (0.0, 0.0), -0.0999, 0.0, None),
        (block(2, 5), (0.5, 0.5), -0.45, 0.0, "go against"),
        (block(2, 5), (0.5, 0.5), -0.449, 0.0, None),
        (block(2, 5), (0.5, -0.5), -0.1, 0.0, "go against"),  # a block without likeness has none to be held against
        (block(1, 5), (0.5, 0.9), -0.45, 0.0, "go against"),  # the cosine of a client alone does not count
        (block(4, 5), (0.9, 0.5), -0.45, 0.0, "go against"),
        (block(3, 6), (0.5, 0.5), -0.9, 0.0, None),  # nobody is the smaller one
        (block(2, 6), (0.5, 0.75), 0.3, 0.35, "closer"),
        (block(2, 6), (0.5, 0.75), 0.3, 0.349, None),
        (block(2, 6), (0.5, 0.749), 0.3, 0.35, None),
        (block(2, 6), (0.5, 0.75), 0.375, 0.35, None),  # half as near to the others
        (block(4, 6), (0.75, 0.5), 0.3, 0.35, "closer"),
        (block(5, 6), (0.5, 0.75), 0.3, 0.35, None),  # one other of six
        (block(2, 6), (-0.2, 0.1), 0.0, 0.35, "closer"),
        (block(2, 6), (0.3, 0.3), 0.2, 0.5, "another kind"),
        (block(2, 6), (0.3, 0.3), 0.2, 0.499, None),
        (block(2, 6), (0.5, 0.4), 0.2, 0.7, "another kind"),
        (block(2, 6), (0.5, 0.4), 0.2, 0.699, None),
        (block(4, 6), (0.4, 0.5), 0.2, 0.7, "another kind"),
        (block(4, 6), (0.4, 0.5), 0.2, 0.699, None),
        (block(2, 6), (0.9, 0.9), 0.5, 0.97, "another kind"),
        (block(2, 6), (0.9, 0.9), 0.5, 0.969, None),
        (block(3, 6), (0.3, 0.3), 0.2, 0.9, None),
    ],
)
def test_which_block_is_excluded(
    second: np.ndarray, within: tuple[float, float], between: float, explained: float, apart: str | None
) -> None:
    found = Split(second, within, between, explained).apart
    assert (found is None) == (apart is None)
    if found is not None and apart is not None:
        assert apart in found[1]
        smaller = second if 2 * second.sum() < len(second) else ~second
        assert found[0].tolist() == smaller.tolist()


def test_norms_at_the_bounds_are_inliers() -> None:
    """The median norm of updates that are not zero is 1: 0.1 and 8 are within the bounds, what is beyond is not."""
    angles = np.arange(8.0)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    norms = np.array([0.101, 7.99, 0.099, 8.01, 1.0, 1.0, 1.0, 0.0])
    found = NormInlier()(everyone(rows * norms[:, np.newaxis]), History())
    assert found.tolist() == [1, 1, 0, 0, 1, 1, 1, 0]


def flipped_rows() -> Matrix:
    rows = CLIENTS.copy()
    rows[12:] *= -1
    return rows


def test_a_reputation_of_one_half_is_too_low_and_what_the_note_says() -> None:
    one = cohort(1, list(range(6)), CLIENTS)
    for reputation, excluded in ((0.5, [3]), (0.51, [])):
        fact = {BY_NORM: np.array([1.0, 1.0, 1.0, reputation, 1.0, 1.0])}
        found = SimilarityFilter().measure(replace(one, facts=fact), view_of(History()))
        assert [note.client for note in found.notes] == excluded
    notes = measured(SimilarityFilter(), everyone(flipped_rows()))[1]
    assert [note.client for note in notes] == list(range(12, 20))
    text = "has weight 0: over the rounds its updates and those of 7 of 20 clients go against those of the others"
    assert {note.text for note in notes} == {text}


@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_short_updates_are_judged_as_long_ones(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 12)) * (random.random((number, 12)) < 0.6)
    rows[0] = rows[-1]
    long, short = (everyone((rows * by).astype(np.float32)) for by in (1.0, 2.0**-20))
    for value in (filtered, lambda one: NormInlier()(one, History()), copies):
        assert np.array_equal(value(short), value(long))


@pytest.mark.parametrize(("reputation", "judged"), [(0.5, 19), (0.51, 20)])
def test_an_absent_client_with_a_low_reputation_is_in_no_block(reputation: float, judged: int) -> None:
    pairs = add_round(PairDistances(), everyone(flipped_rows()))
    there = cohort(2, [client for client in range(20) if client != 3], flipped_rows())
    past = History(1, recent={BY_NORM: {3: (1.0, reputation), 4: (1.0,)}}, pairs=pairs)
    notes = measured(SimilarityFilter(), there, past)[1]
    text = f"its updates and those of 7 of {judged} clients go against those of the others"
    assert [(note.client, text in note.text) for note in notes] == [(client, True) for client in range(12, 20)]


def most_explained(cosines: Matrix, met: np.ndarray) -> float:
    """What the best of all pairs of blocks explains."""
    number, values = len(cosines), cosines[met]
    left = []
    for mask in range(1, 2 ** (number - 1)):
        second = np.array([mask >> place & 1 for place in range(number)], dtype=bool)
        told = np.zeros_like(cosines)
        for one in (second, ~second):
            for other in (second, ~second):
                pairs = np.outer(one, other) & met
                told[pairs] = cosines[pairs].mean() if pairs.any() else 0.0
        left.append(np.square(values - told[met]).mean())
    return float(1 - min(left) / np.square(values - values.mean()).mean())


@pytest.mark.parametrize("seed", [0, 3, 13, 19, 20, 25, 28, 29, 38, 39, 53, 54])
def test_the_split_is_the_best_of_all(seed: int) -> None:
    """Each start, sign and sweep is needed for one of these; for others there may be a better split than the one found.

    One to half of six to nine clients are of another kind, and some pairs have not met.
    """
    random = np.random.default_rng(seed)
    number = int(random.integers(6, 10))
    few = int(random.integers(1, number // 2 + 1))
    rows = random.normal(size=(number, 8))
    rows[:few] += random.normal(size=8) * random.choice([1.0, 2.0])
    rows[few:] += random.normal(size=8) * random.choice([0.0, 1.0])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    met = np.triu(random.random((number, number)) < random.choice([0.7, 1.0]), 1)
    met |= met.T
    found = split(rows @ rows.T, met)
    assert found.explained == pytest.approx(most_explained(rows @ rows.T, met), abs=1e-9)
