"""[task] and [facts]: which data, how it is spread over clients, which model learns it, and what clients are."""

from __future__ import annotations

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
Partition: TypeAlias = Literal["default", "natural", "attribute", "attribute-label"] | Made

PARTITIONS: Mapping[str, tuple[str, ...]] = {
    "iid": (),
    "shards": ("shards",),
    "dirichlet": ("alpha",),
    "natural": (),
    "label-groups": ("groups",),
    "label-draws": ("groups", "size", "alpha"),
    "attribute": ("attribute", "alpha"),
    "attribute-label": ("attribute", "alpha"),
}
"""The options of [task] that each partition takes."""

OF_KINDS = ("attribute",)
"""The options that planted kinds of clients take, whatever the partition."""

NODES = "nodes"
"""The value of `task.data` where each node holds its own rows."""
IDLE = ("partition", "clients", "kinds", "attack", "server", "client", "target", "tolerance")
"""The keys of [task] that nodes do not take: those that deal out rows, and targets other than classes."""

Words: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1)]
Classes: TypeAlias = Annotated[int, Field(ge=2, strict=True)] | Annotated[tuple[str, ...], Field(min_length=2)]

TABLE = "table:"
"""What `task.data` begins with where it names a file."""
OF_TABLES = ("client", "label", "target", "tolerance", "attributes", "features", "missing", "standardise")
"""The keys that only a table takes."""

OPTIONS = tuple(dict.fromkeys([*(key for keys in PARTITIONS.values() for key in keys), *OF_KINDS]))


class NodesConfig(Section):
    """[task.nodes]: who the nodes are, and what their rows look like; all agree on it before the run."""

    names: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="the clients' names; each node is started with one of them"
    )
    classes: Classes = Field(
        description="the words of the label, in order; or their number, where labels are 0, 1, ... already"
    )
    columns: dict[str, Literal["number"] | Words] = Field(
        {}, description='of tables: each column as "number", or as the list of its words'
    )
    shape: tuple[Count, ...] = Field((), description="of arrays: the shape of a row, [30] or [height, width, channels]")
    server: str = Field("", description="a file of the server's own rows, for `validated:` criteria; none: it has none")
    most_rows: Count | None = Field(None, description="the most training rows that a node may claim; none: no bound")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("names tell nodes apart, and two are the same")
        if bool(self.columns) == bool(self.shape):
            raise ValueError("give the columns of a table, or the shape of rows that are arrays")
        for name, words in {"classes": self.classes, **self.columns}.items():
            if isinstance(words, tuple) and len(set(words)) != len(words):
                raise ValueError(f"the words of {name} are listed once each")
        return self

    @property
    def labels(self) -> int:
        """How many classes there are."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


def _spelt(value: Any) -> Any:
    """True stands for `mean`, false for `none`."""
    return {True: "mean", False: "none"}[value] if isinstance(value, bool) else value


class TaskConfig(Section):
    """[task]: which data, how it is spread over clients, which model learns from it.

    An option that the partition does not take is refused. Which one `default` stands for is known with the task: see
    `check_options`.
    """

    data: str = Field(
        "digits", description="a task of `fedmerit tasks`, table:FILE (CSV, Parquet), nodes, or module:attribute"
    )
    partition: Partition = Field(
        "default", description="how the training rows are spread over the clients; `default`: the task's first"
    )
    clients: Count | None = Field(None, description="number of clients; natural partitions default to all")
    model: str = Field("default", description="a model of the task, see `fedmerit tasks`")
    kinds: dict[str, Share] = Field(
        {},
        description="share of the clients of each planted kind: imbalanced, biased, poisoned, poor, free_rider",
    )
    attack: Attacks = Field((), description="clients that attack, see [task.attack]")
    shards: Count = Field(2, description="shards per client")
    alpha: Positive = Field(0.5, description="concentration of the Dirichlet draw: smaller is more unlike")
    groups: tuple[tuple[int, ...], ...] = Field((), description="labels of each group")
    size: Range | None = Field(
        None, description="rows per client, or [least, most] to draw from; default: an even share of its group's"
    )
    attribute: str = Field(
        "sex",
        description="the attribute that partitions go by; several: sex+race; kinds of clients harm its group 0",
    )
    test: Literal["default", "slices", "matched"] | Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        "default",
        description="`slices` of the test set in file order, or `matched` to each client's labels; "
        "`default`: as the task has it; of a table also the share of each client's rows",
    )
    server: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="training rows that the server keeps to validate models on, and no client has"
    )
    validation: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        0.0,
        description="share of each client's training rows kept for validation: "
        "what a search or an acceptance test asks about",
    )
    client: str = Field("", description="of a table: the column that says to which client a row belongs")
    label: str | tuple[str, ...] = Field(
        "", description='of a table: the column to predict; a list of columns with target = "labels"'
    )
    target: Literal["classes", "number", "labels"] = Field(
        "classes", description="of a table: what the label is: one of several classes, a number, or several of 0 and 1"
    )
    tolerance: Positive | None = Field(
        None, description='of target = "number": a prediction that is off by so much or less counts as right'
    )
    attributes: tuple[str, ...] = Field((), description="of a table: columns of groups, for criteria and fairness")
    features: tuple[str, ...] = Field((), description="of a table: the columns to learn from; none: all the others")
    missing: Literal["impute", "drop"] = Field(
        "impute", description="of a table: gaps in numbers get the client's median, or their rows are dropped"
    )
    standardise: Literal["client", "none"] = Field(
        "client", description="of a table: numbers standardised by each client's own training rows, or left as they are"
    )
    sites: dict[str, tuple[Annotated[int, Field(ge=0, strict=True)] | str, ...]] = Field(
        {}, description="clients, by name or number, of each site, for the limit site-cap; default: each is a site"
    )

    centre: Annotated[Literal["none", "mean", "standard"], BeforeValidator(_spelt)] = Field(
        "none",
        description="`mean`: inputs minus the federation's mean, from sums that clients send once before round 1; "
        "`standard`: also divided by its deviation",
    )
    nodes: NodesConfig | None = Field(None, description="rows that lie with their nodes, see [task.nodes]")

    @field_validator(*OF_TABLES, mode="before")
    @classmethod
    def _of_a_table(cls, value: Any, info: ValidationInfo) -> Any:
        data = info.data.get("data", TABLE)
        if not data.startswith(TABLE) and data != NODES:
            raise foreign(f"task.{info.field_name} is for tables, task.data = 'table:FILE'; got task.data = {data!r}")
        return value

    @model_validator(mode="after")
    def _rows_lie_somewhere(self) -> Self:
        if (self.data == NODES) != (self.nodes is not None):
            raise foreign(f"task.data = {NODES!r} and [task.nodes] go together; got task.data = {self.data!r}")
        if self.data == NODES:
            refuse_idle(
                self,
                (*IDLE, *OPTIONS),
                'with task.data = "nodes", where each has its own rows and classes; leave it out',
            )
        return self

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if self.size is not None and self.size[0] > self.size[1]:
            raise ValueError(f"size is [least, most], the least first; got {list(self.size)}")
        if self.tolerance is not None and self.target != "number":
            raise ValueError(f'tolerance is for target = "number"; got target = "{self.target}": leave it out')
        if isinstance(self.label, tuple) != (self.target == "labels"):
            raise ValueError(
                'label is one column, or with target = "labels" a list of columns; got '
                f'label = {self.label!r} and target = "{self.target}"'
            )
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
        """So that dumps load again: of the options, those that belong; with `default`, those that were given."""
        kept = _taken(self.partition, self.kinds) if self.partition != "default" else self.model_fields_set
        foreign_keys = {*OPTIONS} - {*kept} | self._foreign_to_data()
        return {key: value for key, value in dump(self).items() if key not in foreign_keys}

    def _foreign_to_data(self) -> set[str]:
        """The keys that say nothing of this data."""
        if self.data == NODES:
            return {*IDLE}
        return {"nodes"} if self.data.startswith(TABLE) else {*OF_TABLES, "nodes"}


def check_options(config: TaskConfig) -> None:
    """Refuse options that the partition does not take, once the task's own stands in place of `default`."""
    taken = _taken(config.partition, config.kinds)
    extra = [key for key in OPTIONS if key in config.model_fields_set and key not in taken]
    if extra:
        raise ConfigError("; ".join(_refusal(key, config.partition) for key in extra))


