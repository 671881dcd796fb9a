"""The gains of a run over training alone, on the screen and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from fedmerit.core.attacks import FreeRider
from fedmerit.core.types import ClientId
from fedmerit.errors import UserError
from fedmerit.report.suspects import planted_attackers
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.gains import Gains, gains_of, standalone_beside
from fedmerit.study.text_table import TextTable

MEASURES = {
    "pearson": "Pearson, contribution with gain",
    "spearman": "Spearman, contribution with gain",
    "pearson_final": "Pearson, contribution with final accuracy",
    "pearson_standalone": "Pearson, standalone with final accuracy",
    "mean": "mean collaboration gain",
    "spread": "its spread (standard deviation)",
    "of_riders": "free riders' mean gain",
}


def read_gains(folder: Path, ledger: Ledger, standalone: Path | None, measured: Path | None) -> Gains | None:
    """The gains of a run in a folder; None where no standalone run is given and none lies beside it."""
    alone = standalone or standalone_beside(folder)
    if alone is None and measured is not None:
        raise UserError("contributions are measured for gains, which need a standalone run; give --standalone")
    if alone is None:
        return None
    with ExitStack() as opened:
        other = opened.enter_context(open_ledger(measured)) if measured else None
        return gains_of(ledger, opened.enter_context(open_ledger(alone)), other, free_riders(ledger))


def free_riders(ledger: Ledger) -> list[ClientId]:
    """The clients that the configuration planted as free riders, as a kind or as attackers."""
    names = ledger.names()
    attackers = planted_attackers(ledger.meta(), len(names))
    return [
        client
        for client, name in enumerate(names)
        if name.endswith(" free_rider")
        or ((coalition := attackers.of(client)) is not None and isinstance(coalition.attack, FreeRider))
    ]


def gains_dict(gains: Gains) -> dict[str, Any]:
    """Plain values; None where something is not known."""
    return {
        "contribution_by": gains.by,
        **{name: _known(getattr(gains, name)) for name in MEASURES},
        "below_standalone": list(gains.below),
        "free_riders": list(gains.riders),
        "clients": [
            {"contribution": _known(brought), "standalone": _known(alone), "final": _known(final)}
            for brought, alone, final in zip(gains.contribution, gains.standalone, gains.final, strict=True)
        ],
    }


def gains_tables(gains: Gains, names: Sequence[str]) -> Iterator[RenderableType]:
    """A line per client, the largest contribution first; then the measures over all."""
    order = sorted(range(len(names)), key=lambda client: (-_low(float(gains.contribution[client])), client))
    rows = [
        (
            names[client],
            f"{gains.contribution[client]:,.4g}",
            *(_accuracy(values[client]) for values in (gains.standalone, gains.final)),
            f"{gains.gain[client]:+.4f}",
        )
        for client in order
    ]
    title = f"gains over training alone; contribution by {gains.by}"
    yield TextTable(title, ("client", "contribution", "standalone", "final", "gain"), tuple(rows)).screen()
    measures = [(text, _signed(getattr(gains, name))) for name, text in MEASURES.items()]
    below = ", ".join(names[client] for client in gains.below) or "nobody"
    yield TextTable("", ("measure", "value"), (*measures, ("clients below standalone", below))).screen()


def _low(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _accuracy(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _signed(value: float) -> str:
    return "not known" if math.isnan(value) else f"{value:+.4f}"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
