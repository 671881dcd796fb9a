"""Summary of a run: accuracy, percentiles over clients, rounds to target for each share of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from fedmerit.core.measures import SHARES, rounds_to_target
from fedmerit.core.state import SERVER
from fedmerit.errors import UserError
from fedmerit.report.screen import list_table
from fedmerit.store.ledger import Ledger
from fedmerit.study.metrics import server_accuracy


def summary(ledger: Ledger, targets: Sequence[float], *, or_equal: bool = False) -> dict[str, Any]:
    """The results of a run as plain values; None where a target was not reached."""
    rounds = [row for row in ledger.rounds() if row["accuracy"] is not None]
    if not rounds:
        on_server = server_accuracy(ledger)
        rounds = [row | {"accuracy": on_server[row["round"]]} for row in ledger.rounds() if row["round"] in on_server]
    if not rounds:
        raise UserError("the run has no evaluated round yet")
    best = max(rounds, key=lambda row: row["accuracy"])
    evaluated, local = ledger.local_accuracy()
    reached = {
        str(target): {
            str(share): rounds_to_target(evaluated, local, target, share, or_equal=or_equal) for share in SHARES
        }
        for target in targets
    }
    last = rounds[-1]
    return {
        "rounds": last["round"],
        "clients": len(ledger.names()),
        **{key: last[key] for key in ("accuracy", "p10", "p50", "p90")},
        "best": {"round": best["round"], "accuracy": best["accuracy"]},
        "epsilon": ledger.rounds()[-1]["epsilon"],
        "clip": ledger.rounds()[-1]["clip"],
        "bytes_down": sum(row["bytes_down"] for row in ledger.rounds()),
        "bytes_up": sum(row["bytes_up"] for row in ledger.rounds()),
        "seconds": sum(sum(row["seconds"].values()) for row in ledger.rounds()),
        "search": _search(ledger),
        "groups": _groups(ledger),
        "audit": {name: value for _, who, name, value in ledger.audits(last["round"]) if who == SERVER},
        "rounds_to_target": reached,
    }


def size_text(size: int) -> str:
    """Bytes for people.

    >>> size_text(2_345), size_text(1_450_000)
    ('2.3 kB', '1.4 MB')
    """
    return f"{size / 1e3:.1f} kB" if size < 1e5 else f"{size / 1e6:.1f} MB"


def _groups(ledger: Ledger) -> dict[str, Any] | None:
    """How many groups there were and how many rewards were accepted; None where all clients share one model."""
    rewards = ledger.rewards()
    if not rewards:
        return None
    return {
        "rounds_with": dict(sorted(Counter(row["groups"] for row in ledger.rounds()).items())),
        "rewards": len(rewards),
        "accepted": sum(reward.accepted for reward in rewards),
        "bytes": sum(reward.bytes for reward in rewards),
    }


def _search(ledger: Ledger) -> dict[str, Any] | None:
    """What the run's search asked of the clients, and which orders it chose; None where there was no search."""
    tried = [options for row in ledger.rounds() if (options := ledger.candidates(row["round"]))]
    if not tried:
        return None
    taken = Counter(option.weighting for options in tried for option in options if option.chosen)
    return {
        "exchanges": sum(row["exchanges"] for row in ledger.rounds()),
        "evaluations": sum(row["evaluations"] for row in ledger.rounds()),
        "tests": sum(row["tests"] for row in ledger.rounds()),
        "options_per_round": sum(map(len, tried)) / len(tried),
        "asked_per_round": sum(option.quality is not None for options in tried for option in options) / len(tried),
        "taken": dict(taken.most_common()),
    }


def summary_tables(result: dict[str, Any]) -> Iterator[RenderableType]:
    """The same as text and tables; a dash where a target was not reached."""
    percentiles = [result[name] for name in ("p10", "p50", "p90")]
    local = "on the server's rows" if None in percentiles else "local accuracy 10/50/90 %: {:.3f} {:.3f} {:.3f}"
    yield (
        f"{result['rounds']} rounds, {result['clients']} clients: accuracy {result['accuracy']:.4f} "
        f"(best {result['best']['accuracy']:.4f} in round {result['best']['round']}); {local.format(*percentiles)}"
    )
    down, up = (size_text(result[way]) for way in ("bytes_down", "bytes_up"))
    yield f"{down} down, {up} up, {result['seconds']:.1f} s"
    if result["epsilon"] is not None:
        clip = "" if result["clip"] is None else f", clip {result['clip']:.3g}"  # ledgers before version 9 have none
        yield f"privacy: epsilon {result['epsilon']:.3g}{clip}; the model alone is protected, see docs/privacy.md"
    if search := result["search"]:
        yield (
            f"search: exchanges {search['exchanges']}, models {search['evaluations']}, "
            f"tested by clients {search['tests']} times; per round "
            f"{search['options_per_round']:.2f} weightings differed, {search['asked_per_round']:.2f} were asked about"
        )
        orders = [(order, str(count)) for order, count in search["taken"].items()]
        yield list_table("rounds in which each weighting was taken", ("weighting", "rounds"), orders)
    if audit := result["audit"]:
        values = ", ".join(f"{name} {'unknown' if value is None else f'{value:.4f}'}" for name, value in audit.items())
        yield f"audit at the server after round {result['rounds']}: {values}"
    if groups := result["groups"]:
        counts = ", ".join(f"{number} in {rounds} rounds" for number, rounds in groups["rounds_with"].items())
        yield (
            f"groups: {counts}; rewards: {groups['accepted']} of {groups['rewards']} taken, "
            f"{groups['bytes'] / 1e6:.1f} MB"
        )
    rows = [
        (f"{float(target):.0%}", *("-" if index is None else str(index) for index in cells.values()))
        for target, cells in result["rounds_to_target"].items()
    ]
    header = ("target", *(f"{share:.0%}" for share in SHARES))
    yield list_table("rounds until this share of devices is above the target", header, rows)
