"""The private aggregate: its sensitivity, what an attacker can tell from it, and what it refuses."""

from __future__ import annotations

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

from fedmerit import adaptive, device_aware, fedavg, fedval, m2f, prioritized
from fedmerit.config.account import epsilon_after
from fedmerit.core.collect.selection import Poisson, Uniform
from fedmerit.core.criteria.client_fact import OwnFact
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.table import CB, COMPUTATION, DATA_RATIO, DS, LD, MW, Agnostic, Validated
from fedmerit.core.objectives import find_objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import settle
from fedmerit.core.search.search import Weighting
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.seeds import generator
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.aggregators import CoordinateMedian
from fedmerit.core.server.centring import feature_sums
from fedmerit.core.server.optimizers import Extrapolated, Momentum
from fedmerit.core.server.private_centring import CentreNoise
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.server.private_sum import Privacy, check_selection, clip_factors, secret_normals, shares_of_the_sum
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.state import Clock, Settled, State
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.ranking import Ranked
from fedmerit.core.weights.scores import PLAIN, Prioritized, Product
from fedmerit.errors import ConfigError

CLIP = 1.0
SCALED = prioritized(DS, CB, normalise="scale", scales={"DS": 100})
QUIET = Privacy(CLIP, 1e-9, 1.0, reproducible=True)
"""Next to no noise: what is released is the sum itself."""
ROWS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        arrays(np.float32, (n, 3), elements=st.floats(-50, 50, width=32)),
        arrays(np.float64, (n, 2), elements=st.floats(0, 1)),
    )
)


def settled(
    recipe: Recipe, updates: np.ndarray, facts: list[dict[str, float]], seed: int = 0, clients: int = 10
) -> Settled:
    replies = Replies(tuple(range(len(facts))), Updates(updates.astype(np.float32)), tuple(facts), {})
    state = State(np.zeros(updates.shape[1], np.float32))
    return settle(state, recipe, replies, judges=None, clients=clients, seed=seed, clock=Clock())  # type: ignore[arg-type]


def released(recipe: Recipe, updates: np.ndarray, facts: list[dict[str, float]], **more: int) -> np.ndarray:
    return settled(recipe, updates, facts, **more).state.model.astype(np.float64)


