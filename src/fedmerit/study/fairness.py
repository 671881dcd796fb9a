"""Fairness of a run: contributions of clients against rewards and final accuracy [M2F]."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from rich.console import RenderableType

from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import ConfigError, UserError
from fedmerit.store.ledger import Ledger, Rewarded
from fedmerit.study.text_table import UNKNOWN, TextTable, number_text

CLASSES = 3
"""Number of participation classes: clients grouped by the number of rounds in which they took part."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """When a client's accuracy reached a level, and its average from then on.

    [M2F, Tables 2 and 3] calls these "reach 90 %", "convergent iteration" and "average accuracy"; these definitions fit
    all rows of the tables. The average favours clients that converge late.

    Attributes:
        reached: the first round at or above the level; else None.
        stays: the round from which on the accuracy stays at or above the level; None if the last round is below it.
        average: the mean accuracy from round `stays` on; None if `stays` is.
    """

    reached: int | None
    stays: int | None
    average: float | None


def convergence(rounds: Sequence[int], curve: Vector, level: float) -> Convergence:
    """Find when a client's accuracy first reached a level, and when it reached it permanently.

    Args:
        rounds: the evaluated rounds.
        curve: the accuracy in each of them; NaN is below any level.
        level: an accuracy, greater than 0 and at most 1.

    >>> convergence([1, 2, 3, 4], np.array([0.5, 0.9, 0.8, 0.95]), level=0.9)
    Convergence(reached=2, stays=4, average=0.95)
    """
    if not 0 < level <= 1:
        raise ConfigError(f"the level of accuracy must be greater than 0 and at most 1 (got {level}). Try 0.9.")
    above = curve >= level
    first = int(above.argmax()) if above.any() else None
    below = np.flatnonzero(~above)
    stays = int(below[-1]) + 1 if len(below) else 0
    if first is None or stays == len(curve):
        return Convergence(None if first is None else int(rounds[first]), None, None)
    return Convergence(int(rounds[first]), int(rounds[stays]), float(curve[stays:].mean()))


def rank_correlation(x: Sequence[float] | Vector, y: Sequence[float] | Vector) -> float:
    """Spearman's rank correlation over the pairs without NaN.

    NaN if there are fewer than three such pairs, or if x or y is constant.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    valid = ~(np.isnan(x) | np.isnan(y))
    x, y = x[valid], y[valid]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.spearmanr(x, y).statistic)


@dataclass(frozen=True, slots=True)
class Account:
    """Contribution, rewards and final accuracy of one client.

    Attributes:
        rounds: number of rounds in which it took part.
        contribution: rows that it trained on, over all rounds and epochs.
        rewards: number of rewards that it received.
        accepted: number of rewards that it accepted.
        entries: number of model entries in all its rewards.
        accuracy: final local accuracy.
        convergence: when its local accuracy reached the level.
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
        speed: rank correlation with the round of convergence (negative is fair); clients that did not converge rank
            last.
        entries: rank correlation with the entries received in rewards.
        classes: mean final accuracy of each participation class, by the largest number of rounds in the class.
    """

    accounts: tuple[Account, ...]
    accuracy: float
    speed: float
    entries: float
    classes: Mapping[int, float]

    @property
    def gap(self) -> float:
        """The difference in accuracy between the best and the worst participation class."""
        values = [value for value in self.classes.values() if not math.isnan(value)]
        return max(values) - min(values) if values else math.nan


def fairness_of(ledger: Ledger, level: float = 0.9) -> Fairness:
    """Compute the fairness of a run; a client has converged when its local accuracy stays at or above `level`.

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
        raise UserError("the run has no evaluated round yet; wait for one, or lower run.evaluate_every")
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
    """Mean final accuracy per participation class: one class per count, or thirds of the clients if counts vary."""
    counts = np.array([account.rounds for account in accounts])
    edges = np.unique(counts)
    if len(edges) > CLASSES:
        edges = np.unique(np.quantile(counts, np.arange(1, CLASSES + 1) / CLASSES, method="higher"))
    accuracies, places = np.array([account.accuracy for account in accounts]), np.searchsorted(edges, counts)
    members = {int(edge): accuracies[places == place] for place, edge in enumerate(edges)}
    known = {edge: values[~np.isnan(values)] for edge, values in members.items()}
    return {edge: float(values.mean()) if len(values) else math.nan for edge, values in known.items()}


def fairness_dict(fairness: Fairness, names: Sequence[str]) -> dict[str, Any]:
    """Convert `Fairness` to plain values for JSON."""
    return {
        "accounts": [asdict(account) | {"name": names[account.client]} for account in fairness.accounts],
        "rank_correlation_of_contribution": {
            "accuracy": fairness.accuracy,
            "round_of_convergence": fairness.speed,
            "entries": fairness.entries,
        },
        "accuracy_by_rounds_taken_part": {str(edge): value for edge, value in fairness.classes.items()},
        "gap": fairness.gap,
    }


def fairness_tables(fairness: Fairness, names: Sequence[str], level: float) -> Iterator[RenderableType]:
    """Make a table with a line per client, the largest contribution first; then sentences over all clients."""
    title = f"contribution (rows x epochs), rewards, and rounds until the accuracy reaches {level:.0%}"
    below = f"stays: the round from which on the accuracy is at least {level:.0%}; average: accuracy from then on"
    header = ("client", "rounds", "rows", "accepted", "entries", "reached", "stays", "average", "final")
    rows = [
        (
            names[account.client],
            str(account.rounds),
            f"{account.contribution:,.0f}",
            f"{account.accepted} of {account.rewards}",
            f"{account.entries:,}",
            str(account.convergence.reached or UNKNOWN),
            str(account.convergence.stays or UNKNOWN),
            number_text(account.convergence.average, 4),
            number_text(account.accuracy, 4),
        )
        for account in sorted(fairness.accounts, key=lambda account: -account.contribution)
    ]
    yield TextTable(title, header, tuple(rows), (below,)).screen()
    yield (
        f"rank correlation of contribution with final accuracy {number_text(fairness.accuracy, 2, '+')}, "
        f"with the round of convergence {number_text(fairness.speed, 2, '+')}, "
        f"with received entries {number_text(fairness.entries, 2, '+')}"
    )
    classes = ", ".join(f"up to {edge} rounds {value:.4f}" for edge, value in fairness.classes.items())
    yield f"mean final accuracy by participation: {classes}; gap {fairness.gap:.4f}"
