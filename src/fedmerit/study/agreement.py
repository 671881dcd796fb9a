"""Agreement of errors: which test rows two models get right, on the very same rows (SPEC 0, finding 3)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import Model
from fedmerit.errors import FolderError
from fedmerit.fleet.local import TEST_ROWS
from fedmerit.store.files import write_new_file
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task


@dataclass(frozen=True, slots=True)
class Right:
    """Which test rows, in the order of the clients, a model gets right; `rows` names the test set they are of."""

    right: NDArray[np.bool_]
    rows: str


class Agreement(NamedTuple):
    """Test rows that two models get right both, one alone, or neither."""

    both: int
    only_baseline: int
    only_row: int
    neither: int

    @property
    def neither_if_independent(self) -> float:
        """Shared errors of two models with these accuracies if their errors had nothing to do with each other."""
        total = sum(self)
        wrong = (self.neither + self.only_row) * (self.neither + self.only_baseline)
        return wrong / total if total else float("nan")


def agreement(baseline: Right, row: Right) -> Agreement:
    """Counts over the same rows; results on different test sets are refused."""
    if baseline.rows != row.rows:
        raise FolderError(
            "agreement is counted on the same test rows, and these runs were tested on different ones: the data has "
            "changed between them; run the study again"
        )
    a, b = baseline.right, row.right
    return Agreement(*(int(count.sum()) for count in (a & b, a & ~b, ~a & b, ~a & ~b)))


def find_right(task: Task, model: Model) -> Right:
    """Test a model; in the same cuts as a fleet does, so that the counts are the ledger's."""
    test, predict = task.federation.test, task.learner.predict
    cuts = [slice(start, start + TEST_ROWS) for start in range(0, len(test.y), TEST_ROWS)]
    right = [predict(model, test.x[cut]) == test.y[cut] for cut in cuts]
    return Right(np.concatenate([np.zeros(0, np.bool_), *right]), _name(test))


def write_right(path: Path, found: Right) -> None:
    """As packed bits; the file appears whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    file = io.BytesIO()
    np.savez(file, bits=np.packbits(found.right), number=len(found.right), rows=found.rows)
    write_new_file(path, file.getvalue())


def read_right(path: Path) -> Right | None:
    """None where there is no such file: clients with models of their own have no common one to test."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return Right(np.unpackbits(file["bits"], count=int(file["number"])).astype(np.bool_), str(file["rows"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise FolderError(f"{path} is damaged: {error}; remove it and call `fedmerit compare` again") from None


def _name(test: Split) -> str:
    digest = sha256()
    for part in (test.x, test.y, test.offsets):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
