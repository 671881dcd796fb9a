"""The private aggregate: sensitivity, noise, and what an attacker can tell from it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import least_epsilon
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import CB, DS, Cap, Poisson, Recipe, Uniform, fedavg, prioritized, private, scale
from fedmerit.config.privacy import epsilon_after
from fedmerit.core.host import Host, Release
from fedmerit.core.models.shared import Assignment
from fedmerit.core.parts import ACCOUNTED, PARTS, declared, load_parts
from fedmerit.core.round import aggregate_round
from fedmerit.core.seeds import Draws, generator
from fedmerit.core.server.private_sum import (
    PrivateSum,
    check_selection,
    secret_normals,
    shares_of_the_sum,
)
from fedmerit.core.server.server import Batch
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.state import Clock, History, RoundResult, State, View
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

CLIP = 1.0
SIZES = prioritized(DS, normalise=scale({"DS": 100}))
SCALED = prioritized(DS, CB, normalise=scale({"DS": 100}))
QUIET = PrivateSum(1e-9, 1.0, CLIP, reproducible=True)
"""Next to no noise: what is released is the sum itself."""
ROWS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        arrays(np.float32, (n, 3), elements=st.floats(-50, 50, width=32)),
        arrays(np.float64, (n, 2), elements=st.floats(0, 1)),
    )
)


def host_of(clients: int, **more: Any) -> Host:
    return Host(None, tuple(map(str, range(clients))), **more)  # type: ignore[arg-type]


def result_of(
    recipe: Recipe, updates: np.ndarray, facts: list[dict[str, float]], host: Host | None = None
) -> RoundResult:
    replies = Replies(tuple(range(len(facts))), Updates(updates.astype(np.float32)), tuple(facts), {})
    state = State(np.zeros(updates.shape[1], np.float32))
    return aggregate_round(state, recipe, replies, host or host_of(10), Assignment((state.model,), {}), 0, Clock())


def released(recipe: Recipe, updates: np.ndarray, facts: list[dict[str, float]]) -> np.ndarray:
    return result_of(recipe, updates, facts).state.model.astype(np.float64)


@given(ROWS, st.data())
def test_one_client_moves_the_sum_by_at_most_the_clip(rows: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    updates, degrees = rows
    facts = [{"samples": 1 + 300 * size, "balance": balance} for size, balance in degrees]
    recipe = private(SCALED, QUIET)
    gone = data.draw(st.integers(0, len(facts) - 1))
    left = [place for place in range(len(facts)) if place != gone]
    whole = released(recipe, updates, facts)
    without = released(recipe, updates[left], [facts[place] for place in left])
    moved = np.linalg.norm(whole - without) * 10  # 10 = q K, the fixed denominator
    assert moved <= CLIP * (1 + 1e-4)


load_parts()
GIVEN = {"weights": (0.2, 0.3, 0.5), "shapley": (0.2, 0.3, 0.5), "interaction": ((0, 1, 0.4),)}
SCORES = [kind for kind in PARTS["score"].values() if declared(kind, "gives") == ACCOUNTED]


@pytest.mark.parametrize("kind", SCORES)
def test_no_score_counts_for_more_than_one(kind: type[Any]) -> None:
    needed = {name: value for name, value in GIVEN.items() if name in kind.__dataclass_fields__}
    table = np.random.default_rng(1).random((200, 3))
    shares = shares_of_the_sum(kind(**needed), kind(**needed)(table), 3)
    assert 0 <= shares.min() <= shares.max() <= 1


def test_the_sum_by_hand() -> None:
    recipe, booked = private(SIZES, QUIET), list[Release]()
    updates = np.array([[3.0, 4.0], [0.0, 0.5]])  # the first is five times too long
    facts = [{"samples": 50}, {"samples": 200}]
    # 0.5 * (0.6, 0.8) + 1 * (0, 0.5), over 10 expected clients
    assert released(recipe, updates, facts) == pytest.approx([0.03, 0.09], rel=1e-5)
    capped = private(replace(SIZES, limits=(Cap(2.0),)), QUIET)
    assert released(capped, updates, facts) == pytest.approx([0.06, 0.18], rel=1e-5)
    done = result_of(recipe, updates, facts, host_of(10, book=booked.append))
    notes = {note.kind: note.text for note in done.notes}
    assert notes["clipped"] == "1 of 2 updates were clipped to a norm of 1; their median norm is 2.75"
    assert "the guarantee is void" in notes["privacy-void"]
    assert done.moved.numbers == {"clip": CLIP}
    assert booked == [Release(1, 1e-9, 1.0)]


def test_a_release_is_booked_before_noise_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be booked must not be drawn."""

    def refuse(release: Release) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("fedmerit.core.server.private_sum.secret_normals", lambda length: pytest.fail("drawn"))
    with pytest.raises(OSError, match="disk is full"):
        result_of(private(SIZES, PrivateSum(1.0, 1.0)), np.ones((1, 2)), [{"samples": 1}], host_of(10, book=refuse))


def test_a_round_without_clients_releases_noise_all_the_same() -> None:
    recipe = private(SCALED, PrivateSum(1.0, 0.1, reproducible=True))
    assert np.abs(released(recipe, np.empty((0, 4)), [])).min() > 0


def test_real_noise_is_no_matter_of_the_seed_and_is_normal() -> None:
    real, made = (private(SCALED, PrivateSum(1.0, 0.1, reproducible=again)) for again in (False, True))
    none: Any = np.empty((0, 4))
    assert (released(made, none, []) == released(made, none, [])).all()
    assert (released(real, none, []) != released(real, none, [])).all()
    draws = secret_normals(200_000)
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 0.02
    assert abs(draws.std() - 1) < 0.02
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-6


