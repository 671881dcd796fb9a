"""Configuration: TOML in, frozen and validated values out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from fedmerit.core.groups import Cut, Linkage, Over
from fedmerit.core.ranking import Rank
from fedmerit.core.rewards import Largest, Scope, Share
from fedmerit.core.search import Exchange, Orders, Reference
from fedmerit.core.types import Normalise, Personal, SplitName
from fedmerit.errors import ConfigError, did_you_mean

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]


Made: TypeAlias = Literal["iid", "shards", "dirichlet", "label-groups", "label-draws"]
Partition: TypeAlias = Literal["default", "natural", "attribute", "attribute-label"] | Made


class Section(BaseModel):
    """A frozen part of the configuration that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


class TaskConfig(Section):
    """[task]: which data, how it is spread over clients, which model learns from it."""

    data: str = Field("digits", description="a task of `fedmerit tasks`, or module:attribute of your own")
    source: str = Field(
        "folder",
        description="`folder` (FEDMERIT_DATA), `hub` or hub:NAME for another data set; "
        "femnist also `leaf` or leaf:PATH for LEAF's JSON",
    )
    sample: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        1.0, description="share of the rows to draw, by whole writers as LEAF does (femnist only)"
    )
    partition: Partition = Field(
        "default", description="how the training rows are spread over the clients; `default`: the task's first"
    )
    clients: Count | None = Field(None, description="number of clients; natural partitions default to all")
    model: str = Field("default", description="a model of the task, see `fedmerit tasks`")
    shards: Count = Field(2, description="shards per client (partition = shards)")
    alpha: Positive = Field(
        0.5, description="concentration (partition = dirichlet, label-draws, attribute...): smaller is more unlike"
    )
    groups: tuple[tuple[int, ...], ...] = Field(
        (), description="labels of each group (partition = label-groups, label-draws)"
    )
    size: Count | None = Field(
        None, description="rows per client (partition = label-draws); default: an even share of its group's"
    )
    smallest: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        1.0, description="sizes are drawn from this share of `size` up to all of it (partition = label-draws)"
    )
    mix: Annotated[float, Field(ge=0, le=1, strict=True)] = Field(
        0.0, description="share of a client's rows with labels of the other groups (partition = label-draws)"
    )
    test: Literal["default", "slices", "matched"] = Field(
        "default",
        description="`slices` of the test set in file order, or `matched` to each client's labels; "
        "`default`: as the task has it",
    )
    attribute: str = Field(
        "sex", description="the attribute that partitions and kinds of clients go by; several: sex+race"
    )
    against: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="the value of the attribute whose rows are the disadvantaged group"
    )
    kinds: dict[str, float] = Field(
        {},
        description="share of the clients of each planted kind: imbalanced, biased, poisoned, poor, free_rider",
    )
    server: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="training rows that the server keeps to validate models on, and no client has"
    )
    validation: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        0.0,
        description="share of each client's training rows kept for validation: "
        "what a search or an acceptance test asks about",
    )


class TrainConfig(Section):
    """[train]: what a client does with the model it received."""

    lr: Positive = Field(0.1, description="learning rate of local SGD")
    epochs: Count = Field(5, description="passes over the client's rows")
    batch: Count | Literal["full"] = Field("full", description="rows per step, or `full`")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of local SGD, reset each round")
    weight_decay: NotNegative = Field(0.0, description="L2 penalty on the parameters")
    prox: NotNegative = Field(0.0, description="FedProx mu: pull towards the received model")


class ScoreConfig(Section):
    """recipe.score as a table: the operator and what it needs, in priority order."""

    name: str
    weights: tuple[float, ...] | None = None
    quantifier: str | float | tuple[float, float] | None = None
    importances: tuple[float, ...] | None = None
    shapley: tuple[float, ...] | None = None
    interaction: dict[str, float] | None = None
    capacity: dict[str, float] | None = None
    rank: Rank | None = None
    top: float | None = None


def _split_names(value: Any) -> Any:
    """Accept "DS,CB" and "DS > CB" where a list of names is expected."""
    if isinstance(value, str):
        return tuple(part.strip() for part in re.split(r"[>,]", value) if part.strip())
    return value


def _named_score(value: Any) -> Any:
    """Accept a bare operator name where a score table is expected."""
    return {"name": value} if isinstance(value, str) else value


Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_split_names)]


def _twice(value: Any) -> Any:
    """Accept one number where a least and a most are expected."""
    return (value, value) if isinstance(value, int) else value


