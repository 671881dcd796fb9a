"""Write the tables of docs/configuration.md and docs/criteria.md: `python tools/site/configuration.py`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is one of `TABLES`, a slot of
`fedmerit.core.parts` or a section such as `run.wait`. A test compares the pages with what this writes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from fedmerit.config.attack import KINDS, AttackConfig
from fedmerit.config.privacy import PrivacyConfig
from fedmerit.config.recipe import HIDDEN, IN_THE_NAME, RANKING, SCORES
from fedmerit.config.run import EarlyStopping, RunConfig, ScheduleConfig, WaitConfig
from fedmerit.config.sections import Section, fields_of
from fedmerit.config.task import OF_TABLES, OPTIONS, PARTITIONS, FactsConfig, NodesConfig, TaskConfig
from fedmerit.config.train import TrainConfig
from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.criterion import Criterion, reported
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.table import CRITERIA, Attribute, find_criterion
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.facts import FACTS, find_fact
from fedmerit.core.objectives import Overall
from fedmerit.core.parts import PARTS, Setting, Slot, load_parts, name_of, settings
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import RECIPES
from fedmerit.core.server.server import Server
from fedmerit.core.types import Family
from fedmerit.study.plan import Plan, Row, TuneConfig

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("configuration.md", "criteria.md")]
BLOCK = re.compile(r"(<!-- table: ([\w. ]+) -->\n).*?(<!-- end -->)", flags=re.S)
SECTIONS: Mapping[str, type[Section]] = {
    "task": TaskConfig,
    "task.attack": AttackConfig,
    "task.nodes": NodesConfig,
    "train": TrainConfig,
    "run": RunConfig,
    "run.stop": EarlyStopping,
    "run.schedule": ScheduleConfig,
    "run.wait": WaitConfig,
    "privacy": PrivacyConfig,
    "facts": FactsConfig,
    "study": Plan,
    "row": Row,
    "tune": TuneConfig,
}
FIRST = (
    *("task.data", "task.client", "task.label", "task.attributes", "task.partition", "task.clients", "task.model"),
    *("task.server", "task.validation", "train.lr", "train.epochs", "train.batch", "train.optimizer", "train.prox"),
    *("recipe.name", "recipe.criteria", "recipe.normalise", "run.rounds", "run.fraction", "run.seed"),
)
"""The twenty keys that people set first."""
DEPENDS = {
    "task.clients": "by task",
    "task.client": "none; set `partition`",
    "task.label": "required for tables",
    "task.tolerance": "required for numbers",
    "task.size": "by task",
    "task.features": "all columns",
    "task.attack.strength": "by kind",
    "tune.by": "`rounds` with a target, else `accuracy`",
    "privacy.noise": "from `epsilon`",
    "privacy.epsilon": "from `noise`",
    "row.train": "those of base",
    "row.task": "those of base",
    "study.base": "all defaults",
    "study.tune": "see [tune]",
}
"""Defaults that depend on other keys."""
PARTITION_ABOUT = {
    "iid": "even parts at random",
    "shards": "rows sorted by label and cut into shards; each client gets `shards` of them",
    "dirichlet": "each label's rows in shares from a Dirichlet distribution",
    "natural": "one client per writer or person in the data",
    "label-groups": "groups of clients, each with its own labels, spread evenly",
    "label-draws": "groups of clients that draw rows of their labels independently (M2F)",
    "attribute": "as `dirichlet`, by the attribute instead of the label",
    "attribute-label": "as `dirichlet`, by attribute and label together",
}
EMPTY: tuple[Any, ...] = (None, "", (), {})
UNNAMED = ("anchor", "update-norms")
"""Stages that other parts bring; a recipe need not name them."""
SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
FAMILIES = {
    "contribution": "contribution:METHOD",
    "reputation": "reputation:CRITERION",
    "validated": "validated:OBJECTIVE",
}


def written(page: str) -> str:
    """The page with every marked table as the code declares it."""
    load_parts()
    return BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2])}\n\n{block[3]}", page)


def table(name: str) -> str:
    """One table, by its name."""
    if name in TABLES:
        head, rows = TABLES[name]
        return _markdown(head, rows())
    if name in SECTIONS:
        keys = [key for key in fields_of(SECTIONS[name]) if name != "task" or key not in (*OF_TABLES, *OPTIONS)]
        return _markdown(KEYS, _section_keys(name, keys))
    return _markdown(("part, settings", "default", "meaning"), _part_keys(cast(Slot, name)))


def _markdown(head: tuple[str, ...], lines: Iterator[tuple[str, ...]]) -> str:
    made = [head, tuple("---" for _ in head), *(tuple(cell.replace("|", r"\|") for cell in line) for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in made)


def _recipes() -> Iterator[tuple[str, ...]]:
    for name, (make, about) in RECIPES.items():
        yield f"`{name}`", about, "; ".join(f"`{key} = {text}`" for key, text in differences(make()).items()) or "none"


def differences(recipe: Recipe) -> dict[str, str]:
    """The keys of a recipe that are not those of `fedavg`, as TOML."""
    plain = RECIPES["fedavg"][0]()
    names = [one.name for one in fields(Recipe) if getattr(recipe, one.name) != getattr(plain, one.name)]
    return {name: toml(getattr(recipe, name)) for name in names}


def toml(value: Any) -> str:
    """A part, or a setting, as a configuration writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if not is_dataclass(value) or isinstance(value, type):
        return json.dumps("all" if value is None else value)
    is_criterion = hasattr(value, "degree")
    name: str = value.name if is_criterion else name_of(value)  # type: ignore[attr-defined]
    plain = find_criterion(name) if is_criterion else _unchanged(type(value))
    changed = {
        one.name: getattr(value, one.name)
        for one in fields(value)
        if one.name not in IN_THE_NAME and getattr(value, one.name) != getattr(plain, one.name, MISSING)
    }
    given = "".join(f", {key} = {toml(one)}" for key, one in changed.items())
    if isinstance(value, Server):  # a table of parts, not a part
        return f"{{{given.removeprefix(', ')}}}"
    return f'{{name = "{name}"{given}}}' if given else json.dumps(name)


