"""Metrics of a study's runs: those of one run's ledger, and the agreement of two models on the same test rows."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks import RowAttack
from fedmerit.core.measures import percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.objectives import ERRORS
from fedmerit.core.state import SERVER
from fedmerit.core.targets import right_rows
from fedmerit.core.types import Model, Vector
from fedmerit.errors import FolderError
from fedmerit.fleet.local import TEST_ROWS
from fedmerit.store.files import write_new_file
from fedmerit.store.frames import Line
from fedmerit.store.ledger import Ledger
from fedmerit.tasks.attackers import make_probe
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task

Better: TypeAlias = Literal["higher", "lower"]
METRICS: Mapping[str, Better] = {
    "accuracy": "higher",
    "best": "higher",
    "p10": "higher",
    "p50": "higher",
    "p90": "higher",
    "worst": "higher",
    "variance": "lower",
    "bytes_down": "lower",
    "bytes_up": "lower",
    "seconds": "lower",
}
"""Metrics of every run, and which way is better; audits come on top."""

GAPS = ("parity", "opportunity", "odds", "calibration")
"""Objectives that are 1 - a gap between groups."""


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Metrics of a run: by name, rounds to each (target, share) or None if not reached, and its curve by round."""

    values: dict[str, float]
    reached: dict[tuple[float, float], int | None]
    curve: list[Line]


def read_metrics(
    ledger: Ledger, targets: Sequence[float], shares: Sequence[float], *, or_equal: bool = False
) -> RunMetrics:
    """Read the metrics of a run, finished or not; NaN where it has no evaluated round yet.

    `targets` are accuracies, `shares` the shares of the devices that have to be above them (`rounds_to_target`).
    """
    rounds = ledger.rounds()
    evaluated, local = ledger.local_accuracy()
    curve = [
        {key: row[key] for key in ("round", "accuracy", "p10", "p50", "p90")}
        for row in rounds
        if row["accuracy"] is not None
    ]
    reached = {
        (target, share): rounds_to_target(evaluated, local, target, share, or_equal=or_equal)
        for target in targets
        for share in shares
    }
    costs = {
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": sum(sum(row["seconds"].values()) for row in rounds),
    }
    last = local[-1] if len(evaluated) else np.full(1, np.nan)
    return RunMetrics(_accuracies(curve) | _over_clients(last) | costs | dict(_audits(ledger)), reached, curve)


def better(metric: str) -> Better:
    """Which way a metric is better; audits are `gap NAME` (lower) or `audit NAME` (higher, but for errors)."""
    kind, _, name = metric.partition(" ")
    return METRICS.get(metric) or ("lower" if kind == "gap" or name in ERRORS else "higher")


def _accuracies(curve: Sequence[Line]) -> dict[str, float]:
    if not curve:
        return {"accuracy": math.nan, "best": math.nan, "best_round": math.nan}
    best = max(curve, key=lambda row: row["accuracy"])
    return {"accuracy": curve[-1]["accuracy"], "best": best["accuracy"], "best_round": best["round"]}


def _over_clients(local: Vector) -> dict[str, float]:
    """Percentiles, mean of the worst tenth and variance of the accuracies of clients that have test rows."""
    levels = dict(zip(("p10", "p50", "p90"), percentiles(local), strict=True))
    return levels | {"worst": worst_mean(local), "variance": spread(local) ** 2}


def _audits(ledger: Ledger) -> Iterator[tuple[str, float]]:
    """The last audit: the server's if it has rows, else the clients' mean. Gaps are given as gaps."""
    audits = ledger.audits()
    last_round = max((index for index, *_ in audits), default=0)
    last = [(where, objective, value) for index, where, objective, value in audits if index == last_round]
    at_server = [audit for audit in last if audit[0] == SERVER]
    for name in dict.fromkeys(objective for _, objective, _ in last):
        values = [value for _, objective, value in at_server or last if objective == name and value is not None]
        mean = float(np.mean(values)) if values else math.nan
        metric = audit_metric(name)
        yield metric, 1 - mean if metric.startswith("gap ") else mean


def audit_metric(objective: str) -> str:
    """The metric of an audited objective: `gap NAME` where it is 1 - a gap between groups, else `audit NAME`."""
    return f"gap {objective}" if objective.partition(":")[0] in GAPS else f"audit {objective}"


