"""A configuration to start from: four answers become a TOML file whose comments say what each line does."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import tomli_w

from fedmerit.config.schema import make_config
from fedmerit.config.task import TABLE
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.tasks.encoding import MISSING
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.registry import find_task
from fedmerit.tasks.table import prepare

MATTERS: Mapping[str, str] = MappingProxyType(
    {
        "size": "who has more rows counts more (FedAvg)",
        "priority": "criteria in an order that you state, such as label diversity before size",
        "honesty": "some clients may attack or lie, and the server has no rows of its own",
        "validation": "the server has rows of its own and weighs the better half",
        "fairness": "no group of people is left behind; the server has rows of its own",
        "rounds": "few rounds with nothing to tune: clients judge how bold a step pays",
        "rewards": "who puts in more gets a better model of its own",
    }
)
"""What may matter most, in the words of the question."""

PLACES: Mapping[str, str] = MappingProxyType(
    {
        "here": "on this machine",
        "study": "on this machine, several recipes over several seeds, compared",
        "flower": "on Flower, with the data of this machine dealt out to the nodes (a simulation)",
        "nodes": "on Flower, each node with a file of its own (the table is an example of them)",
    }
)
"""Where it may run, in the words of the question."""

TRAIN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"digits": {"lr": 0.5, "epochs": 5, "batch": "full"}, "mnist": {"lr": 0.1}, "fashion-mnist": {"lr": 0.1}}
)
"""Settings of [train] that are known to learn; other tasks start from `OTHERS`."""
OTHERS: Mapping[str, Any] = MappingProxyType({"lr": 0.05, "epochs": 2, "batch": 32})
WHY: Mapping[str, str] = MappingProxyType(
    {
        "name": "`fedmerit recipes` lists them",
        "criteria": "most important first; `fedmerit criteria` lists them",
        "normalise": '"sum" is the papers\' choice, in which a priority hardly counts',
        "score": "the better half, by rank; the others get nothing",
    }
)
"""What the keys of [recipe] are about."""
ORDER = ("task", "task.nodes", "train", "recipe", "run")
"""The sections as the file has them."""
SERVER_MATTERS = ("validation", "fairness")
"""Answers for which the server needs rows of its own."""
MOST_SERVER_ROWS = 200
SERVER_SHARE = 10
"""Of a table, the server keeps one row in so many."""
Lines: TypeAlias = list[tuple[str, Any, str]]
"""Key, value and comment of each line of a section."""


@dataclass(frozen=True, slots=True)
class Starter:
    """Four answers: data, model, what matters, where it runs; and of a table or a question of fairness the columns.

    >>> print(Starter("digits", matters="size").text().splitlines()[2])
    data = "digits"
    """

    data: str
    model: str = ""
    matters: str = "priority"
    where: str = "here"
    client: str = ""
    label: str = ""
    attribute: str = ""

    def __post_init__(self) -> None:
        for kind, got, valid in (("answer to what matters", self.matters, MATTERS), ("place", self.where, PLACES)):
            if got not in valid:
                raise UnknownName(kind, got, valid)
        if self.model and ":" not in self.model and self.model not in find_task(self.data).models:
            raise UnknownName(f"model of {self.data}", self.model, [*find_task(self.data).models, "module:function"])
        if self.is_table and not self.label:
            raise ConfigError(f"the column to predict must be named; {self.data} has {', '.join(columns(self.data))}")
        if self.where == "nodes" and not (self.is_table and self.client):
            raise ConfigError(
                "nodes with files of their own need an example: a table with a column of clients and one to predict; "
                f"got {self.data!r}"
            )
        if self.matters == "fairness" and not self.attribute:
            raise ConfigError("fairness is between groups of people: name the attribute, such as sex")

    @property
    def is_table(self) -> bool:
        """Whether the data is a file of the user's own."""
        return self.data.startswith(TABLE)

    def text(self) -> str:
        """The TOML file, checked: it loads as it stands."""
        study = self.where == "study"
        lines = [f"# What matters: {MATTERS[self.matters]}.", f"# Where it runs: {PLACES[self.where]}."]
        sections = {"task": self._task(), "train": self._train(), "run": self._run()}
        if study:
            lines += _lines([("seeds", 5, "each row is run with each seed; differences are paired by seed")])
        else:
            sections["recipe"] = [(key, value, WHY.get(key, "")) for key, value in self._recipe().items()]
        if self.where == "nodes":
            sections["task.nodes"] = self._nodes()
        for name in [name for name in ORDER if name in sections]:
            lines += [f"\n[{'base.' * study}{name}]", *_lines(sections[name])]
        if study:
            lines += ["\n[[row]]", 'name = "FedAvg"']
            lines += ["\n[[row]]", f'name = "{self.matters}"', _line("recipe", self._recipe())]
        text = "\n".join(lines) + "\n"
        if not study:
            make_config(tomllib.loads(text))
        return text

    def commands(self, file: Path) -> list[str]:
        """What to type next."""
        return {
            "here": [f"fedmerit run {file} --out runs/first", "fedmerit report runs/first --out report.html"],
            "study": [f"fedmerit compare {file} --out runs/study", "fedmerit report runs/study --out report.html"],
            "flower": [f"fedmerit flower {file} --loopback --out runs/first", "fedmerit explain runs/first"],
            "nodes": [f"fedmerit flower {file} --superlink NAME --out runs/first", "fedmerit explain runs/first"],
        }[self.where]

    def _task(self) -> Lines:
        spec, nodes = find_task(self.data), self.where == "nodes"
        dealt = not nodes and (spec.partitions[0] != "natural" or (self.is_table and not self.client))
        data, about = self.data, spec.about.partition(";")[0]
        if nodes:
            data, about = "nodes", "each node is started with a file of its own; docs/flower.md says how"
        possible = (
            (True, "data", data, about),
            (self.is_table and self.client and not nodes, "client", self.client, "the column that says whose a row is"),
            (self.is_table, "label", self.label, "the column to predict"),
            (self.is_table and self.attribute, "attributes", [self.attribute], "columns of groups, for fairness"),
            (dealt, "partition", "dirichlet", "how rows are dealt out: iid, shards, dirichlet ..."),
            (dealt, "alpha", 0.5, "smaller: clients more unlike"),
            (dealt, "clients", 20 if spec.clients is None else spec.clients, ""),
            (True, "model", self.model or spec.models[0], f"or {', '.join([*spec.models[1:], 'module:function'])}"),
            (
                self.matters in SERVER_MATTERS and not nodes,
                "server",
                min(MOST_SERVER_ROWS, max(1, len(_table(self.data)) // SERVER_SHARE))
                if self.is_table
                else MOST_SERVER_ROWS,
                "rows that only the server has, to validate models on",
            ),
            (self.matters == "rounds", "validation", 0.2, "the share of its rows by which a client judges steps"),
        )
        return [(key, value, comment) for wanted, key, value, comment in possible if wanted]

    def _nodes(self) -> Lines:
        """The layout of the example, which all nodes agree on."""
        task = {"data": self.data, "client": self.client, "label": self.label}
        attributes = [self.attribute] if self.attribute else []
        prepared = prepare(_table(self.data), make_config({"task": {**task, "attributes": attributes}}).task)
        kinds = {one.name: [kind for kind in one.kinds if kind != MISSING] or "number" for one in prepared.columns}
        owners, words = prepared.rows.ids, list(prepared.labels)
        counted = words == [str(place) for place in range(len(words))]
        classes = len(words) if counted else words
        server = [("server", "server.csv", "rows of the server's own, to validate models on")]
        return [
            ("names", list(owners.names or ()) if owners else [], "the clients; a node is started with name='NAME'"),
            ("classes", classes, "words of the label in order, or how many numbers from 0"),
            *(server if self.matters in SERVER_MATTERS else []),
            ("columns", kinds, ""),
        ]

    def _train(self) -> Lines:
        train = TRAIN.get(self.data, OTHERS)
        grid = ",".join(f"{train['lr'] * factor:.2g}" for factor in (1 / 3, 1, 3))
        tuned = f"the first thing to tune: fedmerit compare FILE --grid train.lr={grid} --out runs/tuned"
        return [(key, value, tuned if key == "lr" else "") for key, value in train.items()]

    def _run(self) -> Lines:
        # Institutions all take part in every round; of devices, some do.
        few = self.is_table or find_task(self.data).clients is None or self.matters == "rewards"
        seed = [] if self.where == "study" else [("seed", 1, "the same seed gives the same bits")]
        share = ("fraction", 1.0 if few else 0.5, "the share of the clients that train in a round")
        return [("rounds", 25, ""), share, *seed]

    def _recipe(self) -> dict[str, Any]:
        top = {"name": "fedval", "criteria": ["validated:accuracy"], "score": {"rank": "top"}}
        recipes: dict[str, dict[str, Any]] = {
            "size": {"name": "fedavg"},
            "priority": {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"},
            "honesty": {"name": "robust"},
            "validation": top,
            "fairness": {
                **top,
                "criteria": [
                    "validated:accuracy",
                    f"validated:parity:{self.attribute}",
                    f"validated:opportunity:{self.attribute}",
                ],
            },
            "rounds": {"name": "adaptive"},
            "rewards": {"name": "m2f"},
        }
        return recipes[self.matters]


def columns(data: str) -> list[str]:
    """The columns of a table, for the questions about it."""
    return list(_table(data).columns)


def _table(data: str) -> Table:
    return read_table(Path(data.removeprefix(TABLE)).expanduser())


def _lines(lines: Lines) -> Iterator[str]:
    """Keys with their values, and comments that line up."""
    shown = [(_line(key, value), comment) for key, value, comment in lines]
    width = max((len(line) for line, comment in shown if comment and len(line) < 60), default=0)
    for line, comment in shown:
        if comment and len(line) >= 60:
            yield f"# {comment}"
        yield f"{line:{width}}  # {comment}" if comment and len(line) < 60 else line


def _line(key: str, value: Any) -> str:
    """One key on one line, with tables inline."""
    return f"{tomli_w.dumps({key: 0}).partition(' = ')[0]} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_line(key, inner) for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
