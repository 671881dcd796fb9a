"""The adaptive clip: the quantile that it finds, the noise that the quantile takes, what the state keeps of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.supercore.differential_privacy import compute_adaptive_noise_params
from helpers import CannedFleet, least_epsilon
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import prioritized
from fedmerit.config.privacy import epsilon_after
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.recipes import private
from fedmerit.core.round import aggregate_round
from fedmerit.core.search.search import Candidate
from fedmerit.core.server.optimizers import Momentum
from fedmerit.core.server.private_sum import AdaptiveClip, PrivateSum
from fedmerit.core.server.server import Batch, Server
from fedmerit.core.state import Clock, RoundResult, State, View
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import scale, weigh
from fedmerit.errors import ConfigError

RECIPE = replace(prioritized("DS", normalise=scale({"DS": 1})), server=Server(optimizer=Momentum(0.5)))
NOISES, SIZES = st.floats(0.1, 50), st.floats(0.5, 1e5)


def aggregated(privacy: PrivateSum, updates: np.ndarray, clip: float | None = None) -> RoundResult:
    """A round of a federation of 20 clients whose last one left this clip."""
    facts = tuple({"samples": 1.0} for _ in updates)
    replies = Replies(tuple(range(len(facts))), Updates(updates.astype(np.float32)), facts)
    model, fleet = np.zeros(updates.shape[1], np.float32), CannedFleet(updates, [{}] * 20)
    state = State(model, own={} if clip is None else {"server": {"aggregator": {"clip": clip}}})
    everybody = Assignment((model,), dict.fromkeys(range(20), 0))
    return aggregate_round(state, private(RECIPE, privacy), replies, Host.of(fleet), everybody, 1, Clock())


def next_clip(result: RoundResult) -> float:
    return float(result.state.own["server"]["aggregator"]["clip"])


@given(NOISES, SIZES)
def test_both_releases_together_cost_what_the_noise_says(noise: float, expected: float) -> None:
    on_updates, on_count = AdaptiveClip.noise_on_updates(noise, expected), AdaptiveClip.count_deviation(noise, expected)
    assert 1 / on_updates**2 + 1 / (2 * on_count) ** 2 == pytest.approx(1 / noise**2)
    assert noise <= on_updates <= noise * 1.1548  # at most 2 / sqrt(3) times as much


@given(st.integers(1, 9), st.floats(0.01, 10), st.data())
def test_one_client_moves_the_count_by_half(clients: int, clip: float, data: st.DataObject) -> None:
    norms = np.array(data.draw(st.lists(st.floats(0, 20), min_size=clients, max_size=clients)))
    rule, expected = AdaptiveClip(rate=1.0), 4.0
    with_one, without = (rule.after(clip, some, 0.0, expected) for some in (norms, norms[1:]))
    assert abs(np.log(with_one / without)) <= 0.5 / expected + 1e-12


def test_the_published_rule_by_hand() -> None:
    rule = AdaptiveClip(quantile=0.5, rate=0.2)
    # three of five fit, one client too many came, the noise says -1: share = 1/2 + (0.5 - 1) / 4 = 0.375
    assert rule.after(2.0, np.array([1, 1, 2, 3, 4.0]), -1.0, 4) == pytest.approx(2.0 * np.exp(-0.2 * (0.375 - 0.5)))


def test_the_noise_is_split_as_flower_does() -> None:
    wanted = compute_adaptive_noise_params(1.3, 200, None)
    assert (AdaptiveClip.count_deviation(1.3, 200), AdaptiveClip.noise_on_updates(1.3, 200)) == pytest.approx(wanted)


def test_it_finds_the_quantile() -> None:
    norms, random = np.linspace(1, 9, 400), np.random.default_rng(1)
    for quantile, wanted in ((0.5, 5.0), (0.9, 8.2)):
        rule, clip = AdaptiveClip(0.1, quantile), 0.1
        for _ in range(120):
            clip = rule.after(clip, norms, random.normal(0, 20), 400)
        assert clip == pytest.approx(wanted, rel=0.1)


def test_a_round_clips_by_the_clip_of_the_state_and_leaves_the_next() -> None:
    privacy = PrivateSum(1e-9, 1.0, AdaptiveClip(start=1.0), delta=0.01, reproducible=True)
    updates = np.tile([[3.0, 4.0]], (20, 1))
    first = aggregated(privacy, updates)
    assert first.state.model == pytest.approx([0.6, 0.8], rel=1e-4)
    assert first.moved.numbers == {"clip": 1.0}
    assert set(first.state.own["server"]) == {"aggregator", "optimizer"}
    longer = next_clip(first)
    assert longer == pytest.approx(np.exp(0.1), rel=0.05)  # nobody fits; a little noise on the count
    second = aggregated(privacy, updates, longer)
    assert second.moved.numbers == {"clip": longer}
    assert second.state.model == pytest.approx(longer * np.array([0.6, 0.8]), rel=1e-4)
    assert next_clip(aggregated(privacy, np.empty((0, 2)))) > 0, "also where nobody came"


def test_the_quantile_has_its_own_noise() -> None:
    secret = PrivateSum(1.0, 1.0, AdaptiveClip(start=1.0), delta=0.01)
    for privacy, different in ((secret, 3), (replace(secret, reproducible=True), 1)):
        assert len({next_clip(aggregated(privacy, np.ones((3, 2)))) for _ in range(3)}) == different


def test_it_is_kept_as_json_and_checked() -> None:
    recipe = private(RECIPE, PrivateSum(1.0, 0.1, AdaptiveClip(0.3, 0.7)))
    assert part_from_json(part_to_json(recipe)) == recipe
    with pytest.raises(ConfigError, match="`quantile` of AdaptiveClip must be a number above 0 and below 1"):
        AdaptiveClip(quantile=1.0)


def revealed(privacy: PrivateSum, clip: float = 1.0, clients: int = 4, trials: int = 2500) -> float:
    """What the sum, the next clip and both together reveal of a canary with the norm of the clip."""
    rule = privacy.clip
    on_sum, on_count = privacy.sum_noise(clients), rule.count_deviation(privacy.noise, clients)
    host = Host(CannedFleet(np.zeros((0, 1)), []), tuple("abcd"))
    view = View.of(State(np.zeros(1, np.float32)), host, 0)

    def batch_of(norms: np.ndarray) -> Batch:
        earned = weigh(np.ones((len(norms), 1)), ["DS"], RECIPE.score, RECIPE.normalise) if len(norms) else None
        candidates = (Candidate(RECIPE.weighting, "DS", earned),)
        return Batch(Updates(norms[:, np.newaxis].astype(np.float32)), 0, {"clip": clip}, candidates, view)

    def released(batch: Batch) -> tuple[float, float, float]:
        aggregate = privacy(batch, np.ones(len(batch.updates)))
        total, after = aggregate[0] / privacy.factor(clients), privacy.after(batch, aggregate).own["clip"]
        count = (rule.quantile - np.log(after / clip) / rule.rate - 0.5) * clients
        return total, count, total * clip / (on_sum * clip) ** 2 + 0.5 * count / on_count**2

    batches = batch_of(np.zeros(0)), batch_of(np.array([clip]))
    without, with_one = (np.array([released(batch) for _ in range(trials)]) for batch in batches)
    return max(least_epsilon(*pair, 1e-5) for pair in zip(without.T, with_one.T, strict=True))


def test_sum_and_clip_reveal_no_more_than_the_account_says(monkeypatch: pytest.MonkeyPatch) -> None:
    privacy, claimed = PrivateSum(2.0, 1.0, AdaptiveClip(start=1.0, rate=1.0)), epsilon_after(2.0, 1.0, 1, 1e-5)
    assert 0.1 < revealed(privacy) < claimed, "the attack sees something, and no more than allowed"
    exact = AdaptiveClip.after
    monkeypatch.setattr(AdaptiveClip, "after", lambda self, c, norms, noise, n: exact(self, c, norms, 0.0, n))
    assert revealed(privacy) > claimed, "a quantile without noise is found out"