def test_who_takes_part_is_secret_too() -> None:
    real, made = (Poisson(0.5, secret=secret) for secret in (True, False))
    assert made(1, 100, 7) == made(1, 100, 7)
    assert real(1, 100, 7) != real(1, 100, 7)
    drawn = [len(made(index, 100, 3)) for index in range(200)]
    assert len(set(drawn)) > 5
    assert 48 < np.mean(drawn) < 52


def attack(mechanism: Callable[[np.ndarray, list[dict[str, float]]], float], trials: int = 2500) -> float:
    """A canary of norm C and score 1 beside nine clients that count for little; epsilon that the answers betray."""
    others, canary = np.zeros((9, 2)), np.array([[CLIP, 0.0]])
    facts = [{"samples": 1.0}] * 9
    without = np.array([mechanism(others, facts) for _ in range(trials)])
    with_one = np.array([mechanism(np.vstack([canary, others]), [{"samples": 100.0}, *facts]) for _ in range(trials)])
    return least_epsilon(without, with_one, 1e-5)


NOISE = 2.0
CLAIM = 2.3
"""At most what one round of noise 2 costs at delta 1e-5, every client taking part."""


def test_an_attacker_cannot_tell_more_than_the_account_says() -> None:
    claimed = epsilon_after(NOISE, 1.0, 1, 1e-5)
    assert claimed < CLAIM
    recipe = private(SIZES, PrivateSum(NOISE, 1.0, CLIP, delta=1e-5))
    betrayed = attack(lambda updates, facts: float(released(recipe, updates, facts)[0]))
    assert 0.1 < betrayed < claimed, "the attack sees something, and no more than allowed"


def test_the_attack_catches_weights_that_are_shares_of_a_sum() -> None:
    """Noise for 1 / n, and weights by the round's sum: one client can hold nearly all, and is found."""
    recipe, random = fedavg(), np.random.default_rng(3)

    def broken(updates: np.ndarray, facts: list[dict[str, float]]) -> float:
        mean = released(recipe, updates, facts)[0]
        return float(mean + random.normal(0, NOISE * CLIP / len(facts)))

    assert attack(broken) > CLAIM


def test_an_update_as_long_as_the_clip_is_not_shortened_and_a_score_of_nothing_counts_for_nothing() -> None:
    facts = [{"samples": 100}] * 2
    kinds = {note.kind for note in result_of(private(SIZES, QUIET), np.array([[1.0, 0.0], [0.0, 0.5]]), facts).notes}
    assert "clipped" not in kinds
    real = private(SIZES, replace(QUIET, reproducible=False))
    assert "privacy-void" not in {note.kind for note in result_of(real, np.array([[1.0, 0.0]]), facts[:1]).notes}
    assert shares_of_the_sum(lambda table: np.zeros(len(table)), np.zeros(2), 1).tolist() == [0, 0]
    assert clip_factors(np.array([1.0, 2.0, 0.0]), 2.0).tolist() == [1, 1, 1]


def test_what_the_sum_is_divided_by() -> None:
    privacy = PrivateSum(3.0, 0.5, clip=2.0)
    capped = replace(privacy, max_weight=2.0)
    assert (privacy.factor(10), capped.factor(10)) == (0.2, 0.4)
    assert capped.deviation(10) == pytest.approx(3 * 2 * 0.4)


def test_noise_of_the_seed_is_added_as_it_was_drawn() -> None:
    """A release is its sum and the draw of its round: the same bits in every version."""
    privacy = PrivateSum(1.5, 0.5, 2.0, delta=1e-3, reproducible=True)
    view = View(4, np.zeros(1, np.float32), History(rounds=3), host_of(20), Draws(3, 4))
    batch = Batch(Updates(np.array([[0.5], [2.0], [3.0]], np.float32)), view.draws.run_seed, view=view)
    drawn = float(generator(3, "privacy", 4).normal(0.0, 1.0, 1)[0])
    assert privacy(batch, np.zeros(3)) == pytest.approx(
        [privacy.deviation(20) * drawn]
    )  # nobody is weighed: noise alone


def test_secret_draws_are_as_many_as_were_asked_for() -> None:
    assert [len(secret_normals(number)) for number in (0, 1, 7, 8)] == [0, 1, 7, 8]


def test_the_delta_is_at_most_one_client_in_all() -> None:
    privacy = PrivateSum(1.0, 0.5, CLIP, delta=0.125)
    check_selection(privacy, Poisson(0.5), 8)
    for selection, clients, words in (
        (Poisson(0.5), 9, "at most 1 / clients = 0.111 .* set privacy.delta = 0.01 or less"),
        (Poisson(0.25), 8, "a fraction of 0.5, and 0.25 of the clients are drawn"),
        (Uniform(0.5), 8, "take part independently"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_selection(privacy, selection, clients)


def test_all_bits_0_or_all_1_are_finite_draws(monkeypatch: pytest.MonkeyPatch):
    for byte in (b"\x00", b"\xff"):
        monkeypatch.setattr("os.urandom", lambda length, byte=byte: byte * length)
        assert np.isfinite(secret_normals(3)).all()


def test_a_cap_becomes_the_largest_weight_of_the_noisy_sum():
    capped = replace(prioritized(CB, normalise="none"), limits=(Cap(3.0),))
    made = private(capped, PrivateSum(1.0, 0.5))
    assert (made.server.aggregator.max_weight, made.limits) == (3.0, ())  # type: ignore[attr-defined]
