"""Data report of a table, made before round 1: files, columns, labels by client, and suspicions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedmerit.config.reading import read_file
from fedmerit.core.showing import printable, shown
from fedmerit.errors import DataError
from fedmerit.tasks.cells import is_missing
from fedmerit.tasks.suspicions import KINDS, Suspicion

MOST_CLIENTS = 200
"""Clients whose labels the page lists."""
BRIEF = 5
"""Suspicions that are printed when a run begins."""


@dataclass(frozen=True, slots=True)
class DataReport:
    """What the reader saw in a table and decided.

    files       each file with its rows, columns and form, where there are several
    columns     each column with its kind, role, number of gaps, and its values
    labels      the number of rows of each client with each label
    suspicions  questions, the gravest first
    decisions   what was imputed, encoded, dropped or standardised
    """

    files: tuple[Mapping[str, Any], ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    suspicions: tuple[Suspicion, ...] = ()
    decisions: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Serialise everything."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: Path) -> DataReport:
        """Read what `to_json` wrote; a DataError for anything else."""
        try:
            return TypeAdapter(DataReport).validate_json(read_file(path))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is damaged ({printable(str(error), 200)}); remove it, or run again") from None

    def page(self) -> dict[str, Any]:
        """What the report page shows: suspicions as texts, columns, and labels of the first clients."""
        texts = [[KINDS.get(one.kind, one.kind), one.text] for one in self.suspicions]
        labels = [[who, list(counts.items())] for who, counts in [*self.labels.items()][:MOST_CLIENTS]]
        return {"suspicions": texts, "files": self.files, "columns": self.columns, "labels": labels}

    def brief(self) -> list[str]:
        """The first suspicion of each of the gravest kinds as lines, and the number of the remaining ones."""
        lines = list({one.kind: one.text for one in reversed(self.suspicions)}.values())[::-1][:BRIEF]
        more = len(self.suspicions) - len(lines)
        return [*lines, *([f"{more} more: `fedmerit doctor CONFIG.toml` lists all"] if more else [])]


def describe_columns(columns: Mapping[str, NDArray[Any]], roles: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Kind, role, gaps and values of each column, over all rows."""
    described = []
    for name, values in columns.items():
        present = values[~is_missing(values)]
        if values.dtype == object:
            text = shown([f"{word} {count:,}" for word, count in Counter(present.tolist()).most_common()])
        else:
            text = " to ".join(f"{edge:g}" for edge in (present.min(), present.max())) if len(present) else ""
        described.append(
            {
                "column": name,
                "kind": "words" if values.dtype == object else "number",
                "role": roles.get(name, "left out"),
                "gaps": len(values) - len(present),
                "distinct": len(set(present.tolist())),
                "values": text,
            }
        )
    return tuple(described)


def count_labels(
    owners: Mapping[str, NDArray[np.int64]], labels: NDArray[Any], words: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Rows of each client by label; only for classes."""
    if labels.dtype.kind == "f":
        return {}
    return {
        who: {
            word: int(count) for word, count in zip(words, np.bincount(labels[rows], minlength=len(words)), strict=True)
        }
        for who, rows in owners.items()
    }
