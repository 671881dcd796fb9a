"""Rows of a study that differ by an attack: its success, the accuracy lost by each recipe, and the worst case."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit.config.schema import Config
from fedmerit.core.attacks.attack import Attackers
from fedmerit.core.attacks.rows import TargetedAttack, make_probe
from fedmerit.core.host import predict_rows
from fedmerit.core.objectives import find_objective
from fedmerit.core.types import ClientId, Model, Samples
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
from fedmerit.tasks.attackers import find_attackers
from fedmerit.tasks.registry import Task

MEASURED = ("success", "worst class")
"""Metrics that need the test rows: they are written when a run ends."""
METRICS = tuple(f"attack {name}" for name in (*MEASURED, "weight", "clients", "dropped", "precision", "recall"))
"""Columns of `Study.metrics` for runs with attackers.

success      share of the targeted test rows for which the model predicts the label that the attackers want
worst class  lowest recall over the classes, on all test rows
weight       the attackers' share of the weight, mean over the rounds in which they could attack
clients      the attackers' share of the clients that answered, over the same rounds
dropped      share of the honest clients' answers that got no weight, over the same rounds
precision    share of the suspects that are attackers
recall       share of the attackers that are suspects, among those that answered
"""
COLUMNS = ("row", "recipe", "attack", "share", "seeds", "accuracy", "without", "lost", "low", "high", *METRICS)


def measure_attack(task: Task, model: Model) -> dict[str, float]:
    """Compute the MEASURED metrics of a model on the clean test rows; NaN if no attack wants certain labels."""
    test = Samples(task.federation.test.x, task.federation.test.y, task.federation.classes)
    attacks = [one.attack for one in task.attackers.coalitions if isinstance(one.attack, TargetedAttack)]
    probes = [probe for attack in attacks if len(probe := make_probe(attack, test))]
    shares = [float((task.learner.predict(model, probe.x) == probe.y).mean()) for probe in probes]
    if task.federation.target != "classes" or not len(test):
        return dict.fromkeys(MEASURED, math.nan)
    worst = find_objective("worst_recall")(predict_rows(task.learner, test, [model]))
    return dict(zip(MEASURED, (float(np.mean(shares)) if shares else math.nan, float(worst[0])), strict=True))


def write_measured(path: Path, measured: Mapping[str, float]) -> None:
    """Write the MEASURED metrics of a run to a file, atomically."""
    path.parent.mkdir(exist_ok=True)
    write_new_file(path, dump_json(dict(measured)))


def read_measured(path: Path) -> dict[str, float]:
    """Read the MEASURED metrics of a run; NaN without a file, as for recipes without a shared model."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {name: math.nan if values[name] is None else float(values[name]) for name in MEASURED}
    except FileNotFoundError:
        return dict.fromkeys(MEASURED, math.nan)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FolderError(f"{path} is damaged: {error}; remove it and run `fedmerit compare` again") from None


def read_attack_metrics(ledger: Ledger, config: Config, measured: Mapping[str, float]) -> dict[str, float]:
    """Compute METRICS of a run from its ledger and MEASURED; empty without attackers, NaN for unknown values."""
    attackers = find_attackers(config.task, len(ledger.names()), config.run.seed)
    if not attackers.members:
        return {}
    scores = detection(ledger, suspects_of(ledger), attackers)
    return dict(zip(METRICS, (*measured.values(), *weight_held(ledger, attackers), *scores), strict=True))


def weight_held(ledger: Ledger, attackers: Attackers) -> list[float]:
    """Compute the attackers' mean share of the weight and of the clients, and the share of honest answers dropped.

    All are over the rounds in which they could attack. An honest answer is dropped if it was left out or has weight 0.
    """
    first = min((coalition.from_round for coalition in attackers.coalitions), default=1)
    weights, clients, dropped = [], [], list[bool]()
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
            dropped += [not held.get(client) for client in answered - attackers.members.keys()]
    return [float(np.mean(values)) if values else math.nan for values in (weights, clients, dropped)]


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
    shorter = {"attack worst class": "worst", "attack precision": "prec."}  # ten columns in 80 characters
    names = ("row", *(shorter.get(key, key.removeprefix("attack ")) for key in digits))
    rows = tuple((line["row"], *(number_text(line[key], digits[key]) for key in digits)) for line in lines)
    below = (
        "lost: accuracy lost to the attack; success: share of targeted test rows that get the attackers' label",
        "worst: lowest recall over the classes; dropped: share of the honest answers without weight",
        "weight, clients: the attackers' share of the weight and of the clients; prec., recall: of the suspects",
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
