"""Fairness of rewards: what clients put in, against what came of it for them (SPEC A3, A7, B 26)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import ConfigError, UserError
from fedmerit.store.ledger import Ledger, Rewarded

CLASSES = 3
"""Into so many classes clients are put by how often they took part, unless they fall into fewer by themselves."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """How a client's accuracy came up to a level: first at it, at it for good, and its average from then on.

    These are M2F's columns as all rows of its tables fit them (SPEC A3): "reach 90 %", "convergent iteration" and
    "average accuracy". None where it never was, or did not stay. The average favours who comes late (SPEC B 28).
    """

    reached: int | None
    stays: int | None
    average: float | None


def convergence(rounds: Sequence[int], curve: Vector, level: float) -> Convergence:
    """Of one client's accuracies in these rounds; NaN is below any level."""
    if not 0 < level <= 1:
        raise ConfigError(f"a level of accuracy lies above 0 and up to 1; got {level}")
    above = curve >= level
    first = int(above.argmax()) if above.any() else None
    fallen = np.flatnonzero(~above)
    stays = int(fallen[-1]) + 1 if len(fallen) else 0
    if first is None or stays == len(curve):
        return Convergence(None if first is None else int(rounds[first]), None, None)
    return Convergence(int(rounds[first]), int(rounds[stays]), float(curve[stays:].mean()))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rho over the pairs that are known; NaN where fewer than three are, or one side is constant."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.spearmanr(x, y).statistic)


@dataclass(frozen=True, slots=True)
class Account:
    """One client: rounds taken part in, rows worked through (its contribution), what it got back, how it ended.

    `entries` are the entries of all its rewards, `accepted` how many of its `rewards` it took.
    """

    client: ClientId
    rounds: int
    contribution: float
    rewards: int
    accepted: int
    entries: int
    accuracy: float
    convergence: Convergence


@dataclass(frozen=True, slots=True)
class Fairness:
    """All clients' accounts, and what they say together.

    Rank correlations of contribution: with final accuracy, with the round of convergence (fair: negative; who did not
    converge counts as last) and with entries received. `classes` is the mean final accuracy of clients that took part
    seldom ... often, by the most rounds of each class.
    """

    accounts: tuple[Account, ...]
    accuracy: float
    speed: float
    entries: float
    classes: Mapping[int, float]

    @property
    def gap(self) -> float:
        """The accuracy between the best and the worst class of participation."""
        values = [value for value in self.classes.values() if not math.isnan(value)]
        return max(values) - min(values) if values else math.nan


def fairness_of(ledger: Ledger, level: float = 0.9) -> Fairness:
    """Of a run, with convergence to this level of local accuracy."""
    accounts = _accounts(ledger, level)
    put_in = [account.contribution for account in accounts]
    last = ledger.last_round() + 1
    speed = [account.convergence.stays or last for account in accounts]
    return Fairness(
        accounts,
        rank_correlation(put_in, [account.accuracy for account in accounts]),
        rank_correlation(put_in, speed),
        rank_correlation(put_in, [account.entries for account in accounts]),
        _classes(accounts),
    )


def _accounts(ledger: Ledger, level: float) -> tuple[Account, ...]:
    rounds, local = ledger.local_accuracy()
    if not rounds:
        raise UserError("the run has no evaluated round yet")
    contributions, accounts = ledger.contributions(), []
    rewards: dict[ClientId, list[Rewarded]] = {}
    for reward in ledger.rewards():
        rewards.setdefault(reward.client, []).append(reward)
    for client in range(local.shape[1]):
        mine = rewards.get(client, [])
        taken, rows = contributions.get(client, (0, 0.0))
        accounts.append(
            Account(
                client,
                taken,
                rows,
                len(mine),
                sum(reward.accepted for reward in mine),
                sum(reward.entries for reward in mine),
                float(local[-1, client]),
                convergence(rounds, local[:, client], level),
            )
        )
    return tuple(accounts)


def _classes(accounts: Sequence[Account]) -> dict[int, float]:
    """Mean final accuracy per class of participation: equal counts, or thirds of the clients where these are many."""
    counts = np.array([account.rounds for account in accounts])
    edges = np.unique(counts)
    if len(edges) > CLASSES:
        edges = np.unique(np.quantile(counts, np.arange(1, CLASSES + 1) / CLASSES, method="higher"))
    accuracies, places = np.array([account.accuracy for account in accounts]), np.searchsorted(edges, counts)
    means = {int(edge): accuracies[places == place] for place, edge in enumerate(edges)}
    return {edge: float(np.nanmean(v)) if (~np.isnan(v)).any() else math.nan for edge, v in means.items()}
