"""Suspects of a run for readers: who, since when, by which evidence; and, where attackers were planted, the truth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fedmerit.config.schema import make_config
from fedmerit.core.attacks import NOBODY, Attackers
from fedmerit.core.suspects import LEAST_ROUNDS, LEAST_SHARE, Suspect
from fedmerit.core.types import EMPTY
from fedmerit.store.ledger import Ledger
from fedmerit.store.suspects import suspects_of
from fedmerit.store.weight_columns import WeightColumns
from fedmerit.study.attack_metrics import answered_rounds, detect
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.attackers import find_attackers

RULE = (
    f"suspected: something odd was seen in at least {LEAST_ROUNDS} rounds and in {LEAST_SHARE:.0%} or more of those in "
    "which the client answered; that is no proof, and claims alone never suffice"
)


def suspects_dict(ledger: Ledger, weights: Mapping[int, WeightColumns] = EMPTY) -> dict[str, Any]:
    """Suspects as JSON has them; `planted` is None where the run's configuration plants no attacker."""
    names, suspects = ledger.names(), suspects_of(ledger, weights)
    return {
        "rule": RULE,
        "rounds": ledger.last_round(),
        "clients": len(names),
        "suspects": [_suspect(suspect, names) for suspect in suspects],
        "planted": _planted(ledger, suspects),
    }


def _suspect(suspect: Suspect, names: Sequence[str]) -> dict[str, Any]:
    return {
        "client": suspect.client,
        "name": names[suspect.client],
        "since": suspect.since,
        "answered": suspect.answered,
        "kinds": suspect.kinds,
        "summary": suspect.summary,
        "evidence": [{"round": one.round, "kind": one.kind, "text": one.text} for one in suspect.evidence],
    }


def planted_attackers(meta: Mapping[str, str], clients: int) -> Attackers:
    """Who attacks in a run, by its configuration and seed; nobody where the ledger keeps no configuration."""
    if "config" not in meta:
        return NOBODY
    config = make_config(json.loads(meta["config"]))
    return find_attackers(config.task, clients, config.run.seed)


def _planted(ledger: Ledger, suspects: list[Suspect]) -> dict[str, Any] | None:
    attackers = planted_attackers(ledger.meta(), len(ledger.names()))
    if not attackers.members:
        return None
    precision, recall = detect(suspects, attackers, answered_rounds(ledger))
    return {
        "clients": sorted(attackers.members),
        "precision": None if math.isnan(precision) else precision,
        "recall": None if math.isnan(recall) else recall,
    }


def suspects_screen(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What the screen shows."""
    suspects = found["suspects"]
    if not suspects:
        yield f"nobody of {found['clients']} clients is suspected after {found['rounds']} rounds"
    else:
        rows = [(one["name"], str(one["since"]), str(one["answered"]), _kinds(one["kinds"])) for one in suspects]
        are = "is" if len(suspects) == 1 else "are"
        title = f"{len(suspects)} of {found['clients']} clients {are} suspected after {found['rounds']} rounds"
        yield TextTable(title, ("client", "since round", "answered", "seen in rounds"), tuple(rows)).screen()
        for one in suspects:
            yield Text(f"{one['name']}: {one['summary']}")
    yield Text(RULE, "dim")
    if truth := found["planted"]:
        shares = {key: "-" if truth[key] is None else f"{truth[key]:.2f}" for key in ("precision", "recall")}
        yield Text(
            f"attackers were planted: {len(truth['clients'])}; precision {shares['precision']}, "
            f"recall {shares['recall']}",
            "dim",
        )


def _kinds(kinds: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{kind} {len(rounds)}" for kind, rounds in kinds.items())