@dataclass(frozen=True, slots=True)
class CorrectRows:
    """Which test rows, in the order of the clients, a model gets right; `test_set` is the SHA-256 of these rows.

    `best` are those that the best model of the same run gets right; None where it was not kept. `success` is the share
    of the rows that attackers aim at for which the model predicts their label; NaN without such attackers.
    """

    correct: NDArray[np.bool_]
    test_set: str
    best: NDArray[np.bool_] | None = None
    success: float = math.nan

    @property
    def of_best(self) -> CorrectRows | None:
        """The same of the best model."""
        return None if self.best is None else CorrectRows(self.best, self.test_set)


class Agreement(NamedTuple):
    """Numbers of test rows that two models get right: both, one alone, or neither."""

    both: int
    only_baseline: int
    only_row: int
    neither: int

    @property
    def neither_if_independent(self) -> float:
        """Expected `neither` of two models with these accuracies and unrelated errors: e_1 * e_2 / n."""
        total = sum(self)
        errors_multiplied = (self.neither + self.only_row) * (self.neither + self.only_baseline)
        return errors_multiplied / total if total else float("nan")


def agreement(baseline: CorrectRows, row: CorrectRows) -> Agreement:
    """Count on which test rows two models agree; refuses results on different test sets.

    PMCFL's tables 3, 5 and 7 count this over test rows that do not match [PMCFL]; here they do.
    """
    if baseline.test_set != row.test_set:
        raise FolderError(
            "agreement is counted on the same test rows, and these runs were tested on different ones: the data has "
            "changed between them; run the study again"
        )
    a, b = baseline.correct, row.correct
    return Agreement(*(int(count.sum()) for count in (a & b, a & ~b, ~a & b, ~a & ~b)))


def find_correct(task: Task, model: Model, best: Model | None = None) -> CorrectRows:
    """Test the final model of a run and its best one, in the same batches as a fleet, so the counts are the ledger's.

    Where the best model is the final one it is tested once.
    """
    final = _correct_rows(task, model)
    same = best is not None and np.array_equal(best, model)
    of_best = final if same or best is None else _correct_rows(task, best)
    digest, success = _digest(task.federation.test), attack_success(task, model)
    return CorrectRows(final, digest, None if best is None else of_best, success)


def attack_success(task: Task, model: Model) -> float:
    """Measure the success of label flippers and backdoors on the clean test rows; NaN where nobody changes rows."""
    test, classes = task.federation.test, task.federation.classes
    shares = [
        make_probe(coalition.attack, test.x, test.y, classes).success(task.learner, model)
        for coalition in task.attackers.coalitions
        if isinstance(coalition.attack, RowAttack)
    ]
    return float(np.mean(shares)) if shares else math.nan


def _correct_rows(task: Task, model: Model) -> NDArray[np.bool_]:
    test = task.federation.test
    batches = [slice(start, start + TEST_ROWS) for start in range(0, len(test.y), TEST_ROWS)]
    correct = [right_rows(task.learner, model, test.x[batch], test.y[batch]) for batch in batches]
    return np.concatenate([np.zeros(0, np.bool_), *correct])


def write_correct(path: Path, rows: CorrectRows) -> None:
    """Write the rows as packed bits; the file appears whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    file = io.BytesIO()
    best: dict[str, Any] = {} if rows.best is None else {"best": np.packbits(rows.best)}
    success: dict[str, Any] = {} if math.isnan(rows.success) else {"success": rows.success}
    np.savez(file, bits=np.packbits(rows.correct), number=len(rows.correct), rows=rows.test_set, **best, **success)
    write_new_file(path, file.getvalue())


def read_correct(path: Path) -> CorrectRows | None:
    """Read what `write_correct` wrote; None without a file, as where clients share no model."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            bits = {
                name: np.unpackbits(file[name], count=int(file["number"])).astype(np.bool_)
                for name in ("bits", "best")
                if name in file
            }
            success = float(file["success"]) if "success" in file else math.nan
            return CorrectRows(bits["bits"], str(file["rows"]), bits.get("best"), success)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise FolderError(f"{path} is damaged: {error}; remove it and call `fedmerit compare` again") from None


def _digest(test: Split) -> str:
    digest = sha256()
    for part in (test.x, test.y, test.offsets):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