def _unchanged(kind: type[Any]) -> Any:
    """The part without settings; None where it needs some."""
    return None if any(one.required for one in settings(kind).values()) else kind()


def _recipe_keys() -> Iterator[tuple[str, ...]]:
    yield "`recipe.name`", '`"fedavg"`', "a recipe of `fedmerit list recipes`, or `module:attribute`"
    known, plain = {one.name for one in fields(Recipe)}, RECIPES["fedavg"][0]()
    for line in re.split(r"^(?=\w+  )", inspect.cleandoc(Recipe.__doc__ or ""), flags=re.M):
        key, _, about = line.partition("\n\n")[0].partition(" ")
        if key in known:
            default = "mean, then sgd" if key == "server" else _default(getattr(plain, key))
            yield f"`recipe.{key}`", default, " ".join(about.split())


def _first_keys() -> Iterator[tuple[str, ...]]:
    rows = {row[0].strip("`"): row for row in _recipe_keys()}
    for key in FIRST:
        section, _, name = key.rpartition(".")
        yield rows[key] if key in rows else next(_section_keys(section, [name]))


def _partitions() -> Iterator[tuple[str, ...]]:
    for name, options in PARTITIONS.items():
        yield f"`{name}`", ", ".join(f"`{one}`" for one in options) or "none", PARTITION_ABOUT[name]


def _attacks() -> Iterator[tuple[str, ...]]:
    for kind, attack in KINDS.items():
        about, strength = (inspect.getdoc(attack) or "").partition("\n")[0], attack.__dataclass_fields__.get("strength")
        yield f"`{kind}`", str(strength.default) if strength else "none", re.sub(r"(?: \[[^\]]*\])?\.$", "", about)


def _part_keys(slot: Slot) -> Iterator[tuple[str, ...]]:
    kinds = SCORES if slot == "score" else PARTS[slot]
    for name, kind in sorted(kinds.items(), key=lambda one: one[1].__module__):
        inside = IN_THE_NAME + (("of",) if name == "reputation" else ()) if slot == "criterion" else ()
        keys = [one for one in settings(kind).values() if one.name not in inside]
        if name in HIDDEN or name in UNNAMED or (slot == "criterion" and not keys):
            continue
        shown = FAMILIES.get(name, name) if slot == "criterion" else name
        yield f"**`{shown}`**", "", (inspect.getdoc(kind) or "").partition("\n")[0]
        yield from (_setting(one) for one in keys)
    if slot == "score":
        yield "**every score**", "", "Also accepts ranks in place of its values."
        yield from (
            (f"`{key}`", "none" if key == "rank" else _default(one.default), _meaning(one, one.about))
            for key, one in RANKING.items()
        )


