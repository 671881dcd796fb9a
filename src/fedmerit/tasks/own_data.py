"""User data in Python: tables and arrays as a federation; `Federation.from_...` calls these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig, validate
from fedmerit.config.task import SEVERAL
from fedmerit.config.task import TABLE as PREFIX
from fedmerit.core.targets import TargetKind
from fedmerit.core.types import Samples
from fedmerit.errors import DataError
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.checks import as_rows, check_labels, check_samples
from fedmerit.tasks.federation import Federation, Ids, Raw, Split
from fedmerit.tasks.files import joined, read_tables
from fedmerit.tasks.formats.table_files import Table
from fedmerit.tasks.table import TABLE, table_federation

Arrays: TypeAlias = tuple[Any, Any] | tuple[Any, Any, Mapping[str, Any]]
"""A client's inputs, labels and optional attributes."""


def table_of(table: Table, seed: int, settings: Mapping[str, Any]) -> Federation:
    """Build the federation of a table, with the keys of [task] as settings."""
    config = _settings(f"{PREFIX}{table.source}", settings)
    return table_federation(joined({"": table}, config), config, TABLE, seed)


def files_of(paths: Path | str | Sequence[Path | str], seed: int, settings: Mapping[str, Any]) -> Federation:
    """Build the federation of a folder, a pattern or a list of files, with the keys of [task] as settings."""
    names = [paths] if isinstance(paths, str | Path) else list(paths)
    if not names:
        raise DataError("a federation needs at least one file (got an empty list)")
    # One file is a list too: its stem is the client's name.
    config = _settings(PREFIX + SEVERAL.join(map(str, names)), settings)
    return table_federation(read_tables(config, several=True), config, TABLE, seed)


def _settings(data: str, settings: Mapping[str, Any]) -> TaskConfig:
    if "tolerance" in settings:
        raise DataError("tolerance is a setting of the learner: use TorchLearner(build, target=Number(tolerance=...))")
    return validate(TaskConfig, {"data": data, **_plain(settings)}, "task")


def clients_of(
    clients: Mapping[str, Arrays],
    classes: int | None,
    target: TargetKind,
    test: float | Mapping[str, Arrays],
    seed: int,
    settings: Mapping[str, Any],
) -> Federation:
    """Build the federation of arrays by client; `test` is a share of each client's rows, or separate arrays."""
    if not clients:
        raise DataError("a federation needs at least one client (got none)")
    parts = {str(name): _client(str(name), arrays, target) for name, arrays in clients.items()}
    raw = _joined(parts, classes, target)
    if not isinstance(test, Mapping):
        return _dealt(raw, test, seed, settings)
    if set(test) != set(clients):
        raise DataError(f"test needs rows of the same clients ({', '.join(sorted(set(test) ^ set(clients)))} differ)")
    federation = _dealt(raw, 0.0, seed, settings)
    tests = {name: _client(name, test[name], target) for name in federation.names}
    rows = _joined(tests, raw.classes, target)
    offsets = np.cumsum([0, *(len(samples) for samples in tests.values())])
    return replace(federation, test=Split(rows.x, rows.y, offsets, rows.attributes))


def _dealt(raw: Raw, test: float, seed: int, settings: Mapping[str, Any]) -> Federation:
    config = settle(validate(TaskConfig, {"data": PREFIX, "test": "matched", **_plain(settings)}, "task"), TABLE)
    if not 0 <= test < 1:
        raise DataError(f"test must be the share of each client's rows to test on, 0 to below 1 (got {test})")
    return build_federation(raw, None, config, TABLE, seed, random_share=test)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as in TOML: None is left out."""
    return {key: value for key, value in settings.items() if value is not None}


def _client(name: str, arrays: Any, target: TargetKind) -> Samples:
    """Check one client's rows, while errors can still name the client."""
    x, y, attributes = as_rows(arrays, f"rows of {name}")
    if target == "number" and y.dtype.kind == "i":
        y = y.astype(np.float64)
    if x.ndim < 2 or y.ndim != 1 or not len(x):
        raise DataError(
            f"a client needs rows (N, ...) and labels (N,), at least one ({name!r} has {x.shape} and {y.shape})"
        )
    samples = Samples(x, y, _count(y, target), attributes)
    check_samples(samples, f"rows of {name}", target)
    return samples


def _joined(parts: Mapping[str, Samples], classes: int | None, target: TargetKind) -> Raw:
    """Concatenate all clients' rows."""
    shapes = {part.x.shape[1:] for part in parts.values()}
    attribute_sets = {frozenset(part.attributes) for part in parts.values()}
    if len(shapes) > 1 or len(attribute_sets) > 1:
        raise DataError(f"all clients need rows of one shape and the same attributes (got {shapes or attribute_sets})")
    y = np.concatenate([part.y for part in parts.values()])
    count = len(np.unique(y)) if target == "classes" else _count(y, target)
    if classes not in (None, count) and target != "classes":
        raise DataError(f"classes={classes} has no effect with target={target!r}; remove it")
    number = count if classes is None else classes
    check_labels(y, number, "clients", target)
    attributes = {
        name: np.concatenate([part.attributes[name] for part in parts.values()]) for name in next(iter(attribute_sets))
    }
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
    x = np.concatenate([part.x for part in parts.values()])
    return Raw(x, y, number, attributes, Ids("client", owners, tuple(parts)), target=target)


def _count(labels: NDArray[Any], target: TargetKind) -> int:
    """Number of classes up to the largest label; 1 for a number."""
    return 1 if target == "number" else int(labels.max()) + 1 if labels.dtype.kind in "iu" else 2
