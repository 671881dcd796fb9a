"""[task.nodes]: a federation whose rows lie with its nodes; the server knows names and layout, and no row."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from fedmerit.config.sections import Count, Section

NODES = "nodes"
"""What `task.data` says where each node has rows of its own."""
IDLE = ("partition", "clients", "kinds", "attack", "server", "client", "target", "tolerance")
"""The keys of [task] that nodes do not take: those that deal out rows, and targets other than classes."""

Words: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1)]
Classes: TypeAlias = Annotated[int, Field(ge=2, strict=True)] | Annotated[tuple[str, ...], Field(min_length=2)]


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
