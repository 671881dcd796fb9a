"""Agreement of models: the numbers of test rows that the best models of two runs get right, both or one alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.targets import right_rows
from fedmerit.core.types import Model
from fedmerit.errors import FolderError
from fedmerit.fleet.local import TEST_ROWS
from fedmerit.store.files import write_new_file
from fedmerit.store.frames import Frame, make_frame
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import BEST
from fedmerit.study.study import Study
from fedmerit.study.study_folder import Member
from fedmerit.tasks.registry import Task, make_task

CORRECT = "correct"
"""The folder in a study's folder that keeps which test rows the best model of each run gets right."""


@dataclass(frozen=True, slots=True)
class CorrectRows:
    """Which test rows, in the order of the clients, a model gets right; `test_set` is the SHA-256 of these rows."""

    correct: NDArray[np.bool_]
    test_set: str


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


COLUMNS = (*Agreement._fields, "neither_if_independent")


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


def best_agreement(study: Study) -> Frame:
    """A line per finished run: the agreement of its best model with the baseline's of the same seed.

    NaN where a run kept no best model. What was counted is kept in the study's folder.
    """
    return make_frame(_lines(study), ("row", "seed", *COLUMNS))


def _lines(study: Study) -> Iterator[dict[str, Any]]:
    finished = {(run.seed, run.row): run for run in study.runs if str(run) not in study.unfinished}
    for (seed, row), run in finished.items():
        baseline = finished.get((seed, study.plan.against))
        line: dict[str, Any] = {"row": row, "seed": seed}
        if baseline is not None and baseline.config.task == run.config.task:
            theirs, ours = correct_of_best(study.folder, baseline), correct_of_best(study.folder, run)
            if theirs is not None and ours is not None:
                counts = agreement(theirs, ours)
                line |= dict(zip(COLUMNS, (*counts, counts.neither_if_independent), strict=True))
        yield line


def correct_of_best(folder: Path, run: Member) -> CorrectRows | None:
    """The test rows that a run's best model gets right, counted once; None where it kept no best model."""
    path = folder / CORRECT / f"{run.folder.name}.npz"
    if path.exists():
        return read_correct(path)
    best = read_model(run.folder / BEST)
    if best is None:
        return None
    found = find_correct(make_task(run.config), best[0])
    write_correct(path, found)
    return found


def find_correct(task: Task, model: Model) -> CorrectRows:
    """Test a model, in the same batches as a fleet, so that the counts are the ledger's."""
    test, digest = task.federation.test, sha256()
    batches = [slice(start, start + TEST_ROWS) for start in range(0, len(test.y), TEST_ROWS)]
    correct = [right_rows(task.learner, model, test.x[batch], test.y[batch]) for batch in batches]
    for part in (test.x, test.y, test.offsets):
        digest.update(np.ascontiguousarray(part).data)
    return CorrectRows(np.concatenate([np.zeros(0, np.bool_), *correct]), digest.hexdigest())


def write_correct(path: Path, rows: CorrectRows) -> None:
    """Write the rows as packed bits; the file appears whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    file = io.BytesIO()
    np.savez(file, best=np.packbits(rows.correct), number=len(rows.correct), rows=rows.test_set)
    write_new_file(path, file.getvalue())


def read_correct(path: Path) -> CorrectRows:
    """Read what `write_correct` wrote."""
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        correct = np.unpackbits(file["best"], count=int(file["number"])).astype(np.bool_)
        return CorrectRows(correct, str(file["rows"]))
