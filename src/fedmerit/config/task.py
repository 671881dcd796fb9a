"""[task] and [facts]: the data, its partition over clients, the model, and facts about the clients."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from fedmerit.config.attack import Attacks
from fedmerit.config.sections import Count, Positive, Range, Section, Share, foreign, refuse_idle
from fedmerit.errors import ConfigError

Made: TypeAlias = Literal["iid", "shards", "dirichlet", "label-groups", "label-draws"]
Partition: TypeAlias = Literal["default", "natural", "attribute", "attribute-label", Made]

PARTITIONS: Mapping[str, tuple[str, ...]] = {
    "iid": (),
    "shards": (),
    "dirichlet": ("alpha",),
    "natural": (),
    "label-groups": ("groups",),
    "label-draws": ("groups", "size", "alpha"),
    "attribute": ("attribute", "alpha"),
    "attribute-label": ("attribute", "alpha"),
}
"""The options of [task] that each partition uses."""

OF_KINDS = ("attribute",)
"""The options that task.kinds uses, whatever the partition."""

NODES = "nodes"
"""The value of `task.data` where each node holds its own rows."""
CLEANING = ("drop", "rename", "replace", "strict")
IDLE = ("partition", "clients", "without", "kinds", "attack", "client", "target", "tolerance", *CLEANING)
"""The keys of [task] that have no effect with nodes: they split rows, or need other targets than classes."""

Words: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1)]
Columns: TypeAlias = (
    Annotated[dict[str, Literal["number"] | Words], Field(min_length=1)]
    | Annotated[tuple[Count, ...], Field(min_length=1)]
)
Classes: TypeAlias = Annotated[int, Field(ge=2, strict=True)] | Annotated[tuple[str, ...], Field(min_length=2)]

TABLE = "table:"
"""Prefix of `task.data` that names a file, several, or a folder."""
SEVERAL = "|"
"""Separates the files of a list."""
OF_TABLES = ("client", "label", "target", "tolerance", "attributes", "features", "standardise", *CLEANING)
"""The keys that only tables use."""

OPTIONS = tuple(dict.fromkeys([*(key for keys in PARTITIONS.values() for key in keys), *OF_KINDS]))


class NodesConfig(Section):
    """[task.nodes]: the names of the nodes and the layout of their rows, the same for all nodes."""

    names: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="names of the clients; each node is started with one of them"
    )
    classes: Classes = Field(description="the classes in order, or their number where labels are 0, 1, ... already")
    columns: Columns = Field(
        description='of a table: each column is "number", or the list of its values; of arrays: the shape of a row, '
        "[30] or [height, width, channels]"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("names must differ from each other; rename one of the nodes")
        if not all(name.strip() for name in self.names):
            raise ValueError(f"names must not be empty (got {list(self.names)!r:.80}); name each node")
        columns = self.columns if isinstance(self.columns, dict) else {}
        for name, words in {"classes": self.classes, **columns}.items():
            if isinstance(words, tuple) and len(set(words)) != len(words):
                raise ValueError(f"{name} must list each value once; remove the repeated one")
        return self

    @property
    def labels(self) -> int:
        """The number of classes."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


