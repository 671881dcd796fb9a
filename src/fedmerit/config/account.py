"""The account: what a private run costs, by Google's dp-accounting, and the noise that a target asks for.

A round is a Poisson-sampled Gaussian mechanism, and neighbours are federations with one client more or less.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from fedmerit.core.host import Release
from fedmerit.core.server.private_sum import Accountant, PrivateSum
from fedmerit.errors import ConfigError

WIDEST = 1e6
"""A target that needs a larger noise multiplier is out of reach."""
PRECISION = 1e-3
Rounds: TypeAlias = tuple[tuple[float, float, int], ...]
"""(noise multiplier, fraction, how many rounds), one entry for each kind of round."""


def require_account() -> Any:
    """dp-accounting, or an error that names the extra where it is missing: before a run, not within it."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "the account of [privacy] needs dp-accounting; install it with: pip install 'fedmerit[privacy]'"
        ) from None
    logging.getLogger("absl").setLevel(logging.ERROR)  # it logs the orders that it leaves out: always the safe side
    return dp_accounting


@lru_cache(maxsize=512)
def _epsilon(rounds: Rounds, delta: float, accountant: Accountant) -> float:
    """Epsilon at delta of rounds together; neighbours differ in one client, added or removed."""
    library = require_account()
    from dp_accounting import pld, rdp

    add_or_remove = library.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = (
        rdp.RdpAccountant(neighboring_relation=add_or_remove)
        if accountant == "rdp"
        else pld.PLDAccountant(add_or_remove)
    )
    for noise, fraction, times in rounds:
        account.compose(library.PoissonSampledDpEvent(fraction, library.GaussianDpEvent(noise)), times)
    return float(account.get_epsilon(delta))


def epsilon_after(
    noise: float, fraction: float, rounds: int, delta: float = 1e-5, accountant: Accountant = "rdp"
) -> float:
    """Epsilon at delta after this many rounds.

    >>> round(epsilon_after(noise=1.1, fraction=0.01, rounds=1000, delta=1e-5), 2)
    1.71
    """
    return _epsilon(((noise, fraction, rounds),), delta, accountant)


@lru_cache(maxsize=64)
def noise_for(epsilon: float, delta: float, fraction: float, rounds: int, accountant: Accountant = "rdp") -> float:
    """The least noise multiplier, up to a thousandth, whose epsilon after all rounds is not above the target.

    >>> noise = noise_for(epsilon=2.0, delta=1e-5, fraction=0.1, rounds=20)
    >>> epsilon_after(noise, 0.1, 20) <= 2.0 < epsilon_after(noise - 0.002, 0.1, 20)
    True
    """
    low, high = 0.0, 1.0
    while epsilon_after(high, fraction, rounds, delta, accountant) > epsilon:
        low, high = high, 2 * high
        if high > WIDEST:
            raise ConfigError(
                f"no noise up to {WIDEST:g} times the clip gives epsilon {epsilon:g} at delta {delta:g} after {rounds} "
                "rounds; ask for a larger epsilon, fewer rounds or a smaller run.fraction"
            )
    while high - low > PRECISION:
        middle = (low + high) / 2
        enough = epsilon_after(middle, fraction, rounds, delta, accountant) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def epsilon_of_releases(privacy: PrivateSum, releases: Sequence[Release]) -> float:
    """Epsilon of everything that a run released, repeated rounds included.

    >>> from fedmerit.core.server.private_sum import PrivateSum
    >>> release = Release(1, 1.1, 0.01)
    >>> round(epsilon_of_releases(PrivateSum(1.1, 0.01), [release] * 1000), 2)
    1.71
    """
    counted = sorted(Counter((one.multiplier, one.fraction) for one in releases).items())
    rounds = tuple((noise, fraction, times) for (noise, fraction), times in counted)
    return _epsilon(rounds, privacy.delta, privacy.accountant)
