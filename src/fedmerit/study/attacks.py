"""Rows of a study that differ by an attack: its success, the accuracy lost by each recipe, and the worst case."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit.config.schema import Config
from fedmerit.core.attacks import Attackers, RowAttack
from fedmerit.core.types import ClientId, Model
from fedmerit.errors import FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.frames import Frame, Line, make_frame
from fedmerit.store.ledger import Ledger
from fedmerit.store.strict_json import dump_json
from fedmerit.study.plan import Plan, Row, attack_label
from fedmerit.study.statistics import LEVEL, paired
from fedmerit.study.suspects import detection, suspects_of
from fedmerit.study.text_table import TextTable, number_text
from fedmerit.study.verdicts import by_row
from fedmerit.tasks.attackers import find_attackers, make_probe
from fedmerit.tasks.registry import Task

METRICS = ("attack success", "attack weight", "attack clients", "attack precision", "attack recall")
"""Columns of `Study.metrics` for runs with attackers.

success    share of the targeted test rows for which the model predicts the label that the attackers want
weight     the attackers' share of the weight, mean over the rounds in which they could attack
clients    the attackers' share of the clients that answered, over the same rounds
precision  share of the suspects that are attackers
recall     share of the attackers that are suspects, among those that answered
"""
COLUMNS = ("row", "recipe", "attack", "share", "seeds", "accuracy", "without", "lost", "low", "high", *METRICS)


def attack_success(task: Task, model: Model) -> float:
    """Measure the success of label flippers and backdoors on the clean test rows; NaN if no attack changes rows."""
    test, classes = task.federation.test, task.federation.classes
    shares = [
        make_probe(coalition.attack, test.x, test.y, classes).success(task.learner, model)
        for coalition in task.attackers.coalitions
        if isinstance(coalition.attack, RowAttack)
    ]
    return float(np.mean(shares)) if shares else math.nan


def write_success(path: Path, success: float) -> None:
    """Write the success of a run's attackers to a file, atomically."""
    path.parent.mkdir(exist_ok=True)
    write_new_file(path, dump_json({"success": success}))


def read_success(path: Path) -> float:
    """Read the success of a run's attackers; NaN without a file, as for recipes without a shared model."""
    try:
        success = json.loads(path.read_text(encoding="utf-8"))["success"]
    except FileNotFoundError:
        return math.nan
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FolderError(f"{path} is damaged: {error}; remove it and run `fedmerit compare` again") from None
    return math.nan if success is None else float(success)


def read_attack_metrics(ledger: Ledger, config: Config, success: float) -> dict[str, float]:
    """Compute METRICS of a run from its ledger; empty without attackers, NaN for unknown values."""
    attackers = find_attackers(config.task, len(ledger.names()), config.run.seed)
    if not attackers.members:
        return {}
    scores = detection(ledger, suspects_of(ledger), attackers)
    return dict(zip(METRICS, (success, *weight_held(ledger, attackers), *scores), strict=True))


def weight_held(ledger: Ledger, attackers: Attackers) -> tuple[float, float]:
    """Compute the attackers' mean share of the weight and of the clients, over rounds in which they could attack."""
    first = min(coalition.from_round for coalition in attackers.coalitions)
    weights, clients = [], []
    left_out: dict[int, set[ClientId]] = {}
    for event in ledger.events():
        if event.kind == "left-out" and event.client is not None:
            left_out.setdefault(event.round, set()).add(event.client)
    for row in ledger.rounds():
        index = row["round"]
        columns = ledger.weight_columns(index)
        held = dict(zip(columns.ids, columns.weights.tolist(), strict=True))
        answered = {*held, *left_out.get(index, ())}
        if index >= first and answered:
            weights.append(sum(weight for client, weight in held.items() if client in attackers.members))
            clients.append(len(answered & attackers.members.keys()) / len(answered))
    return (float(np.mean(weights)), float(np.mean(clients))) if weights else (math.nan, math.nan)


def attack_frame(plan: Plan, metrics: Frame) -> Frame:
    """Make `Study.attacks`: a line per row with attackers, over its finished seeds.

    `recipe` is the row with the same settings and no attackers, `without` its accuracy, and `lost` the mean paired
    difference with the interval from `low` to `high`; NaN if the study has no such row.
    """
    attacks = {row.name: plan.config(row, plan.seeds[0]).task.attack for row in plan.rows}
    recipes: dict[str, str] = {}
    for row in sorted(plan.rows, key=lambda row: bool(attacks[row.name])):  # rows without attackers first
        recipes.setdefault(_settings(row), row.name)
    finished = metrics[metrics["finished"]].reindex(columns=["row", "seed", "accuracy", *METRICS])
    accuracy = by_row(finished, "accuracy", plan)
    means = finished.drop(columns="seed").groupby("row").mean().reindex(list(attacks))
    lines: list[Line] = []
    for row in (row for row in plan.rows if attacks[row.name]):
        recipe = recipes[_settings(row)]
        without, lost = (
            (math.nan, paired([]))
            if attacks[recipe]
            else (means.loc[recipe, "accuracy"], paired(accuracy[recipe] - accuracy[row.name]))
        )
        about: Line = {"row": row.name, "recipe": recipe, "attack": attack_label(attacks[row.name])}
        about |= {"share": sum(attack.share for attack in attacks[row.name]), "without": without}
        about |= {"seeds": int((finished["row"] == row.name).sum())}
        about |= {"lost": lost.difference, "low": lost.low, "high": lost.high}
        lines.append(about | means.loc[row.name].to_dict())
    return make_frame(lines, COLUMNS)


def attack_tables(name: str, attacks: Frame) -> Iterator[TextTable]:
    """Make tables of `Study.attacks`: the worst case of each recipe with several attacks, then every attack."""
    lines: list[dict[str, Any]] = attacks.to_dict("records")
    if not lines:
        return
    groups: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["share"], line["recipe"]), []).append(line)
    if len(groups) < len(lines):
        header = ("row", "attackers", "no attack", "worst", "lost", f"{LEVEL:.0%} interval", "worst attack")
        worst = tuple(_worst(group) for group in groups.values())
        yield TextTable(f"{name}: accuracy under the worst attack, mean over seeds", header, worst)
    digits = {"accuracy": 4, "lost": 4} | dict.fromkeys(METRICS, 3)
    names = ("row", *(key.removeprefix("attack ") for key in digits))
    rows = tuple((line["row"], *(number_text(line[key], digits[key]) for key in digits)) for line in lines)
    below = (
        "lost: accuracy lost to the attack; success: share of targeted test rows that get the attackers' label",
        "weight, clients: the attackers' share of the weight and of the clients; precision, recall: of the suspects",
    )
    yield TextTable(f"{name}: rows with attackers, mean over seeds", names, rows, below)


def _worst(lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Format the attack with the lowest accuracy; attacks without a finished run are ignored."""
    line = min(lines, key=lambda line: (math.isnan(line["accuracy"]), line["accuracy"]))
    interval = "" if math.isnan(line["low"]) else f"[{line['low']:.4f}, {line['high']:.4f}]"
    numbers = [number_text(line[key], 4) for key in ("without", "accuracy", "lost")]
    return line["recipe"], f"{100 * line['share']:g}%", *numbers, interval, line["attack"]


def _settings(row: Row) -> str:
    """The settings of a row without its name and its attackers."""
    values = row.model_dump(mode="json", exclude={"name"})
    values["task"].pop("attack", None)
    return json.dumps(values, sort_keys=True)