ScoreTable: TypeAlias = Annotated[ScoreConfig, BeforeValidator(_named_score)]


class WeightingConfig(Section):
    """One of recipe.search.among: a way to weigh; what is not given is the recipe's own."""

    priority: Names = ()
    score: ScoreTable | None = None
    normalise: Normalise | None = None


class SearchConfig(Section):
    """[recipe.search]: how recipe device_aware comes to the order of its criteria."""

    orders: Orders = Field(
        "kendall", description="which order is tried next: the nearest, by name, a random one; `all`: the best of all"
    )
    reference: Reference = Field(
        "last", description="accept what is not worse than the last model, or than the best so far"
    )
    exchange: Exchange = Field(
        "batch", description="ask about all orders that are left in one exchange, or one after the other"
    )
    adjust_on: SplitName = Field(
        "validation",
        description="which rows decide: `validation`, or `test` as in the paper, which reports on them too",
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="weightings that differ by no more total variation count as one"
    )
    judges: Annotated[int, Field(ge=2, strict=True)] | None = Field(
        None, description="ask that many clients, drawn anew each round, and more while undecided; default: all"
    )
    confidence: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.95, description="how sure judges must be that a candidate is worse, or is not"
    )
    among: tuple[WeightingConfig, ...] = Field(
        (), description="ways to choose from instead of orders: tables with priority, score, normalise"
    )


class GroupsConfig(Section):
    """[recipe.groups]: who is aggregated together in recipe m2f."""

    by: Literal["cosine", "none"] = Field("cosine", description="groups of like updates, or `none`: all together")
    linkage: Linkage = Field("average", description="the distance of two groups; `centroid`: of their sums")
    cut: Cut = Field(
        "gap",
        description="stop merging at the largest jump, the best `silhouette`, a `quantile` or a `constant`",
    )
    over: Over = Field("round", description="distances of this `round`, or the mean of `all` rounds so far")
    at: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None,
        description="least jump (default 0.03) or silhouette (0.15), quantile (0.5), distance (1.0): as `cut` is",
    )


class RewardConfig(Section):
    """[recipe.reward]: what clients of recipe m2f get back, and what they do with it."""

    kind: Literal["top", "whole"] = Field("top", description="the largest entries of the aggregate, or all of it")
    share: Share = Field("sum", description="share of entries: quality / `sum` (the paper) or / `max` of the group")
    largest: Largest = Field("magnitude", description="largest by magnitude, or `signed` as gradients")
    scope: Scope = Field("model", description="largest of the whole model, or of each `layer`")
    exclude_own: bool = Field(False, description="take the client's own part out of its reward")
    training: Personal = Field(
        "keep", description="a client's own training is kept, or reset before the reward is added"
    )
    sigma: NotNegative = Field(0.05, description="a client takes a reward that lowers its accuracy by less than this")
    initial: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="share of the clients that train the first model; 0: everybody starts from the random one"
    )


class ServerConfig(Section):
    """[recipe.server]: how the server scores clients' models for criteria named validated:OBJECTIVE."""

    rho: Annotated[float, Field(gt=0, le=1)] | Literal["1/K"] = Field(
        0.5, description="a client's part in the merged model that is scored; 1: its model alone, `1/K`: as one of K"
    )
    gate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="models below this accuracy score 0 in every objective: a constant one looks fair"
    )


class RecipeConfig(Section):
    """[recipe]: how facts become weights."""

    name: str = Field("fedavg", description="a recipe of `fedmerit recipes`")
    priority: Names = Field((), description="criteria, most important first")
    normalise: Normalise = Field(
        "sum", description="`sum` (the papers), `max` (recommended), `minmax` (the worst gets 0) or `none` (degrees)"
    )
    score: ScoreTable = Field(
        ScoreConfig(name="prioritized"), description="the operator, by name or as a table with its options"
    )
    when_zero: Literal["samples", "uniform", "keep"] = Field(
        "samples", description="all scores zero: weigh by `samples`, `uniform`ly, or `keep` the model"
    )
    strength: NotNegative = Field(1.0, description="q of recipe qffl, eta of recipe agnostic")
    search: SearchConfig | None = Field(None, description="the search of recipe device_aware, see [recipe.search]")
    server: ServerConfig | None = Field(None, description="how the server scores models, see [recipe.server]")
    groups: GroupsConfig | None = Field(None, description="the groups of recipe m2f, see [recipe.groups]")
    reward: RewardConfig | None = Field(None, description="the rewards of recipe m2f, see [recipe.reward]")


