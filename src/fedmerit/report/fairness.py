"""The fairness of a run's rewards, on the screen and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from fedmerit.study.fairness import Account, Fairness
from fedmerit.study.text_table import TextTable

HEADER = ("client", "rounds", "rows", "taken", "entries", "reached", "stays", "average", "final")


def fairness_dict(fairness: Fairness, names: Sequence[str]) -> dict[str, Any]:
    """Plain values; None where something is not known."""
    accounts = [asdict(account) | {"name": names[account.client]} for account in fairness.accounts]
    return {
        "accounts": [account | {"accuracy": _known(account["accuracy"])} for account in accounts],
        "rank_correlation_of_contribution": {
            "accuracy": _known(fairness.accuracy),
            "round_of_convergence": _known(fairness.speed),
            "entries": _known(fairness.entries),
        },
        "accuracy_by_rounds_taken_part": {str(edge): _known(value) for edge, value in fairness.classes.items()},
        "gap": _known(fairness.gap),
    }


def fairness_tables(fairness: Fairness, names: Sequence[str], level: float) -> Iterator[RenderableType]:
    """A line per client, the largest contribution first; then what holds over all clients."""
    title = f"contribution: rows worked through (samples x epochs); reached, stays: rounds to {level:.0%}"
    below = "taken: rewards taken of those sent; stays: from that round on never below; average: from then on"
    ordered = sorted(fairness.accounts, key=lambda account: -account.contribution)
    yield TextTable(title, HEADER, tuple(_line(account, names) for account in ordered), (below,)).screen()
    yield (
        f"rank correlation of contribution with final accuracy {_signed(fairness.accuracy)}, with the round of "
        f"convergence {_signed(fairness.speed)}, with entries received {_signed(fairness.entries)}"
    )
    classes = ", ".join(f"up to {edge} rounds {value:.4f}" for edge, value in fairness.classes.items())
    yield f"mean final accuracy by participation: {classes}; gap {fairness.gap:.4f}"


def _line(account: Account, names: Sequence[str]) -> tuple[str, ...]:
    convergence = account.convergence
    return (
        names[account.client],
        str(account.rounds),
        f"{account.contribution:,.0f}",
        f"{account.accepted} of {account.rewards}",
        f"{account.entries:,}",
        "-" if convergence.reached is None else str(convergence.reached),
        "-" if convergence.stays is None else str(convergence.stays),
        "-" if convergence.average is None else f"{convergence.average:.4f}",
        "-" if math.isnan(account.accuracy) else f"{account.accuracy:.4f}",
    )


def _signed(value: float) -> str:
    return "not known" if math.isnan(value) else f"{value:+.2f}"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