@given(ROWS, st.data())
def test_one_client_moves_the_sum_by_at_most_the_clip(rows: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    updates, degrees = rows
    facts = [{"samples": 1 + 300 * size, "balance": balance} for size, balance in degrees]
    recipe = replace(SCALED, privacy=QUIET)
    gone = data.draw(st.integers(0, len(facts) - 1))
    left = [place for place in range(len(facts)) if place != gone]
    whole = released(recipe, updates, facts)
    without = released(recipe, updates[left], [facts[place] for place in left])
    moved = np.linalg.norm(whole - without) * 10  # 10 = q K, the fixed denominator
    assert moved <= CLIP * (1 + 1e-4)


@pytest.mark.parametrize("name", PLAIN)
def test_no_score_counts_for_more_than_one(name: str) -> None:
    score = PLAIN[name][0]() if isinstance(PLAIN[name][0], type) else PLAIN[name][0]
    table = np.random.default_rng(1).random((200, 3))
    assert 0 <= shares_of_the_sum(score, score(table), 3).min() <= shares_of_the_sum(score, score(table), 3).max() <= 1


def test_the_sum_by_hand() -> None:
    recipe = replace(prioritized(DS, normalise="scale", scales={"DS": 100}), privacy=QUIET)
    updates = np.array([[3.0, 4.0], [0.0, 0.5]])  # the first is five times too long
    facts = [{"samples": 50}, {"samples": 200}]
    # 0.5 * (0.6, 0.8) + 1 * (0, 0.5), over 10 expected clients
    assert released(recipe, updates, facts) == pytest.approx([0.03, 0.09], rel=1e-5)
    assert released(replace(recipe, cap=2.0), updates, facts) == pytest.approx([0.06, 0.18], rel=1e-5)
    notes = {note.kind: note.text for note in settled(recipe, updates, facts).notes}
    assert notes["clipped"] == "the clip of 1 shortened 1 of 2 updates; their median length is 2.75"
    assert "the guarantee is void" in notes["privacy-void"]


def test_a_round_without_clients_releases_noise_all_the_same() -> None:
    recipe = replace(SCALED, privacy=Privacy(CLIP, 1.0, 0.1, reproducible=True))
    assert np.abs(released(recipe, np.empty((0, 4)), [])).min() > 0


def test_real_noise_is_no_matter_of_the_seed_and_is_normal() -> None:
    real, made = (replace(SCALED, privacy=Privacy(CLIP, 1.0, 0.1, reproducible=again)) for again in (False, True))
    none: Any = np.empty((0, 4))
    assert (released(made, none, []) == released(made, none, [])).all()
    assert (released(real, none, []) != released(real, none, [])).all()
    draws = secret_normals(200_000)
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 0.02
    assert abs(draws.std() - 1) < 0.02
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-6


def test_who_takes_part_is_secret_too() -> None:
    real = Privacy(CLIP, 1.0, 0.5)
    assert real.selection_seed(7) != real.selection_seed(7)
    assert replace(real, reproducible=True).selection_seed(7) == 7
    drawn = [len(Poisson(0.5)(index, 100, 3)) for index in range(200)]
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
    recipe = replace(
        prioritized(DS, normalise="scale", scales={"DS": 100}), privacy=Privacy(CLIP, NOISE, 1.0, delta=1e-5)
    )
    betrayed = attack(lambda updates, facts: float(released(recipe, updates, facts)[0]))
    assert 0.1 < betrayed < claimed, "the attack sees something, and no more than allowed"


def test_the_attack_catches_weights_that_are_shares_of_a_sum() -> None:
    """Noise for 1 / n, and weights by the round's sum: one client can hold nearly all, and is found."""
    recipe, random = fedavg(), np.random.default_rng(3)

    def broken(updates: np.ndarray, facts: list[dict[str, float]]) -> float:
        mean = released(recipe, updates, facts)[0]
        return float(mean + random.normal(0, NOISE * CLIP / len(facts)))

    assert attack(broken) > CLAIM


class Quiet:
    """A search of a user's own that asks nobody, and weighs by shares of the round."""

    asks, judges, tolerance = None, None, 0.0

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        return (own, Weighting(own.priority, own.score, "sum"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fedavg, 'normalise "sum" divides by what other clients have'),
        (lambda: prioritized(DS, LD, normalise="max"), 'normalise "max" divides'),
        (lambda: prioritized(DS, normalise="minmax"), 'use recipe.normalise = "scale" with recipe.scales'),
        (lambda: prioritized(CB, DATA_RATIO, normalise="none"), "DataRatio compares clients"),
        (
            lambda: prioritized(COMPUTATION, normalise="scale", scales={"Computation": 9}),
            "Computation compares clients",
        ),
        (lambda: prioritized(Agnostic(), normalise="none"), "Agnostic compares clients"),
        (lambda: prioritized(Consistency(), normalise="none"), "Consistency compares clients"),
        (lambda: prioritized(OwnFact("age", less=True), normalise="none"), "compares clients"),
        (lambda: prioritized(Reputation(MW), normalise="none"), "reputation:MW compares clients"),
        (lambda: prioritized(CB, score=Ranked(Product(), "borda"), normalise="none"), "ranks clients"),
        (lambda: prioritized(CB, score=lambda table: table[:, 0], normalise="none"), "no known largest value"),
        (m2f, "groups and personal rewards"),
        (lambda: device_aware(CB, MW, normalise="none"), "its search weighs in several ways"),
        (lambda: replace(SCALED, search=Quiet()), "use a fixed order"),
        (lambda: adaptive(CB, normalise="none"), "their answers are not noised; give them a part of the budget"),
        (lambda: fedval("accuracy", rank="borda"), "ranks clients"),
        (lambda: replace(SCALED, search=BoldestFirst(among="orders", count="mean")), "weighs in several ways"),
        (
            lambda: replace(prioritized(Validated(find_objective("accuracy")), normalise="none"), rho="1/K"),
            "depends on how many clients came",
        ),
        (lambda: replace(SCALED, claims=Claims()), "leave recipe.claims out"),
        (lambda: replace(SCALED, cap_group=0.5), "leave cap_group out"),
        (lambda: replace(SCALED, step=Extrapolated()), "lengths of the updates themselves"),
        (lambda: replace(SCALED, aggregate=CoordinateMedian()), "the account is of a sum"),
        (lambda: replace(SCALED, clip=Clip()), "privacy.clip alone is in the account"),
        (lambda: replace(SCALED, initial=0.1), "initial phase averages models without noise"),
    ],
)
def test_what_the_account_does_not_cover_is_refused(make: Callable[[], Recipe], reason: str) -> None:
    with pytest.raises(ConfigError, match=r"\[privacy\] does not go with this recipe: ") as caught:
        replace(make(), privacy=Privacy(CLIP, 1.0, 0.1))
    assert reason in str(caught.value)


def test_steps_that_go_by_the_noisy_aggregate_alone_are_allowed() -> None:
    private = replace(SCALED, step=Momentum(0.9), privacy=Privacy(CLIP, 1.0, 0.1))
    replace(prioritized(OwnFact("age", inside=(20, 35)), normalise="none"), privacy=private.privacy)
    assert part_from_json(part_to_json(private)) == private
    assert shares_of_the_sum(Prioritized(), np.array([1.0]), 2).tolist() == [0.5]
    assert clip_factors(np.array([0.0]), 1.0).tolist() == [1.0]


@pytest.mark.parametrize(
    "keys",
    [{"clip": 0}, {"clip": np.inf}, {"noise": 0}, {"noise": np.nan}, {"fraction": 0}, {"fraction": 1.5}, {"delta": 0}],
)
def test_numbers_out_of_range_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Privacy(**{"clip": 1.0, "noise": 1.0, "fraction": 0.1} | keys)


