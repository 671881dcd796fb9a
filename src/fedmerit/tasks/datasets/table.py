"""Task `table:FILE`: a CSV or Parquet file of one's own, with a column that says to which client each row belongs."""

from __future__ import annotations

from pathlib import Path

from fedmerit.config.schema import TaskConfig
from fedmerit.config.task import TABLE as PREFIX
from fedmerit.core.targets import Target
from fedmerit.errors import ConfigError
from fedmerit.tasks.encoding import make_target
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.table import prepare, table_federation
from fedmerit.tasks.task_spec import MADE, SENSITIVE, TaskSpec


def _read(config: TaskConfig) -> Table:
    path = config.data.removeprefix(PREFIX)
    if not path:
        raise ConfigError(f"task.data = '{PREFIX}FILE' names a CSV or Parquet file; got {config.data!r}")
    if config.source != "folder":
        raise ConfigError(f"task.source has no effect on a table, which {config.data!r} names; leave it out")
    return read_table(Path(path).expanduser())


def _load(config: TaskConfig, seed: int) -> Federation:
    return table_federation(_read(config), config, TABLE, seed)


def _shape(config: TaskConfig) -> tuple[int, int]:
    return prepare(_read(config), config).shape


def _target(config: TaskConfig) -> Target:
    if config.target != "number":
        return make_target(config)
    scale = prepare(_read(config), config).scale
    return make_target(config, scale.mean, scale.deviation)


TABLE = TaskSpec(
    name="table:FILE",
    about="a CSV or Parquet file of your own: task.client, task.label and other columns by name",
    load=_load,
    models=("mlp", "linear"),
    partitions=("natural", *MADE, *SENSITIVE),
    test="matched",
    shape=_shape,
    target=_target,
)
