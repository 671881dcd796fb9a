"""Fairness: what clients contributed, against what they got back, how they ended [M2F] and what they had alone."""

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

from fedmerit.core.attacks import FreeRider
from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import ConfigError, UserError
from fedmerit.store.ledger import Ledger, Rewarded
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.contributions import contributions_of
from fedmerit.study.study_folder import RUNS, STUDY, members, read_plan
from fedmerit.study.suspects import planted_attackers
from fedmerit.study.text_table import UNKNOWN, TextTable, number_text

CLASSES = 3
"""Classes of participation, by how often clients took part; fewer if there are fewer different counts."""
MEASURES = {  # what `Gains.measures` holds, in words
    "pearson": "Pearson, contribution with gain",
    "spearman": "Spearman, contribution with gain",
    "pearson_final": "Pearson, contribution with final accuracy",
    "pearson_standalone": "Pearson, standalone with final accuracy",
    "mean": "mean collaboration gain",
    "spread": "its spread (standard deviation)",
    "of_riders": "free riders' mean gain",
}


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


def rank_correlation(one: Sequence[float] | Vector, other: Sequence[float] | Vector) -> float:
    """Spearman's rho: the correlation of the ranks, over the pairs without NaN.

    NaN where there are fewer than three such pairs, or one side is constant.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    return _correlation(scipy.stats.spearmanr, one, other)


def correlation(one: Sequence[float] | Vector, other: Sequence[float] | Vector) -> float:
    """Pearson's r, as `rank_correlation` otherwise.

    >>> round(correlation([1, 2, 4], [1, 2, 3]), 3)
    0.982
    """
    return _correlation(scipy.stats.pearsonr, one, other)


def _correlation(measure: Callable[..., Any], one: Sequence[float] | Vector, other: Sequence[float] | Vector) -> float:
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(measure(x, y).statistic)


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
    return {edge: _mean(values) for edge, values in members.items()}


def fairness_dict(fairness: Fairness, names: Sequence[str]) -> dict[str, Any]:
    """Plain values."""
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
    """A line per client, the largest contribution first; then what holds over all clients."""
    title = f"contribution: rows worked through (samples x epochs); reached, stays: rounds to {level:.0%}"
    below = "taken: rewards taken of those sent; stays: from that round on never below; average: from then on"
    header = ("client", "rounds", "rows", "taken", "entries", "reached", "stays", "average", "final")
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
        f"with entries received {number_text(fairness.entries, 2, '+')}"
    )
    classes = ", ".join(f"up to {edge} rounds {value:.4f}" for edge, value in fairness.classes.items())
    yield f"mean final accuracy by participation: {classes}; gap {fairness.gap:.4f}"


@dataclass(frozen=True, slots=True)
class Gains:
    """What each client brought, had alone and ended with; clients that a test does not know are NaN.

    Attributes:
        by: what contribution is: a method of `core.contribution`, summed over rounds, or the rows worked through.
        contribution: what each client brought.
        standalone: its accuracy alone, on the same budget.
        final: its accuracy at the end.
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
        """The accuracy at the end minus that alone."""
        return self.final - self.standalone

    @property
    def below(self) -> tuple[ClientId, ...]:
        """Clients that were better off alone."""
        return tuple(np.flatnonzero(self.gain < 0).tolist())

    @property
    def measures(self) -> dict[str, float]:
        """What holds over all clients; NaN where it is not defined.

        `mean` and `spread`, the standard deviation, of the gains are those of [CYCle]; `of_riders` is the mean gain of
        the planted free riders. `pearson` and `spearman` correlate contribution with gain, `pearson_final` with the
        final accuracy. `pearson_standalone` correlates standalone with final accuracy: what [RFFL] and [CGSV] call
        fairness.
        """
        known = self.gain[~np.isnan(self.gain)]
        return {
            "pearson": correlation(self.contribution, self.gain),
            "spearman": rank_correlation(self.contribution, self.gain),
            "pearson_final": correlation(self.contribution, self.final),
            "pearson_standalone": correlation(self.standalone, self.final),
            "mean": _mean(known),
            "spread": float(known.std()) if len(known) else math.nan,
            "of_riders": _mean(self.gain[list(self.riders)]),
        }


