"""The account against dp-accounting called by hand, a closed form, a published table and Flower's own accountant."""

import builtins
import math
from typing import Any

import dp_accounting
import pytest
from dp_accounting import rdp
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from fedmerit.config.privacy import epsilon_after, noise_for, require_account
from fedmerit.errors import ConfigError

SETTINGS = [
    (0.7, 0.01, 100, 1e-5),
    (0.7, 0.1, 10, 1e-3),
    (1.0, 0.01, 1000, 1e-5),
    (1.0, 0.05, 100, 1e-6),
    (1.0, 1.0, 1, 1e-5),
    (1.1, 0.1, 20, 1e-5),
    (1.1, 0.01, 2000, 1e-6),
    (2.0, 0.3, 50, 1e-4),
    (2.0, 1.0, 10, 1e-2),
    (4.0, 0.01, 100, 1e-5),
    (4.0, 0.5, 30, 1e-3),
    (8.0, 1.0, 100, 1e-5),
]
PUBLISHED = [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)]
"""TensorFlow Privacy's tutorial on MNIST, 256 of 60,000 rows a step, delta 1e-5: noise, epochs, epsilon."""


def sampled(noise: float, fraction: float) -> Any:
    return dp_accounting.PoissonSampledDpEvent(fraction, dp_accounting.GaussianDpEvent(noise))


@pytest.mark.parametrize(("noise", "fraction", "rounds", "delta"), SETTINGS)
def test_epsilon_is_dp_accountings_own(noise: float, fraction: float, rounds: int, delta: float) -> None:
    direct = rdp.RdpAccountant().compose(sampled(noise, fraction), rounds).get_epsilon(delta)
    assert epsilon_after(noise, fraction, rounds, delta) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize(("noise", "fraction", "rounds", "delta"), SETTINGS[5:8])
def test_epsilon_is_that_of_flowers_accountant(noise: float, fraction: float, rounds: int, delta: float) -> None:
    config = PrivacyConfig(
        target_delta=delta,
        population_size=1000,
        sampling_method=SamplingMethod.POISSON,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    flower = RdpAccountant(config)
    flower.compose(GaussianPrivacyEvent(noise, round(1000 * fraction), 1000), rounds)
    assert epsilon_after(noise, fraction, rounds, delta) == pytest.approx(flower.get_epsilon(delta), rel=1e-9)


def renyi(order: int, noise: float, fraction: float) -> float:
    """The Renyi divergence of a Poisson-sampled Gaussian at a whole order: the binomial sum."""
    terms = [
        math.log(math.comb(order, k))
        + (order - k) * math.log1p(-fraction)
        + k * math.log(fraction)
        + k * (k - 1) / (2 * noise**2)
        for k in range(order + 1)
    ]
    top = max(terms)
    return (top + math.log(sum(math.exp(term - top) for term in terms))) / (order - 1)


@pytest.mark.parametrize(("noise", "epochs", "published"), PUBLISHED)
def test_epsilon_agrees_with_a_published_table(noise: float, epochs: int, published: float) -> None:
    fraction, steps, delta, orders = 256 / 60_000, epochs * 60_000 // 256, 1e-5, range(2, 64)
    spent = {order: steps * renyi(order, noise, fraction) for order in orders}
    classic = min(spent[a] + math.log(1 / delta) / (a - 1) for a in orders)  # the conversion of that table's day
    tighter = min(spent[a] + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in orders)
    assert classic == pytest.approx(published, rel=0.03)
    assert epsilon_after(noise, fraction, steps, delta) == pytest.approx(tighter, rel=0.03)
    assert epsilon_after(noise, fraction, steps, delta) < published


def test_the_noise_for_a_target_reaches_it_and_hardly_more() -> None:
    noise = noise_for(4.0, 1e-5, 0.1, 50)
    assert 3.9 < epsilon_after(noise, 0.1, 50) <= 4.0
    with pytest.raises(ConfigError, match="no noise multiplier up to 1e\\+06 reaches epsilon 1e-09"):
        noise_for(1e-9, 1e-5, 1.0, 1000)


def test_without_the_library_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"needs dp-accounting .*pip install dp-accounting"):
        require_account()
