"""Rewards: how many entries, which ones, sent and rebuilt exactly, and when a client takes them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import TopShare
from fedmerit.core.models.rewards import Acceptance, Nothing, Whole, entries, top, wrong_reward
from fedmerit.core.types import SparseUpdate
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

many = settings(max_examples=100, deadline=None)
vectors = st.lists(st.integers(-4, 4), min_size=1, max_size=40).map(lambda v: np.array(v, dtype=np.float32))
weightings = st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(any).map(lambda w: np.array(w) / sum(w))


def no_updates(n: int, d: int) -> Updates:
    return Updates(np.zeros((n, d), dtype=np.float32))


def give(
    reward: TopShare | Whole | Nothing, aggregate: np.ndarray, weights: np.ndarray, layers: tuple[int, ...] = ()
) -> list[SparseUpdate]:
    return reward(aggregate, weights, no_updates(len(weights), len(aggregate)), layers or (len(aggregate),))


def rebuilt(part: SparseUpdate, length: int) -> np.ndarray:
    return part.added_to(np.zeros(length, dtype=np.float32))


@many
@given(keys=vectors, data=st.data())
def test_top_is_deterministic_with_ties(keys: np.ndarray, data: st.DataObject):
    number = data.draw(st.integers(0, len(keys)))
    expected = sorted(sorted(range(len(keys)), key=lambda i: (-keys[i], i))[:number])
    assert top(keys, number).tolist() == expected


@many
@given(
    aggregate=vectors,
    weights=weightings,
    share=st.sampled_from(["sum", "max", "tanh"]),
    data=st.data(),
)
def test_laws_of_the_top_share(aggregate, weights, share, data):  # type: ignore[no-untyped-def]
    length = len(aggregate)
    cut = data.draw(st.integers(0, length - 1))
    layers = (cut, length - cut) if cut else (length,)
    parts = give(TopShare(share), aggregate, weights, layers)
    merits = np.tanh(weights) if share == "tanh" else weights
    shares = weights if share == "sum" else merits / merits.max()
    for part, mine in zip(parts, shares, strict=True):
        number = math.ceil(mine * length - 1e-9) if mine > 0 else 0
        assert len(part.values) == min(number, length), "num_i entries, never more"
        assert wrong_reward(part, length) == ""
        whole = rebuilt(part, length)
        places = np.arange(length) if part.places is None else part.places
        assert (whole[places] == aggregate[places]).all(), "sent as index and value, rebuilt exactly"
        assert not np.delete(whole, places).any()
    if share != "sum":
        assert parts[int(weights.argmax())].places is None, "the best gets all"


@many
@given(aggregate=vectors, weights=weightings)
def test_no_entry_left_out_is_larger_than_one_given(aggregate: np.ndarray, weights: np.ndarray):
    for part in give(TopShare(), aggregate, weights):
        if part.places is not None and len(part.places):
            rest = np.delete(np.abs(aggregate), part.places)
            assert rest.max(initial=0) <= np.abs(part.values).min()


def test_layers_each_give_their_part():
    aggregate = np.array([9, 8, 7, 6, 1, 2, 3, 4], dtype=np.float32)
    part = give(TopShare("tanh"), aggregate, np.arctanh([0.9, 0.45]), (4, 4))[1]
    assert part.places.tolist() == [0, 1, 6, 7]
    with pytest.raises(ConfigError, match=r"must sum to 8, the model's \(got 5\)"):
        give(TopShare("tanh"), aggregate, np.array([0.9, 0.5]), (5,))


def test_shares_of_the_paper():
    """Of 20 clients in the mix of [M2F, sec. 5.2] 1 lazy, 3 normal and 8 diligent come; they get 2, 5 and 10 %."""
    rates = np.array([0.2] + [0.5] * 3 + [1.0] * 8)
    parts = give(TopShare(), np.arange(1000, dtype=np.float32), rates / rates.sum())
    assert [round(len(parts[client].values) / 10) for client in (0, 1, 4)] == [2, 5, 10]


def test_entries_rounds_up_but_not_for_rounding_errors():
    assert [entries(share, 100) for share in (0.0, 0.001, 0.1, 0.29, 0.101, 1.0, 1.5)] == [0, 1, 10, 29, 11, 100, 100]


def test_the_whole_for_everybody_and_its_bytes():
    aggregate = np.arange(10, dtype=np.float32)
    whole = give(Whole(), aggregate, np.array([0.9, 0.1]))
    assert [part.nbytes for part in whole] == [40, 40]
    half = give(TopShare(), aggregate, np.array([0.5, 0.5]))
    assert [part.nbytes for part in half] == [40, 40], "an index and a value each"
    assert give(TopShare(), aggregate, np.array([1.0, 0.0]))[1].nbytes == 0


@pytest.mark.parametrize(
    ("before", "after", "sigma", "taken"),
    [
        (0.8, 0.81, 0.0, True),
        (0.8, 0.8, 0.0, False),
        (0.8, 0.8, 0.05, True),
        (0.8, 0.77, 0.05, True),
        (0.8, 0.76, 0.05, False),
        (0.8, 0.0, 2.0, True),
        (0.0, 0.0, 0.0, True),
        (float("nan"), float("nan"), 0.05, True),
    ],
)
def test_acceptance(before: float, after: float, sigma: float, taken: bool):
    assert Acceptance(sigma)(before, after) is taken


def part(values: object, places: object = None, kind: type = np.float32, whole: type = np.uint32) -> SparseUpdate:
    return SparseUpdate(np.array(values, dtype=kind), None if places is None else np.array(places, dtype=whole))


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (part([1, 2], [0, 5]), "must be below 5"),
        (part([1, 2], [-1, 2], whole=np.int64), "must be below 5"),
        (part([1, 2], [3, 1]), "ascending order"),
        (part([1, 2], [1, 1]), "ascending order"),
        (part([1, 2], [0]), "2 values and 1 places"),
        (part([1, 2], [0.5, 1.5], whole=np.float64), "places integer"),
        (part([1, np.nan], [0, 1]), "must be finite"),
        (part([1, np.inf, 0, 0, 0]), "must be finite"),
        (part([1, 2], [0, 1], kind=np.float64), "float32"),
        (part([1, 2, 3]), "has 3 values, but the model has 5"),
        (part([[1], [2]], [[0], [1]]), "float32"),
    ],
)
def test_a_client_refuses_what_does_not_fit(sent: SparseUpdate, says: str):
    assert says in wrong_reward(sent, 5)


def test_good_parts_pass():
    assert wrong_reward(part([]), 0) == ""
    assert wrong_reward(part([], []), 5) == ""
    assert wrong_reward(part([1, 2], [0, 4]), 5) == ""


rewards = st.builds(TopShare, st.sampled_from(["sum", "max", "tanh"]))


@many
@given(reward=rewards, weights=weightings)
def test_shares_rise_with_merit(reward: TopShare, weights: np.ndarray):
    shares = reward.shares(weights)
    order = np.argsort(weights, kind="stable")
    assert (np.diff(shares[order]) >= -1e-12).all(), "monotone in the weight"
    assert (shares <= 1 + 1e-12).all()
    assert not shares[weights == 0].any()
    if reward.share != "sum":
        assert shares.max() == pytest.approx(1), "the best gets all"


def test_shares_of_cgsv_by_hand():
    reputation = np.array([0.5, 0.3, 0.2])
    expected = [1.0, math.tanh(0.3) / math.tanh(0.5), math.tanh(0.2) / math.tanh(0.5)]
    assert TopShare("tanh").shares(reputation).tolist() == pytest.approx(expected)


def test_a_large_sigma_takes_everything_and_nothing_is_not_sent():
    assert [Acceptance(sigma).refuses for sigma in (0.0, 1.0, 2.0)] == [True, True, False]
    assert [part.nbytes for part in give(Nothing(), np.ones(4, np.float32), np.array([1.0, 0.0]))] == [0, 0]
