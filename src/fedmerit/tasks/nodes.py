"""Task `nodes`: each client's half of a federation from a local file, by an agreed layout.

The layout is `[task.nodes]`. A node reads its file, fits imputation and scales to its training rows, and draws test and
validation rows as a run on one machine does: the same rows and seed give the same numbers. Errors about a file give
counts and column names, never values, because the server reads them too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.own import import_own, is_own
from fedmerit.config.schema import TaskConfig
from fedmerit.config.task import NODES as DATA
from fedmerit.config.task import NodesConfig
from fedmerit.core.host import ServerSetup
from fedmerit.core.learner import Learner
from fedmerit.core.types import ClientId, Samples
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.build import TEST_SHARE, client_test_rows, client_validation_rows
from fedmerit.tasks.cells import is_missing
from fedmerit.tasks.checks import as_rows, check_samples
from fedmerit.tasks.encoding import Column, as_words, encode, fit_column
from fedmerit.tasks.federation import ClientData
from fedmerit.tasks.formats.table_files import CSV, PARQUET, Table, read_frame, read_table
from fedmerit.tasks.registry import TaskSpec
from fedmerit.tasks.source import read_npz
from fedmerit.tasks.table import MOST_GROUPS, codes_of

NUMBER = "number"
ARRAYS = ".npz"
FORMS = f"a table ({', '.join((*CSV, *PARQUET))}), arrays ({ARRAYS}), or module:function that returns a frame"


@dataclass(frozen=True, slots=True)
class Party:
    """One party's rows before the split: labels, groups, and inputs or the columns that become inputs."""

    y: NDArray[np.int64]
    attributes: Mapping[str, NDArray[Any]]
    x: NDArray[Any] | None = None
    columns: Mapping[str, NDArray[Any]] | None = None


def node_data(config: TaskConfig, seed: int, client: ClientId, source: str) -> ClientData:
    """Return the half of the client whose rows are in `source`."""
    nodes = layout_of(config)
    party = _party(config, nodes, source)
    places = np.arange(len(party.y), dtype=np.int64)
    share = TEST_SHARE if isinstance(config.test, str) else config.test
    test = client_test_rows(places, party.y, "random" if config.test == "slices" else "matched", seed, client, share)
    rest = np.setdiff1d(places, test)
    validation = client_validation_rows(rest, config.validation, seed, client) if config.validation else places[:0]
    train = np.setdiff1d(rest, validation)
    x = _inputs(config, nodes, party, train)
    train_rows, test_rows, held = (_samples(party, nodes, x, rows) for rows in (train, test, validation))
    return ClientData(client, nodes.names[client], train_rows, test_rows, held)


def _samples(party: Party, nodes: NodesConfig, x: NDArray[Any], rows: NDArray[np.int64]) -> Samples:
    attributes = {name: column[rows] for name, column in party.attributes.items()}
    return Samples(x[rows], party.y[rows], nodes.labels, attributes)


def nodes_server(config: TaskConfig, learner: Learner) -> ServerSetup:
    """Return the server's half: names, and the server's rows if it has a file; no row of a node."""
    nodes = layout_of(config)
    rows = None
    if isinstance(config.server, str):
        party = _party(config, nodes, config.server)
        x = _inputs(config, nodes, party, np.arange(len(party.y)))
        rows = Samples(x, party.y, nodes.labels, party.attributes)
    return ServerSetup(nodes.names, learner, rows, {"labels": float(nodes.labels)})


def shape_of(config: TaskConfig) -> tuple[int, int]:
    """Numbers of inputs and classes."""
    nodes = layout_of(config)
    columns = _layout(config, nodes)
    return sum(column.width for column in columns) if columns else int(np.prod([*nodes.columns])), nodes.labels


def layout_of(config: TaskConfig) -> NodesConfig:
    """Return [task.nodes] after a check against [task]."""
    nodes = config.nodes
    assert nodes is not None  # task.data = "nodes" needs it
    if not isinstance(nodes.columns, dict):
        if given := [key for key in ("label", "attributes", "features") if getattr(config, key)]:
            raise ConfigError(
                f"task.{given[0]} names a column, but task.nodes.columns is the shape of a row; remove it"
            )
        return nodes
    if not config.label or config.label in nodes.columns:
        raise ConfigError("task.label must name the column to predict, and task.nodes.columns must not list it")
    unknown = [name for name in (*config.features, *config.attributes) if name not in nodes.columns]
    if unknown:
        raise ConfigError(
            f"task.nodes.columns must list every column of features and attributes (missing: {unknown[0]!r})"
        )
    return nodes


def _layout(config: TaskConfig, nodes: NodesConfig) -> list[Column]:
    """Columns of a table to learn from, not yet fitted."""
    if not isinstance(nodes.columns, dict):
        return []
    kinds = {name: () if isinstance(words, str) else words for name, words in nodes.columns.items()}
    return [Column(name, kinds[name]) for name in config.features or kinds]


