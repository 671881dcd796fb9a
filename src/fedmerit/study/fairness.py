"""Fairness of rewards: what clients contributed, against what they got back and how they ended [M2F]."""

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
"""Classes of participation, by how often clients took part; fewer if there are fewer different counts."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """When a client's accuracy reached a level, and its average from then on.

    M2F prints these as "reach 90 %", "convergent iteration" and "average accuracy" [M2F, Tables 2 and 3]; the
    definitions are those that all their rows fit. Note that the average favours clients that converge late.

    Attributes:
        reached: the first round at the level; None if there is none.
        stays: the round from which on it is never below the level again; None if the last round is below it.
        average: the mean accuracy from round `stays` on; None if `stays` is.
    """

    reached: int | None
    stays: int | None
    average: float | None


def convergence(rounds: Sequence[int], curve: Vector, level: float) -> Convergence:
    """When one client's accuracy reached a level for the first time and for good.

    Args:
        rounds: the evaluated rounds.
        curve: its accuracy in each of them; NaN is below any level.
        level: an accuracy, above 0 and up to 1.

    >>> convergence([1, 2, 3, 4], np.array([0.5, 0.9, 0.8, 0.95]), level=0.9)
    Convergence(reached=2, stays=4, average=0.95)
    """
    if not 0 < level <= 1:
        raise ConfigError(f"a level of accuracy lies above 0 and up to 1; got {level}")
    above = curve >= level
    first = int(above.argmax()) if above.any() else None
    below = np.flatnonzero(~above)
    stays = int(below[-1]) + 1 if len(below) else 0
    if first is None or stays == len(curve):
        return Convergence(None if first is None else int(rounds[first]), None, None)
    return Convergence(int(rounds[first]), int(rounds[stays]), float(curve[stays:].mean()))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rho: the correlation of the ranks, over the pairs without NaN.

    NaN where there are fewer than three such pairs, or one side is constant.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.spearmanr(x, y).statistic)


@dataclass(frozen=True, slots=True)
class Account:
    """What one client contributed, what it got back, and how it ended.

    Attributes:
        rounds: rounds it took part in.
        contribution: rows it trained on, over all rounds and epochs.
        rewards: rewards it was sent.
        accepted: how many of them it accepted.
        entries: entries of the model in all its rewards.
        accuracy: its local accuracy at the end.
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
    """The fairness of a run: do clients that contribute more get more?

    Attributes:
        accounts: one per client.
        accuracy: rank correlation of contribution with final accuracy.
        speed: with the round of convergence (fair: negative); a client that did not converge comes last.
        entries: with the entries received in rewards.
        classes: mean final accuracy of clients that took part seldom ... often, by the most rounds of each class.
    """

    accounts: tuple[Account, ...]
    accuracy: float
    speed: float
    entries: float
    classes: Mapping[int, float]

    @property
    def gap(self) -> float:
        """The difference in accuracy between the best and the worst class of participation."""
        values = [value for value in self.classes.values() if not math.isnan(value)]
        return max(values) - min(values) if values else math.nan


def fairness_of(ledger: Ledger, level: float = 0.9) -> Fairness:
    """The fairness of a run; clients converge when their local accuracy stays at or above `level`.

    >>> fairness_of(run.ledger).speed  # doctest: +SKIP
    """
    accounts = _accounts(ledger, level)
    contributions = [account.contribution for account in accounts]
    after_last = ledger.last_round() + 1
    speed = [account.convergence.stays or after_last for account in accounts]
    return Fairness(
        accounts,
        rank_correlation(contributions, [account.accuracy for account in accounts]),
        rank_correlation(contributions, speed),
        rank_correlation(contributions, [account.entries for account in accounts]),
        _classes(accounts),
    )


def _accounts(ledger: Ledger, level: float) -> tuple[Account, ...]:
    rounds, local = ledger.local_accuracy()
    if not rounds:
        raise UserError("the run has no evaluated round yet")
    work, accounts = ledger.work_done(), []
    rewards: dict[ClientId, list[Rewarded]] = {}
    for reward in ledger.rewards():
        rewards.setdefault(reward.client, []).append(reward)
    for client in range(local.shape[1]):
        received = rewards.get(client, [])
        taken_part, trained_rows = work.get(client, (0, 0.0))
        accounts.append(
            Account(
                client,
                taken_part,
                trained_rows,
                len(received),
                sum(reward.accepted for reward in received),
                sum(reward.entries for reward in received),
                float(local[-1, client]),
                convergence(rounds, local[:, client], level),
            )
        )
    return tuple(accounts)


def _classes(accounts: Sequence[Account]) -> dict[int, float]:
    """Mean final accuracy per class of participation: equal counts, or thirds of the clients if there are many."""
    counts = np.array([account.rounds for account in accounts])
    edges = np.unique(counts)
    if len(edges) > CLASSES:
        edges = np.unique(np.quantile(counts, np.arange(1, CLASSES + 1) / CLASSES, method="higher"))
    accuracies, places = np.array([account.accuracy for account in accounts]), np.searchsorted(edges, counts)
    members = {int(edge): accuracies[places == place] for place, edge in enumerate(edges)}
    return {edge: float(np.nanmean(a)) if (~np.isnan(a)).any() else math.nan for edge, a in members.items()}
