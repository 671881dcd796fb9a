"""Task `nodes`: every node has rows of its own, and nobody has them all."""

from __future__ import annotations

from typing import NoReturn

from fedmerit.config.schema import TaskConfig
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError
from fedmerit.tasks.nodes import server_data, shape_of
from fedmerit.tasks.task_spec import TaskSpec


def _load(config: TaskConfig, seed: int) -> NoReturn:
    raise ConfigError(
        'with task.data = "nodes" the rows lie with the nodes, and nobody can load them all; run it on SuperNodes: '
        "fedmerit flower CONFIG.toml (docs/flower.md); to simulate on this machine, use a table of all rows"
    )


def _load_client(config: TaskConfig, seed: int, client: ClientId) -> NoReturn:
    raise ConfigError(
        "this node was not told where its rows are; start it with --node-config \"data='FILE' name='NAME'\""
    )


NODES = TaskSpec(
    name="nodes",
    about="rows that lie with their nodes; names and layout in [task.nodes]",
    load=_load,
    models=("mlp", "linear"),
    partitions=("natural",),
    test="matched",
    load_client=_load_client,
    load_server=server_data,
    shape=shape_of,
)
