"""Summary of a run: accuracy, percentiles over clients, rounds to target for each share of devices."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape

from fedmerit.core.measures import SHARES, TARGETS, rounds_to_target
from fedmerit.core.objectives import direction, measure_label
from fedmerit.core.state import SERVER
from fedmerit.core.types import ACCURACY
from fedmerit.errors import UserError
from fedmerit.report.screen import list_table
from fedmerit.store.ledger import Ledger
from fedmerit.study.metrics import server_accuracy
from fedmerit.study.plan import target_text
from fedmerit.study.text_table import number_text

SERVER_ROWS = "on the server's rows"


def summary(ledger: Ledger, targets: Sequence[float] | None = None, *, or_equal: bool = False) -> dict[str, Any]:
    """The results of a run as plain values; None where a target was not reached.

    `targets` are values of the run's measure; default: `TARGETS`, and none for errors such as `mae`.
    """
    rounds = [row for row in ledger.rounds() if row["accuracy"] is not None]
    if not rounds:
        on_server = server_accuracy(ledger)
        rounds = [
            row | {"accuracy": on_server[row["round"]], "value": on_server[row["round"]]}
            for row in ledger.rounds()
            if row["round"] in on_server
        ]
    if not rounds:
        raise UserError("the run has no evaluated round yet")
    measure, last = ledger.measure, rounds[-1]
    known = [row for row in rounds if row["value"] is not None] or [last]
    best = max(known, key=lambda row: direction(measure) * (row["value"] or 0.0))
    evaluated, local = ledger.local()
    lower = direction(measure) < 0
    reached = {
        str(target): {
            str(share): rounds_to_target(evaluated, local, target, share, or_equal=or_equal, lower=lower)
            for share in SHARES
        }
        for target in (targets if targets is not None else () if lower else TARGETS)
    }
    return {
        "rounds": last["round"],
        "clients": len(ledger.names()),
        "measure": measure,
        "measured_clients": int((~np.isnan(local[-1])).sum()) if len(local) else 0,
        **{key: last[key] for key in ("value", "accuracy", "p10", "p50", "p90")},
        "best": {"round": best["round"], "value": best["value"]},
        **{key: last[key] for key in ("training_loss", "validation_loss")},
        "constant": [event.text for event in ledger.events(last["round"]) if event.kind == "constant"],
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


def value_text(result: Mapping[str, Any]) -> str:
    """The measure, with the number of clients where it is defined, if that is not all; then accuracy.

    >>> value_text({"measure": "auc", "value": 0.724, "accuracy": 0.9567, "measured_clients": 6, "clients": 8})
    'AUC 0.7240 over 6 of 8 clients, accuracy 0.9567'
    """
    over = f" over {result['measured_clients']} of {result['clients']} clients"
    first = f"{measure_label(result['measure'])} {number_text(result['value'], 4)}"
    first += over * (0 < result["measured_clients"] < result["clients"])
    return first if result["measure"] == ACCURACY else f"{first}, accuracy {number_text(result['accuracy'], 4)}"


def loss_text(result: Mapping[str, Any]) -> str:
    """Training and validation loss of the final model, as far as they are known."""
    known = [(name, result[f"{name}_loss"]) for name in ("training", "validation")]
    return ", ".join(f"{name} loss {value:.4f}" for name, value in known if value is not None)


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
    label, best = measure_label(result["measure"]), result["best"]
    percentiles = [result[name] for name in ("p10", "p50", "p90")]
    local = f"local {label} 10/50/90 %: {' '.join(number_text(value, 3) for value in percentiles)}"
    yield (
        f"{result['rounds']} rounds, {result['clients']} clients: {value_text(result)} "
        f"(best {number_text(best['value'], 4)} in round {best['round']}); "
        f"{local if None not in percentiles else SERVER_ROWS}"
    )
    if losses := loss_text(result):
        yield losses
    yield from (f"[bold red]WARNING: {escape(text)}[/]" for text in result["constant"])
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
        (
            target_text(float(target), result["measure"]).partition(" ")[2],  # without above or below
            *("-" if index is None else str(index) for index in cells.values()),
        )
        for target, cells in result["rounds_to_target"].items()
    ]
    if rows:
        header = ("target", *(f"{share:.0%}" for share in SHARES))
        yield list_table("rounds until this share of devices is better than the target", header, rows)