def _party(config: TaskConfig, nodes: NodesConfig, source: str) -> Party:
    """Read the source and check it against the layout."""
    data, columns = _read(source), nodes.columns
    if isinstance(data, Table) and isinstance(columns, dict):
        return _of_table(config, nodes, columns, data)
    if isinstance(data, Table) or isinstance(columns, dict):
        wanted, got = ("arrays", "a table") if isinstance(data, Table) else ("a table", "arrays")
        raise DataError(f"[task.nodes] describes {wanted}, but this node's data is {got}; change one of the two")
    x, y, attributes = as_rows((data.pop("x"), data.pop("y"), data), "rows of this node")
    if x.shape[1:] != columns or not len(x):
        raise DataError(f"rows must have shape {columns} of [task.nodes] (this node has {len(x)} of {x.shape[1:]})")
    check_samples(Samples(x, y, nodes.labels, attributes), "rows of this node")
    return Party(y, attributes, x)


def _read(source: str) -> Table | dict[str, NDArray[Any]]:
    """Read a table or arrays; errors give a file's name without its folder, because the server reads them too."""
    path = Path(source).expanduser()
    name = path.name.lower()
    try:
        if name.endswith((*CSV, *PARQUET)):
            return read_table(path)
        if name.endswith(ARRAYS):
            return read_npz(path, ("x", "y"), kinds="iubf", others=True)
    except DataError as error:
        raise DataError(str(error).replace(str(path.absolute()), path.name).replace(str(path), path.name)) from None
    if is_own(source):
        return read_frame(import_own("data", source, "a function that returns a frame")())
    raise DataError(f"a node's data must be {FORMS}; {path.name!r} is missing or another kind of file")


def _of_table(config: TaskConfig, nodes: NodesConfig, kinds: Mapping[str, Any], table: Table) -> Party:
    lacking = [name for name in (config.label, *kinds) if name not in table.columns]
    if lacking:
        raise DataError(f"this node's table lacks columns of [task.nodes]: {', '.join(lacking)}")
    keep = ~is_missing(table.columns[config.label])
    columns = {name: table.columns[name][keep] for name in kinds}
    for name, values in columns.items():
        _check_column(name, values, kinds[name] == NUMBER)
    y = _classes(nodes, config.label, table.columns[config.label][keep])
    return Party(y, {name: _groups(name, columns[name], kinds[name]) for name in config.attributes}, columns=columns)


def _check_column(name: str, values: NDArray[Any], number: bool) -> None:
    if number and values.dtype == object and not is_missing(values).all():
        raise DataError(f"column {name} is a number in [task.nodes], but this node's column contains words")
    if values.dtype != object and np.isinf(values).any():
        raise DataError(f"column {name} contains infinity; values must be finite or missing")


def _classes(nodes: NodesConfig, label: str, values: NDArray[Any]) -> NDArray[np.int64]:
    """Turn labels into class numbers; every label must be in the layout."""
    if isinstance(nodes.classes, int):
        kinds: list[Any] = [float(place) for place in range(nodes.classes)]
    else:
        kinds, values = list(nodes.classes), as_words(values)
    y = codes_of(values, kinds, -1)
    if (y < 0).any():
        raise DataError(
            f"{int((y < 0).sum())} rows have a label {label} that is not in task.nodes.classes; add it there"
        )
    return y


def _groups(name: str, values: NDArray[Any], kinds: str | tuple[str, ...]) -> NDArray[np.uint8]:
    """Turn an attribute into groups: the place of a word in the layout, or the integer itself; unlisted words last."""
    if isinstance(kinds, tuple):
        return codes_of(as_words(values), kinds, len(kinds)).astype(np.uint8)
    gaps = is_missing(values)
    numbers = values[~gaps].astype(np.float64)
    if gaps.any() or ((numbers < 0) | (numbers >= MOST_GROUPS) | (numbers % 1 != 0)).any():
        raise DataError(f"attribute {name} must be an integer below {MOST_GROUPS} in every row, or words in the layout")
    return numbers.astype(np.uint8)


def _inputs(config: TaskConfig, nodes: NodesConfig, party: Party, train: NDArray[np.int64]) -> NDArray[Any]:
    """Encode all rows; imputation and scales use the training rows only."""
    if party.x is not None:
        return party.x
    assert party.columns is not None  # a party has one of the two
    columns, values = _layout(config, nodes), dict[str, NDArray[Any]]()
    for name, kinds in ((column.name, column.kinds) for column in columns):
        cells = party.columns[name]
        no_words = cells if cells.dtype != object else np.full(len(cells), np.nan)
        values[name] = as_words(cells) if kinds else no_words
    standardise = config.standardise == "client"
    return encode([fit_column(one, values[one.name], [train], [train], standardise) for one in columns], values, 0)


def _load(config: TaskConfig, seed: int) -> NoReturn:
    raise ConfigError(
        'task.data = "nodes" cannot be loaded on one machine, because the rows are on the nodes; run it on SuperNodes: '
        "fedmerit flower run CONFIG.toml (docs/flower.md); to simulate it here, use a table of all rows"
    )


NODES = TaskSpec(
    name=DATA,
    about="rows that stay on their nodes; names and layout in [task.nodes]",
    load=_load,
    models=("mlp", "linear"),
    partitions=("natural",),
    test="matched",
    sized=True,
)