def _files(value: Any) -> Any:
    """A list of files as one text."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
        return value
    return TABLE + SEVERAL.join(one.removeprefix(TABLE) for one in value)


class TaskConfig(Section):
    """[task]: the data, its partition over clients, and the model.

    An option that the partition does not use is an error. `check_options` checks it for partition = "default", which
    depends on the task.
    """

    data: Annotated[str, BeforeValidator(_files)] = Field(
        "digits",
        description="a task of `fedmerit list tasks`, `table:FILE` (CSV, Parquet; a pattern, a folder or a list of "
        "files too), `nodes`, or `module:attribute`",
    )
    partition: Partition = Field(
        "default", description="how training rows are split over clients; `default`: the first partition of the task"
    )
    clients: Count | None = Field(None, description="number of clients; default: by task")
    without: tuple[str, ...] = Field(
        (), description="names of clients that left the federation (`fedmerit run --without`); default: none"
    )
    model: str = Field("default", description="a model of the task, see `fedmerit list tasks`; `default`: its first")
    kinds: dict[str, Share] = Field(
        {},
        description="share of the clients with a fault: imbalanced, biased, poisoned, poor, free_rider; default: none",
    )
    attack: Attacks = Field((), description="simulated attackers, see [task.attack]; default: none")
    alpha: Positive = Field(
        0.5, description="concentration of the Dirichlet distribution; smaller: clients differ more"
    )
    groups: tuple[tuple[int, ...], ...] = Field((), description="labels of each group of clients; default: by task")
    size: Range | None = Field(
        None, description="rows per client, or [min, max] to draw from; default: an even share of the group's rows"
    )
    attribute: str = Field(
        "sex",
        description="attribute that the partition uses, several as sex+race; faulty clients harm its group 0",
    )
    test: Literal["default", "slices", "matched"] | Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        "default",
        description="test rows of a client: `slices` of the test set, or `matched` to its labels; `default`: by task; "
        "of a table the share of each client's rows",
    )
    server: Annotated[int, Field(ge=0, strict=True)] | str = Field(
        0, description="training rows that only the server has, to test models on; with nodes the file of its rows"
    )
    validation: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        0.0,
        description="share of each client's training rows kept for validation, for searches and early stopping",
    )
    client: str = Field(
        "", description="of a table: the column that names the client; default: of several files, the file"
    )
    label: str = Field("", description="of a table: the column to predict")
    target: Literal["classes", "number"] = Field(
        "classes", description="of a table: the label is one of several `classes`, or a `number`"
    )
    tolerance: Positive | None = Field(
        None, description='with `target = "number"`: largest error of a prediction that counts as correct'
    )
    attributes: tuple[str, ...] = Field(
        (), description="of a table: columns that define groups, for criteria and fairness; default: none"
    )
    features: tuple[str, ...] = Field(
        (), description="of a table: the columns to learn from; default: all remaining columns"
    )
    standardise: Literal["client", "none"] = Field(
        "client", description="of a table: standardise numbers by each `client`'s training rows, or `none`"
    )
    drop: tuple[str, ...] = Field((), description="of a table: columns to leave out; default: none")
    rename: dict[str, str] = Field(
        {}, description="of a table: other names for columns, such as {Creat = 'creatinine'}; default: none"
    )
    replace: dict[str, dict[str, str]] = Field(
        {},
        description="of a table: for a column, values to read as another, '' as missing, such as "
        "{sex = {F = 'female'}}; default: none",
    )
    strict: Annotated[bool, Field(strict=True)] = Field(
        False, description="of a table: refuse a table with suspicions, which `fedmerit doctor` lists"
    )
    nodes: NodesConfig | None = Field(
        None, description="nodes that have their own rows, see [task.nodes]; default: none"
    )

    @field_validator(*OF_TABLES, mode="before")
    @classmethod
    def _of_a_table(cls, value: Any, info: ValidationInfo) -> Any:
        data = info.data.get("data", TABLE)
        if not data.startswith(TABLE) and data != NODES:
            raise foreign(
                f"task.{info.field_name} needs a table (got task.data = {data!r}); remove it, or set 'table:FILE'"
            )
        return value

    @model_validator(mode="after")
    def _rows_lie_somewhere(self) -> Self:
        if (self.data == NODES) != (self.nodes is not None):
            raise foreign(
                f"task.data = {NODES!r} and [task.nodes] need each other (got {self.data!r}); set both or none"
            )
        if self.server and isinstance(self.server, str) != (self.data == NODES):
            raise foreign(f"task.server is a number of rows, with nodes the file of its rows (got {self.server!r})")
        if self.data == NODES:
            refuse_idle(
                self,
                (*IDLE, *OPTIONS),
                'with task.data = "nodes", where each node has its own rows; remove it',
            )
        return self

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if self.without and (self.kinds or self.attack):
            raise ValueError(
                "kinds and attack are drawn among all clients, so none of them can leave (task.without); remove one"
            )
        if self.size is not None and self.size[0] > self.size[1]:
            raise ValueError(f"size must be [min, max] with min <= max (got {list(self.size)})")
        if self.tolerance is not None and self.target != "number":
            raise ValueError(f'tolerance needs target = "number" (got "{self.target}"); remove it')
        return self

    @field_validator(*OPTIONS, mode="before")  # runs for keys that were given, after `partition` and `kinds`
    @classmethod
    def _belongs(cls, value: Any, info: ValidationInfo) -> Any:
        partition, kinds = info.data.get("partition", "default"), info.data.get("kinds")
        if partition != "default" and info.field_name not in _taken(partition, kinds):
            raise foreign(_refusal(str(info.field_name), partition))
        return value

    @model_serializer(mode="wrap")
    def _without_foreign_options(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Dump only the options that the partition uses, so that the dump loads; with `default` the given ones."""
        kept = _taken(self.partition, self.kinds) if self.partition != "default" else self.model_fields_set
        foreign_keys = {*OPTIONS} - {*kept} | self._foreign_to_data() | (set() if self.without else {"without"})
        return {key: value for key, value in dump(self).items() if key not in foreign_keys}

    def _foreign_to_data(self) -> set[str]:
        """The keys that this data does not use."""
        if self.data == NODES:
            return {*IDLE}
        return {"nodes"} if self.data.startswith(TABLE) else {*OF_TABLES, "nodes"}


def check_options(config: TaskConfig) -> None:
    """Refuse options that the partition does not use, after `default` was replaced by the task's partition."""
    taken = _taken(config.partition, config.kinds)
    extra = [key for key in OPTIONS if key in config.model_fields_set and key not in taken]
    if extra:
        raise ConfigError("; ".join(_refusal(key, config.partition) for key in extra))


def task_keys(partition: str) -> tuple[str, ...]:
    """The keys of [task] that this partition uses, with or without task.kinds."""
    return tuple(key for key in TaskConfig.model_fields if key not in OPTIONS or key in _taken(partition, {"any": 1}))


def _taken(partition: str, kinds: Collection[str] | None) -> tuple[str, ...]:
    return (*PARTITIONS[partition], *(OF_KINDS if kinds else ()))


def _refusal(key: str, partition: str) -> str:
    others = sorted(name for name, keys in PARTITIONS.items() if key in keys)
    if key not in OF_KINDS:
        taken = ", ".join(PARTITIONS[partition]) or "no options"
        return (
            f"partition {partition} does not use {key!r} (it uses {taken}); remove it, or use partition "
            f"{', '.join(others)}"
        )
    also = f" or one of the partitions {', '.join(others)}" if others else ""
    return f"task.{key} needs task.kinds{also} (got partition {partition}); remove it"


class FactsConfig(Section):
    """[facts]: your own facts about each client, for criteria `fact:NAME`."""

    file: str = Field(
        description="CSV file with one line per client; the column `client`, `id` or `name`, else the first, names the "
        "client, and the remaining columns are facts"
    )
