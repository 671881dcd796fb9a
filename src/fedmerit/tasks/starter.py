"""A commented TOML configuration, made from the answers to the questions of `fedmerit init`."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tomli_w

from fedmerit.config.recipe import split_names
from fedmerit.config.schema import make_config
from fedmerit.config.task import TABLE
from fedmerit.core.collect.collect import default_fraction
from fedmerit.core.criteria.table import display_name, find_criterion
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.tasks.encoding import FILE
from fedmerit.tasks.files import is_several, read_tables
from fedmerit.tasks.formats.table_files import Table
from fedmerit.tasks.registry import find_task

MATTERS: Mapping[str, str] = {
    "size": "clients with more rows count more (FedAvg)",
    "priority": "criteria in an order that you choose, such as label diversity before dataset size",
    "honesty": "some clients may attack or lie, and the server has no rows",
    "validation": "the server tests every model on its own rows and uses the better half",
    "fairness": "groups of people are treated alike, measured on the server's own rows",
    "rounds": "few rounds without tuning: clients choose the length of the server's step",
    "rewards": "clients that contribute more get a better model",
}
"""Answers to the question what matters most."""

TRAIN: Mapping[str, Mapping[str, Any]] = {"digits": {"lr": 0.3}, "mnist": {"lr": 0.1}, "fashion-mnist": {"lr": 0.1}}
"""Settings of [train] that train these tasks well; other tasks start from `OTHERS`."""
OTHERS: Mapping[str, Any] = {"lr": 0.05, "epochs": 2}
CHOICES = ("DS", "LD", "CB", "LC", "MW")
"""Criteria that `init` offers: every task has their facts."""
WHY: Mapping[str, str] = {
    "name": "`fedmerit list recipes` shows more",
    "criteria": "most important first; `fedmerit list criteria` shows more",
    "score": "only the better half of a round gets weight",
}
"""Comments on the keys of [recipe]."""
LABELS = (
    *("label", "labels", "target", "class", "outcome", "y", "died", "dead", "death", "mortality", "deceased"),
    *("survived", "diagnosis", "disease", "ill", "benign", "malignant", "readmitted", "recid", "relapse", "event"),
    *("default", "churn", "fraud", "risk", "income", "response", "result", "num"),
)
"""Names of columns that are mostly predicted, the surest first."""
SERVER_MATTERS = ("validation", "fairness")
"""Answers that need rows at the server."""
MOST_SERVER_ROWS = 200
SERVER_SHARE = 10
"""The server keeps one row in ten of a table."""
Lines: TypeAlias = list[tuple[str, Any, str]]
"""Key, value and comment of each line of a section."""


@dataclass(frozen=True, slots=True)
class Starter:
    """The answers of `fedmerit init`: data, model, what matters, and the columns of a table.

    >>> print(Starter("digits", matters="size").text().splitlines()[3][:15])
    data = "digits"
    """

    data: str
    model: str = ""
    matters: str = "priority"
    client: str = ""
    label: str = ""
    attribute: str = ""
    priority: tuple[str, ...] = ("LD", "DS")

    def __post_init__(self) -> None:
        if self.matters not in MATTERS:
            raise UnknownName("answer to what matters", self.matters, MATTERS)
        if self.model and ":" not in self.model and self.model not in find_task(self.data).models:
            raise UnknownName(f"model of {self.data}", self.model, [*find_task(self.data).models, "module:function"])
        if self.is_table and not self.label:
            raise ConfigError(
                f"--label must name the column to predict (got none); {self.data} has {', '.join(columns(self.data))}"
            )
        if self.matters == "fairness" and not self.attribute:
            raise ConfigError(
                "--matters fairness needs the attribute that defines the groups (got none); give --attribute sex"
            )

    @property
    def is_table(self) -> bool:
        """Whether the data is the user's own file."""
        return self.data.startswith(TABLE)

    def text(self) -> str:
        """The TOML file; it is checked that it loads."""
        lines = [f"# What matters: {MATTERS[self.matters]}."]
        recipe = [(key, value, WHY.get(key, "")) for key, value in self._recipe().items()]
        sections = {"task": self._task(), "train": self._train(), "recipe": recipe, "run": self._run()}
        for name, section in sections.items():
            lines += [f"\n[{name}]", *_lines(section)]
        text = "\n".join(lines) + "\n"
        make_config(tomllib.loads(text))
        return text

    def _task(self) -> Lines:
        spec, several = find_task(self.data), self.is_table and is_several(self.data)
        dealt = spec.partitions[0] != "natural" or (self.is_table and not (self.client or several))
        about = "your file" if self.is_table else spec.about.partition(";")[0]
        possible = (
            (True, "data", self.data, "your files: each is a client" if several else about),
            (self.is_table and self.client, "client", self.client, "the column that names the client"),
            (self.is_table, "label", self.label, "the column to predict"),
            (
                self.is_table and self.attribute,
                "attributes",
                [self.attribute],
                "the columns that define groups, for fairness",
            ),
            (dealt, "partition", "dirichlet", "how rows are split over clients: iid, shards, dirichlet ..."),
            (dealt, "clients", 20 if spec.clients is None else spec.clients, ""),
            (True, "model", self.model or spec.models[0], f"or {', '.join([*spec.models[1:], 'module:function'])}"),
            (
                self.matters in SERVER_MATTERS,
                "server",
                min(MOST_SERVER_ROWS, max(1, len(_table(self.data)) // SERVER_SHARE))
                if self.is_table
                else MOST_SERVER_ROWS,
                "rows that only the server has, to test models on",
            ),
            (self.matters == "rounds", "validation", 0.2, "share of each client's rows on which steps are tested"),
        )
        return [(key, value, comment) for wanted, key, value, comment in possible if wanted]

    def _train(self) -> Lines:
        train = TRAIN.get(self.data, OTHERS)
        grid = ",".join(f"{train['lr'] * factor:.2g}" for factor in (1 / 3, 1, 3))
        tuned = f"tune this first: fedmerit compare FILE --grid train.lr={grid} --out runs/tuned"
        return [(key, value, tuned if key == "lr" else "") for key, value in train.items()]

    def _run(self) -> Lines:
        # Institutions all take part in every round, and so do few clients; of many devices, some do.
        clients, all_of_them = find_task(self.data).clients, self.is_table or self.matters == "rewards"
        share = 1.0 if all_of_them else round(default_fraction(clients), 2) if clients else None
        fraction = [] if share is None else [("fraction", share, "share of the clients that train in a round")]
        return [("rounds", 25, ""), *fraction, ("seed", 1, "the same seed gives the same result")]

    def _recipe(self) -> dict[str, Any]:
        top = {"name": "fedval", "criteria": ["validated:accuracy"], "score": {"rank": "top"}}
        recipes: dict[str, dict[str, Any]] = {
            "size": {"name": "fedavg"},
            "priority": {"name": "prioritized", "criteria": [*map(display_name, self.priority)]},
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


def criteria_to_choose() -> dict[str, str]:
    """The criteria that `init` offers, by name, each with its full name and what it measures.

    >>> criteria_to_choose()["DS"]
    'dataset size: number of training rows'
    """
    return {name: find_criterion(name).about for name in CHOICES}


def parse_priority(text: str) -> tuple[str, ...]:
    """Criteria in order, by name, full name or number in the list that `init` shows.

    >>> parse_priority("label diversity > 1")
    ('LD', 'DS')
    """
    numbers = {str(place): name for place, name in enumerate(criteria_to_choose(), 1)}
    return tuple(find_criterion(numbers.get(name, name)).name for name in split_names(text))


def columns(data: str) -> list[str]:
    """The columns of a table or of several files, for the questions about it."""
    table = _table(data)
    return [name for name in table.columns if not (table.files and name == FILE)]


def guess_label(names: Sequence[str]) -> str:
    """The column that is to be predicted, by its name; empty if no name tells.

    >>> guess_label(["age", "died", "ward"]), guess_label(["age", "ward"])
    ('died', '')
    """
    words = [(name, re.split(r"[\W_]+", name.casefold())) for name in names]
    return next((name for label in LABELS for name, parts in words if label in parts), "")


def _table(data: str) -> Table:
    return read_tables(make_config({"task": {"data": data}}).task)


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