def gains_of(
    ledger: Ledger, standalone: Ledger, measured: Ledger | None = None, riders: Sequence[ClientId] = ()
) -> Gains:
    """The gains of a run over one in which the same clients were alone, for as many rounds.

    Contribution is what another run, `measured`, or this one measured of it; where none did, the rows worked through.

    >>> gains_of(run.ledger, alone.ledger).below  # doctest: +SKIP
    """
    names = ledger.names()
    for other in (standalone, measured):
        if other is not None and other.names() != names:
            raise UserError("gains compare runs of the same clients, and these have other names")
    (rounds, final), (others, alone) = ledger.local_accuracy(), standalone.local_accuracy()
    if not rounds or not others or rounds[-1] != others[-1]:
        raise UserError(
            f"a gain is one on the same budget: the run was last tested after round {max(rounds, default=0)}, "
            f"the standalone one after round {max(others, default=0)}; run both for as many rounds"
        )
    by, contribution = _contribution(measured or ledger, len(names))
    return Gains(by, contribution, alone[-1], final[-1], tuple(riders))


def standalone_beside(run: Path) -> Path | None:
    """The run of a study's row `standalone` with the seed of this one; None where it is in no study, or that has none.

    >>> standalone_beside(Path("runs/alone")) is None
    True
    """
    run = run.resolve()
    folder = run.parent.parent
    if run.parent.name != RUNS or not (folder / STUDY).is_file():
        return None
    found = members(read_plan(folder), folder)
    seeds = [one.seed for one in found if one.folder.resolve() == run]
    alone = (one for one in found if one.config.recipe.name == "standalone" and one.seed in seeds and one.finished)
    return next((one.folder for one in alone), None)


def _contribution(ledger: Ledger, clients: int) -> tuple[str, Vector]:
    accounts = contributions_of(ledger)
    if accounts:
        by, brought = next(iter(accounts[0].total)), {one.client: one.total for one in accounts}
        return by, np.array([brought[client][by] if client in brought else np.nan for client in range(clients)])
    work = ledger.work_done()
    return "rows", np.array([work.get(client, (0, 0.0))[1] for client in range(clients)])


def _mean(values: Vector) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def read_gains(folder: Path, ledger: Ledger, standalone: Path | None, measured: Path | None) -> Gains | None:
    """The gains of a run in a folder; None where no standalone run is given and none lies beside it."""
    alone = standalone or standalone_beside(folder)
    if alone is None and measured is not None:
        raise UserError("contributions are measured for gains, which need a standalone run; give --standalone")
    if alone is None:
        return None
    attackers = planted_attackers(ledger)
    riders = [
        client
        for client, name in enumerate(ledger.names())
        if name.endswith(" free_rider")
        or ((coalition := attackers.of(client)) is not None and isinstance(coalition.attack, FreeRider))
    ]
    with ExitStack() as opened:
        other = opened.enter_context(open_ledger(measured)) if measured else None
        return gains_of(ledger, opened.enter_context(open_ledger(alone)), other, riders)


def gains_dict(gains: Gains) -> dict[str, Any]:
    """Plain values."""
    columns = {"contribution": gains.contribution, "standalone": gains.standalone, "final": gains.final}
    return {
        "contribution_by": gains.by,
        **gains.measures,
        "below_standalone": gains.below,
        "free_riders": gains.riders,
        "clients": [dict(zip(columns, map(float, line), strict=True)) for line in zip(*columns.values(), strict=True)],
    }


def gains_tables(gains: Gains, names: Sequence[str]) -> Iterator[RenderableType]:
    """A line per client, the largest contribution first; then the measures over all."""
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
    below = ", ".join(names[client] for client in gains.below) or "nobody"
    yield TextTable("", ("measure", "value"), (*measures, ("clients below standalone", below))).screen()
