"""The adaptive clip: the quantile that it finds, the noise that the quantile takes, what the state keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from flwr.supercore.differential_privacy import compute_adaptive_noise_params
from helpers import least_epsilon
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import prioritized
from fedmerit.config.account import epsilon_after
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import settle
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.optimizers import Momentum
from fedmerit.core.server.private_sum import CLIP, Privacy
from fedmerit.core.state import Clock, Settled, State
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

RECIPE = prioritized("DS", normalise="scale", scales={"DS": 1})
NOISES, SIZES = st.floats(0.1, 50), st.floats(0.5, 1e5)


def settled(privacy: Privacy, updates: np.ndarray, parts: Mapping[str, np.ndarray], seed: int = 1) -> Settled:
    facts = tuple({"samples": 1.0} for _ in updates)
    replies = Replies(tuple(range(len(facts))), Updates(updates.astype(np.float32)), facts, {})
    recipe = replace(RECIPE, privacy=privacy, step=Momentum(0.5))
    state = State(np.zeros(updates.shape[1], np.float32), parts)
    return settle(state, recipe, replies, judges=None, clients=20, seed=seed, clock=Clock())  # type: ignore[arg-type]


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


def test_a_round_cuts_by_the_clip_of_the_state_and_leaves_the_next() -> None:
    privacy = Privacy(AdaptiveClip(start=1.0), 1e-9, 1.0, delta=0.01, reproducible=True)
    updates = np.tile([[3.0, 4.0]], (20, 1))
    first = settled(privacy, updates, {})
    assert first.state.model == pytest.approx([0.6, 0.8], rel=1e-4)
    assert first.aggregation.clip == 1.0
    assert set(first.state.parts) == {"momentum", CLIP}
    longer = float(first.state.parts[CLIP][0])
    assert longer == pytest.approx(np.exp(0.1), rel=0.05)  # nobody fits; a little noise on the count
    second = settled(privacy, updates, {CLIP: first.state.parts[CLIP]})
    assert second.aggregation.clip == longer
    assert second.state.model == pytest.approx(longer * np.array([0.6, 0.8]), rel=1e-4)
    empty = settled(privacy, np.empty((0, 2)), {})
    assert float(empty.state.parts[CLIP][0]) > 0, "also where nobody came"


def test_the_quantile_has_noise_of_its_own() -> None:
    real = Privacy(AdaptiveClip(start=1.0), 1.0, 1.0, delta=0.01)
    clips = {float(settled(real, np.ones((3, 2)), {}).state.parts[CLIP][0]) for _ in range(5)}
    assert len(clips) == 5
    made = replace(real, reproducible=True)
    assert len({float(settled(made, np.ones((3, 2)), {}).state.parts[CLIP][0]) for _ in range(3)}) == 1


def test_it_is_kept_as_json_and_checked() -> None:
    private = replace(RECIPE, privacy=Privacy(AdaptiveClip(0.3, 0.7), 1.0, 0.1))
    assert part_from_json(part_to_json(private)) == private
    for keys in ({"start": 0}, {"quantile": 1.0}, {"rate": np.inf}):
        with pytest.raises(ConfigError, match=r"^privacy\."):
            AdaptiveClip(**keys)


def betrayed(rule: AdaptiveClip, privacy: Privacy, clip: float = 1.0, clients: int = 4, trials: int = 2500) -> float:
    """What the sum, the next clip and both together tell of a canary of length C."""
    on_sum, on_count = privacy.sum_noise(clients), AdaptiveClip.count_deviation(privacy.noise, clients)

    def told(norms: np.ndarray, index: int) -> tuple[float, float, float]:
        total = norms.sum() + privacy.noise_on(1, on_sum * clip, 0, index)[0]
        after = float(privacy.next_clip(clip, norms, clients, 0, index)[CLIP][0])
        count = (rule.quantile - np.log(after / clip) / rule.rate - 0.5) * clients
        return total, count, total * clip / (on_sum * clip) ** 2 + 0.5 * count / on_count**2

    without, with_one = (np.array([told(norms, i) for i in range(trials)]) for norms in (np.zeros(0), np.array([clip])))
    return max(least_epsilon(*pair, 1e-5) for pair in zip(without.T, with_one.T, strict=True))


def test_an_attacker_cannot_tell_more_from_sum_and_clip_than_the_account_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = AdaptiveClip(start=1.0, rate=1.0)
    privacy, claimed = Privacy(rule, 2.0, 1.0), epsilon_after(2.0, 1.0, 1, 1e-5)
    assert 0.1 < betrayed(rule, privacy) < claimed, "the attack sees something, and no more than allowed"
    exact = AdaptiveClip.after
    monkeypatch.setattr(AdaptiveClip, "after", lambda self, c, norms, noise, n: exact(self, c, norms, 0.0, n))
    assert betrayed(rule, privacy) > claimed, "a quantile without noise is found out"
