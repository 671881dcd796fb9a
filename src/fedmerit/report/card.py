"""The model card: what was trained, how, for whom it works how well, and who earned what; as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit.core.criteria.table import display_name
from fedmerit.core.objectives import is_error, worst_value
from fedmerit.core.recipe_json import part_text
from fedmerit.core.state import SERVER
from fedmerit.errors import UserError
from fedmerit.report.settings import toml_lines
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import CONFIG, MODEL
from fedmerit.study.metrics import audits_by_objective, known_of_clients
from fedmerit.study.text_table import UNKNOWN, TextTable, number_text


def write_card(ledger: Ledger, out: Path, *, force: bool = False) -> None:
    """The card of a run as a new file."""
    check_new_file(out, "another --card", force=force)
    write_new_file(out, card(ledger), "another --card")


def card(ledger: Ledger) -> str:
    """Task, recipe, accuracy of each client and group, and what each client's updates counted."""
    rounds = ledger.rounds()
    tested = [row for row in rounds if row["accuracy"] is not None]
    if not tested:
        raise UserError("the run has no evaluated round yet")
    config: dict[str, Any] = json.loads(ledger.meta().get("config", "{}"))
    parts = [
        "# Model card",
        _opening(ledger, tested[-1], config),
        *_task(config),
        *_recipe(ledger, rounds[-1], config),
        "## Accuracy and earnings of each client",
        _clients(ledger).markdown(),
        *_groups(ledger, tested[-1]),
        "## Reasons",
        "`fedmerit explain DIR --client NAME` says why a client got its weight in a round, and what would change it.",
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _opening(ledger: Ledger, last: dict[str, Any], config: dict[str, Any]) -> str:
    data = (config.get("task") or {}).get("data")
    about = f"Trained by {len(ledger.names())} clients{f' on {data!r}' if data else ''} in {last['round']} rounds."
    spread = f"local accuracy of the clients {last['p10']:.3f} (tenth percentile), {last['p50']:.3f} (median)"
    versions = ", ".join(f"{key} {value}" for key, value in ledger.meta().items() if key in ("fedmerit", "torch"))
    right = "".join(f" Here {event.text}." for event in ledger.events() if event.kind == "target")
    figures = f"Accuracy over all test rows {last['accuracy']:.4f}; {spread}.{right}"
    return f"{about} {figures} Made by {versions}; file `{MODEL}`."


def _task(config: dict[str, Any]) -> Iterator[str]:
    sections = {name: config[name] for name in ("task", "train") if config.get(name)}
    if sections:
        lines = [f"{name} = {value}" if value else name for _, name, value in toml_lines(sections)]
        yield "## Task and training"
        yield "\n".join(["```toml", *lines, "```"])
        yield f"All settings are in `{CONFIG}`, next to the model."


def _recipe(ledger: Ledger, last: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    yield "## Recipe"
    named = (config.get("recipe") or {}).get("name")
    order = ", then ".join(f"{display_name(name)} (`{name}`)" for name in last["priority"])
    score = part_text(last["score"]) if last["score"] else "none: nobody could be weighed in the last round"
    yield f"{f'Recipe `{named}`. ' if named else ''}Clients are weighed by {order}; score `{score}`."
    yield f"As the ledger keeps it: `{part_text(ledger.meta().get('recipe', 'not known'))}`."


def _clients(ledger: Ledger) -> TextTable:
    """A line per client: its accuracy at the end, the rounds it took part in, its part of all weight."""
    names, local = ledger.names(), ledger.local_accuracy()[1][-1]
    earned, taken_part = np.zeros(len(names)), np.zeros(len(names), dtype=int)
    for index in range(1, ledger.last_round() + 1):
        for one in ledger.weights(index):
            earned[one.id] += one.weight
            taken_part[one.id] += 1
    shares = earned / earned.sum() if earned.any() else earned
    rows = [
        (name, number_text(local[i], 4), f"{taken_part[i]}", f"{shares[i]:.2%}", f"{1 / len(names):.2%}")
        for i, name in enumerate(names)
    ]
    header = ("client", "accuracy", "rounds", "share of all weight", "equal share")
    return TextTable("after the last evaluated round, on each client's own test rows", header, tuple(rows))


def _groups(ledger: Ledger, last: dict[str, Any]) -> Iterator[str]:
    """The audits of the last evaluated round; groups are those of the audited objectives."""
    audits = {name: by_round[last["round"]] for name, by_round in audits_by_objective(ledger, last["round"]).items()}
    yield "## Audits: errors, and groups of people"
    if not audits:
        yield 'Nothing was audited. `run.audit = ["worst_group:ATTRIBUTE", "parity:ATTRIBUTE"]` writes it down.'
        return
    names = ledger.names()
    rows = [(name, number_text(values.get(SERVER), 4), *_worst(name, values, names)) for name, values in audits.items()]
    header = ("objective", "at the server", "worst client", "its value")
    title = "higher is better, except for errors and losses, which are in their own units"
    some = any(map(is_error, audits))
    yield TextTable(title if some else "0 to 1, higher is better", header, tuple(rows)).markdown()


def _worst(objective: str, values: dict[int, float | None], names: Sequence[str]) -> tuple[str, str]:
    known = known_of_clients(values)
    worst = worst_value(objective, known.values())
    if worst is None:
        return UNKNOWN, UNKNOWN
    return names[next(client for client, value in known.items() if value == worst)], number_text(worst, 4)