def test_an_update_as_long_as_the_clip_is_not_shortened_and_a_score_of_nothing_counts_for_nothing() -> None:
    recipe = replace(prioritized(DS, normalise="scale", scales={"DS": 100}), privacy=QUIET)
    facts = [{"samples": 100}] * 2
    kinds = {note.kind for note in settled(recipe, np.array([[1.0, 0.0], [0.0, 0.5]]), facts).notes}
    assert "clipped" not in kinds
    real = replace(recipe, privacy=replace(QUIET, reproducible=False))
    assert "privacy-void" not in {note.kind for note in settled(real, np.array([[1.0, 0.0]]), facts[:1]).notes}
    nothing = shares_of_the_sum(lambda table: np.zeros(len(table)), np.zeros(2), 1)
    assert nothing.tolist() == [0, 0]
    assert clip_factors(np.array([1.0, 2.0, 0.0]), 2.0).tolist() == [1, 1, 1]


def test_what_the_sum_is_divided_by() -> None:
    privacy = Privacy(2.0, 3.0, 0.5)
    assert (privacy.factor(10, None), privacy.factor(10, 2.0)) == (0.2, 0.4)
    assert privacy.deviation(10, 2.0) == pytest.approx(3 * 2 * 0.4)
    assert (privacy.sum_noise(10), privacy.clip_in({})) == (3, 2)
    assert privacy.next_clip(2.0, np.ones(3), 10, 0, 1) == {}


def test_half_of_200_clients_are_as_all_of_100() -> None:
    """Noise goes by the number of clients that a round expects."""
    half = Privacy(AdaptiveClip(), 1.0, 0.5, delta=1e-3, reproducible=True, search=SearchNoise(0.1))
    all_of = replace(half, fraction=1.0)
    assert half.sum_noise(200) == all_of.sum_noise(100) != all_of.sum_noise(200)
    assert replace(half, search=None).sum_noise(200) == AdaptiveClip.noise_on_updates(1.0, 100)
    norms, gains = np.array([0.5, 2.0, 3.0]), np.array([[0.1, 0.2], [0.3, -0.1]])
    assert half.next_clip(1.0, norms, 200, 3, 4) == all_of.next_clip(1.0, norms, 100, 3, 4)
    assert half.next_clip(1.0, norms, 200, 3, 4) != all_of.next_clip(1.0, norms, 200, 3, 4)
    assert half.noisy_gains(gains, 200, 3, 4).tolist() == all_of.noisy_gains(gains, 100, 3, 4).tolist()


def test_noise_of_the_seed_is_added_as_it_was_drawn() -> None:
    """Every release is its sum and the draw of its own purpose, round by round: the same bits in every version."""
    search, centre = SearchNoise(0.25, clip=2.0), CentreNoise(3.0, clip=0.5)
    privacy = Privacy(AdaptiveClip(), 1.5, 0.5, delta=1e-3, reproducible=True, search=search, centre=centre)

    def drawn(purpose: str, number: int, index: int = 4) -> np.ndarray:
        return generator(3, purpose, index).normal(0.0, 1.0, number)

    gains = np.array([[0.1, 0.2], [0.3, -0.1]])
    noisy = (gains.sum(axis=0) + 1.5 / np.sqrt(0.25) * 2.0 * drawn("privacy gains", 2)) / (0.5 * 20)
    assert privacy.noisy_gains(gains, 20, 3, 4) == pytest.approx(noisy)
    assert privacy.noise_on(5, 2.0, 3, 4) == pytest.approx(2.0 * drawn("privacy", 5))
    clip, norms = AdaptiveClip(), np.array([0.5, 2.0, 3.0])
    count = float(drawn("privacy quantile", 1)[0]) * clip.count_deviation(search.on_updates(1.5), 10.0)
    kept = privacy.next_clip(1.0, norms, 20, 3, 4)["clip"]
    assert kept == pytest.approx([clip.after(1.0, norms, count, 10.0)])
    assert privacy.clip_in({"clip": kept}) == kept[0]
    sums = {client: feature_sums(np.array(rows)) for client, rows in ((2, [[0.3, 0.4]]), (5, [[0.0, 0.4], [0.2, 0.0]]))}
    told = privacy.make_centring(20, 3)(sums, "mean").mean
    assert told == pytest.approx((centre.total(sums) + 3.0 * 0.5 * drawn("privacy centre", 2, 0)) / 20)


def test_secret_draws_are_as_many_as_were_asked_for() -> None:
    assert [len(secret_normals(number)) for number in (0, 1, 7, 8)] == [0, 1, 7, 8]


def test_the_delta_is_at_most_one_client_in_all() -> None:
    privacy = Privacy(CLIP, 1.0, 0.5, delta=0.125)
    check_selection(privacy, Poisson(0.5), 8)
    for selection, clients, words in (
        (Poisson(0.5), 9, "at most 1 / clients = 0.111: .* set privacy.delta = 0.01 or less"),
        (Poisson(0.25), 8, "a fraction of 0.5, and 0.25 of the clients are drawn"),
        (Uniform(0.5), 8, "each by a chance of its own"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_selection(privacy, selection, clients)