class ScheduleConfig(Section):
    """[run.schedule]: each client takes part in its own share of the rounds, instead of run.fraction."""

    rates: tuple[tuple[float, Count], ...] = Field(
        ((1.0, 1),), description="pairs [rate, clients], dealt in client order and again until all have one"
    )
    epochs: Annotated[tuple[Count, Count], BeforeValidator(_twice)] | None = Field(
        None, description="epochs of each client: one number, or [least, most] to draw from; default: train.epochs"
    )


class RunConfig(Section):
    """[run]: how long, with how many clients, from which seed."""

    rounds: Count = Field(20, description="rounds of training")
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(0.1, description="share of the clients drawn per round")
    schedule: ScheduleConfig | None = Field(None, description="who takes part when, see [run.schedule]")
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="every random draw derives from it")
    workers: Count | None = Field(None, description="worker processes; default: one per core")
    memory: Positive | None = Field(
        None, description="GiB for updates before they go to disk; default: a quarter of RAM"
    )
    evaluate_every: Count = Field(1, description="test the model on all clients every k rounds (always after the last)")
    audit: tuple[str, ...] = Field(
        (), description="objectives to write down of the model: on the server's rows and on each client's test rows"
    )


class Config(Section):
    """One run, completely."""

    task: TaskConfig = TaskConfig()
    train: TrainConfig = TrainConfig()
    recipe: RecipeConfig = RecipeConfig()
    run: RunConfig = RunConfig()

    @field_validator("task", "train", "recipe", "run", mode="before")
    @classmethod
    def _is_table(cls, value: Any) -> Any:
        if isinstance(value, Section | Mapping):
            return value
        raise ValueError("must be a table such as [run]")


DEEPER = ("recipe.search", "recipe.server", "recipe.groups", "recipe.reward", "run.schedule")
"""Sections inside sections."""


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, or begin with the defaults, and apply `key=value` overrides such as `train.lr=0.05`."""
    values = {} if path is None else read_toml(Path(path))
    for override in overrides:
        _apply(values, override)
    return make_config(values)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, not yet checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}; start from one in examples/") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def make_config(values: Mapping[str, Any]) -> Config:
    """Validate nested settings; every mistake is named in one ConfigError."""
    return validate(Config, values)


def validate(kind: type[S], values: Mapping[str, Any]) -> S:
    """A section of this kind from plain values; every mistake is named in one ConfigError."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = (_problem(item, kind) for item in error.errors())
        raise ConfigError("; ".join(dict.fromkeys(problems))) from None


def dump_config(config: Config) -> str:
    """The whole configuration as TOML, defaults included."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path, value = key.strip().split("."), parse_value(text.strip())
    if not equals or (len(path) < 2 and not isinstance(value, dict)):
        raise ConfigError(
            "--set takes section.key=value, for example train.lr=0.05, or a whole section, recipe={name='fedavg'}; "
            f"got {override!r}"
        )
    node = values
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {override!r}: {part!r} is a value, not a section")
    node[path[-1]] = value


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none (so that names need no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _problem(item: Any, kind: type[Section]) -> str:
    """One pydantic error in our words: the key, the rule, what was received."""
    location = [str(part) for part in item["loc"]]
    key = ".".join(location)
    if item["type"] == "extra_forbidden":
        valid = _keys_beside(location, kind)
        return f"unknown key {key!r}{did_you_mean(location[-1], valid)}; valid here: {', '.join(sorted(valid))}"
    if item["type"] == "missing":
        return f"{key} is required, and was not given"
    depth = 3 if ".".join(location[:2]) in DEEPER else 2
    key = ".".join(location[:depth])  # deeper parts are pydantic's names, not keys
    shown = repr(item["input"])
    rule = item["msg"][:1].lower() + item["msg"][1:]
    return f"{key}: {rule} (got {shown if len(shown) <= 80 else shown[:77] + '...'})"


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _keys_beside(location: Sequence[str], section: type[BaseModel]) -> list[str]:
    """The valid keys of the section in which an unknown key stands, somewhere within this one."""
    for part in location[:-1]:
        found = _fields(section).get(part)
        kinds = [kind for kind in (found.annotation, *get_args(found.annotation)) if _is_section(kind)] if found else []
        if not kinds:
            break
        section = kinds[0]
    return list(_fields(section))


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """By the names that users know."""
    return {field.alias or name: field for name, field in section.model_fields.items()}
