"""Fairness of a run: contributions of clients against rewards, final accuracy [M2F] and standalone accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import RenderableType

from fedmerit.core.attacks.answers import FreeRider
from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import ConfigError, UserError
from fedmerit.store.ledger import Ledger, Rewarded
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.contributions import contributions_of
from fedmerit.study.study_folder import RUNS, STUDY, members, read_plan
from fedmerit.study.suspects import planted_attackers
from fedmerit.study.text_table import UNKNOWN, TextTable, number_text

CLASSES = 3
"""Number of participation classes: clients grouped by the number of rounds in which they took part."""
MEASURES = {  # labels of `Gains.measures`
    "pearson": "Pearson, contribution with gain",
    "spearman": "Spearman, contribution with gain",
    "pearson_final": "Pearson, contribution with final accuracy",
    "pearson_standalone": "Pearson, standalone with final accuracy",
    "mean": "mean collaboration gain",
    "spread": "standard deviation of the gain",
    "of_riders": "mean gain of free riders",
}


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
    return _correlation(scipy.stats.spearmanr, x, y)


def correlation(x: Sequence[float] | Vector, y: Sequence[float] | Vector) -> float:
    """Pearson's correlation over the pairs without NaN; NaN as in `rank_correlation`.

    >>> round(correlation([1, 2, 4], [1, 2, 3]), 3)
    0.982
    """
    return _correlation(scipy.stats.pearsonr, x, y)


def _correlation(measure: Callable[..., Any], x: Sequence[float] | Vector, y: Sequence[float] | Vector) -> float:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    valid = ~(np.isnan(x) | np.isnan(y))
    x, y = x[valid], y[valid]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(measure(x, y).statistic)


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
    return {edge: _mean(values) for edge, values in members.items()}


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


@dataclass(frozen=True, slots=True)
class Gains:
    """Contribution, standalone accuracy and final accuracy of each client; NaN for clients without test rows.

    Attributes:
        by: how contribution is measured: a method of `core.contribution`, summed over rounds, or rows x epochs.
        contribution: contribution of each client.
        standalone: accuracy of training alone, with the same number of rounds.
        final: accuracy at the end of the run.
        riders: planted free riders.

    >>> gains = Gains("rows", np.array([1.0, 2, 3]), np.array([0.5, 0.6, 0.7]), np.array([0.6, 0.8, 0.7]), riders=(0,))
    >>> gains.gain.round(2).tolist(), gains.below, round(gains.measures["mean"], 2)
    ([0.1, 0.2, 0.0], (), 0.1)
    """

    by: str
    contribution: Vector
    standalone: Vector
    final: Vector
    riders: tuple[ClientId, ...] = ()

    @property
    def gain(self) -> Vector:
        """Final accuracy minus standalone accuracy."""
        return self.final - self.standalone

    @property
    def below(self) -> tuple[ClientId, ...]:
        """Clients whose final accuracy is below their standalone accuracy."""
        return tuple(np.flatnonzero(self.gain < 0).tolist())

    @property
    def measures(self) -> dict[str, float]:
        """Measures over all clients; NaN if undefined.

        `mean` and `spread` are the mean and the standard deviation of the gains [CYCle], `of_riders` the mean gain of
        planted free riders. `pearson` and `spearman` correlate contribution with gain, `pearson_final` contribution
        with final accuracy, and `pearson_standalone` standalone with final accuracy, which [RFFL] and [CGSV] call
        fairness.
        """
        gains = self.gain[~np.isnan(self.gain)]
        return {
            "pearson": correlation(self.contribution, self.gain),
            "spearman": rank_correlation(self.contribution, self.gain),
            "pearson_final": correlation(self.contribution, self.final),
            "pearson_standalone": correlation(self.standalone, self.final),
            "mean": _mean(gains),
            "spread": float(gains.std()) if len(gains) else math.nan,
            "of_riders": _mean(self.gain[list(self.riders)]),
        }


def gains_of(
    ledger: Ledger, standalone: Ledger, measured: Ledger | None = None, riders: Sequence[ClientId] = ()
) -> Gains:
    """Compute the gains of a run over a standalone run with the same clients and the same number of rounds.

    ledger      the run
    standalone  the run in which each client trained alone
    measured    a run that measured contributions; default: this run, and rows x epochs if it measured none
    riders      planted free riders

    >>> gains_of(run.ledger, alone.ledger).below  # doctest: +SKIP
    """
    names = ledger.names()
    for other in (standalone, measured):
        if other is not None and other.names() != names:
            raise UserError("the runs must have the same clients, and their names differ; give a run of the same task")
    (rounds, final), (rounds_alone, alone) = ledger.local_accuracy(), standalone.local_accuracy()
    if not rounds or not rounds_alone or rounds[-1] != rounds_alone[-1]:
        raise UserError(
            "both runs must have the same number of rounds: the run was last tested after round "
            f"{max(rounds, default=0)}, the standalone run after round {max(rounds_alone, default=0)}"
        )
    by, contribution = _contribution(measured or ledger, len(names))
    return Gains(by, contribution, alone[-1], final[-1], tuple(riders))


def standalone_beside(run: Path) -> Path | None:
    """Find the `standalone` run of the same study with the same seed; else None.

    >>> standalone_beside(Path("runs/alone")) is None
    True
    """
    run = run.resolve()
    folder = run.parent.parent
    if run.parent.name != RUNS or not (folder / STUDY).is_file():
        return None
    runs = members(read_plan(folder), folder)
    seeds = [each.seed for each in runs if each.folder.resolve() == run]
    alone = (each for each in runs if each.config.recipe.name == "standalone" and each.seed in seeds and each.finished)
    return next((each.folder for each in alone), None)


def _contribution(ledger: Ledger, clients: int) -> tuple[str, Vector]:
    """The method and the contribution of each client: measured by the run, else rows x epochs."""
    accounts = contributions_of(ledger)
    if accounts:
        by, totals = next(iter(accounts[0].total)), {account.client: account.total for account in accounts}
        return by, np.array([totals[client][by] if client in totals else np.nan for client in range(clients)])
    work = ledger.work_done()
    return "rows", np.array([work.get(client, (0, 0.0))[1] for client in range(clients)])


def _mean(values: Vector) -> float:
    valid = values[~np.isnan(values)]
    return float(valid.mean()) if len(valid) else math.nan


def read_gains(folder: Path, ledger: Ledger, standalone: Path | None, measured: Path | None) -> Gains | None:
    """Compute the gains of a run in a folder; None if no standalone run is given or in the same study."""
    alone = standalone or standalone_beside(folder)
    if alone is None and measured is not None:
        raise UserError("gains need a standalone run, and none was found; give --standalone DIR")
    if alone is None:
        return None
    attackers = planted_attackers(ledger)
    riders = [
        client
        for client, name in enumerate(ledger.names())
        if name.endswith(" free_rider")
        or ((coalition := attackers.of(client)) is not None and isinstance(coalition.attack, FreeRider))
    ]
    with ExitStack() as stack:
        measured_ledger = stack.enter_context(open_ledger(measured)) if measured else None
        return gains_of(ledger, stack.enter_context(open_ledger(alone)), measured_ledger, riders)


def gains_dict(gains: Gains) -> dict[str, Any]:
    """Convert `Gains` to plain values for JSON."""
    columns = {"contribution": gains.contribution, "standalone": gains.standalone, "final": gains.final}
    return {
        "contribution_by": gains.by,
        **gains.measures,
        "below_standalone": gains.below,
        "free_riders": gains.riders,
        "clients": [dict(zip(columns, map(float, line), strict=True)) for line in zip(*columns.values(), strict=True)],
    }


def gains_tables(gains: Gains, names: Sequence[str]) -> Iterator[RenderableType]:
    """Make a table with a line per client, the largest contribution first; then a table of measures over all."""
    rows = [
        (
            names[client],
            f"{gains.contribution[client]:,.4g}",
            number_text(gains.standalone[client], 4),
            number_text(gains.final[client], 4),
            number_text(gains.gain[client], 4, "+"),
        )
        for client in np.argsort(-gains.contribution, kind="stable")  # NaN last
    ]
    title = f"gains over training alone; contribution by {gains.by}"
    yield TextTable(title, ("client", "contribution", "standalone", "final", "gain"), tuple(rows)).screen()
    measures = [(MEASURES[name], number_text(value, 4, "+")) for name, value in gains.measures.items()]
    below = ", ".join(names[client] for client in gains.below) or "none"
    yield TextTable("", ("measure", "value"), (*measures, ("clients below standalone", below))).screen()