def task_keys(partition: str) -> tuple[str, ...]:
    """The keys of [task] that go with this partition, whatever kinds of clients are planted."""
    return tuple(key for key in TaskConfig.model_fields if key not in OPTIONS or key in _taken(partition, {"any": 1}))


def _taken(partition: str, kinds: Collection[str] | None) -> tuple[str, ...]:
    return (*PARTITIONS[partition], *(OF_KINDS if kinds else ()))


def _refusal(key: str, partition: str) -> str:
    others = sorted(name for name, keys in PARTITIONS.items() if key in keys)
    if key not in OF_KINDS:
        taken = ", ".join(PARTITIONS[partition]) or "no options"
        return (
            f"partition {partition} does not take {key!r}; it takes: {taken}; "
            f"partitions that take it: {', '.join(others)}"
        )
    also = f" or one of the partitions {', '.join(others)}" if others else ""
    return f"task.{key} needs task.kinds, the kinds of clients to plant,{also}; partition {partition} does not take it"


def _worded(value: object) -> object:
    """TOML's true as a CSV has it, in letters."""
    return str(value).lower() if isinstance(value, bool) else value


Number: TypeAlias = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Value: TypeAlias = Annotated[Number | str, BeforeValidator(_worded)]


class FactsConfig(Section):
    """[facts]: facts of each client's own, which criteria `fact:NAME` read."""

    file: str = Field("", description="a CSV file with a line per client; its other columns are the facts")
    client: str = Field("", description="its column that names the client; default: client, id, name, or the first")
    columns: dict[str, tuple[Value, ...]] = Field(
        {}, description="facts column by column instead: a number, a word or true per client, in their order"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == bool(self.columns):
            raise ConfigError(
                "[facts] takes file = 'clients.csv', or [facts.columns] with age = [34, 51] and the like; got "
                + ("both" if self.file else "neither")
            )
        if self.client and not self.file:
            raise ConfigError("facts.client names a column of facts.file; leave it out, or give the file")
        return self