def _setting(one: Setting) -> tuple[str, ...]:
    default, about = ("required", one.about) if one.required else _split_default(one.default, one.about)
    return f"`{one.name}`", default, _meaning(one, about)


def _default(value: Any) -> str:
    return "none" if value in EMPTY else f"`{toml(value)}`"


def _split_default(value: Any, about: str) -> tuple[str, str]:
    """The default, in the words of its line of help where the value is empty, and that line without them."""
    said = re.fullmatch(r"(.*?)[;,] (?:default|none): (.+)", about)
    if said and value in EMPTY:
        return said[2], said[1]
    return _default(value), about


def _meaning(one: Setting, about: str) -> str:
    """What a setting is, with its range and those of its words that the line does not name."""
    bounds = ((sign, getattr(one.interval, name, None)) for name, sign in SIGNS.items())
    rules = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None]
    rules += [f'`"{choice}"`' for choice in one.choices if choice not in one.about]
    return f"{about} ({', '.join(rules)})" if rules else about


def _facts() -> Iterator[tuple[str, ...]]:
    for fact in [*FACTS.values(), *map(find_fact, ("attribute:NAME", "fact:NAME"))]:
        if fact.source == "client":
            limits = f"{fact.low:g} or more" if fact.high is None else f"{fact.low:g}..{fact.high:g}"
            yield f"`{fact.name}`", fact.about, limits


def _criteria(criteria: Iterable[Criterion]) -> Iterator[tuple[str, ...]]:
    for one in criteria:
        name, _, about = one.about.partition(": ")
        facts = ", ".join(f"`{fact}`" for fact in one.required_facts) or "none"
        yield name, f"`{one.name}`", about, facts, "yes" if one.degree else "no"


def _families() -> Iterator[Criterion]:
    yield from (Attribute("NAME"), ClientFact("NAME"), Validated(Overall("OBJECTIVE")), Contribution())
    yield Reputation(reported("CRITERION", Family.TRUST, "those of CRITERION", ""))


def _section_keys(name: str, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for key in keys:
        one = fields_of(SECTIONS[name])[key]
        shown = key if SECTIONS[name] in (Plan, Row, TuneConfig) else f"{name}.{key}"
        empty = one.is_required() or isinstance(one.default, Section)
        default, about = _split_default(None if empty else one.default, one.description or "")
        default = "required" if one.is_required() else "by task" if one.default == "default" else default
        yield f"`{shown}`", DEPENDS.get(f"{name}.{key}", default), about


KEYS = ("key", "default", "meaning")
CRITERION = ("criterion", "symbol", "what it is", "facts", "degree")
USUAL = ("DS", "LD", "CB", "IS", "MW")
"""The criteria of PMCFL."""
TABLES: Mapping[str, tuple[tuple[str, ...], Callable[[], Iterator[tuple[str, ...]]]]] = {
    "first": (KEYS, _first_keys),
    "recipes": (("recipe", "what it is", "parts that differ from `fedavg`"), _recipes),
    "recipe": (KEYS, _recipe_keys),
    "task of tables": (KEYS, lambda: _section_keys("task", OF_TABLES)),
    "task options": (KEYS, lambda: _section_keys("task", OPTIONS)),
    "partitions": (("partition", "options", "which client gets which rows"), _partitions),
    "client facts": (("fact", "what it is", "range"), _facts),
    "usual criteria": (CRITERION, lambda: _criteria(CRITERIA[name] for name in USUAL)),
    "families": (CRITERION, lambda: _criteria(_families())),
    "more criteria": (CRITERION, lambda: _criteria(one for name, one in CRITERIA.items() if name not in USUAL)),
    "attacks": (("kind", "strength", "what the attackers send or train"), _attacks),
}
"""The tables that are neither a section nor a slot of parts: their columns and rows."""


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
