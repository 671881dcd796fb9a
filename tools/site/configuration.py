"""Write the tables of docs/configuration.md that the code declares: `python tools/site/configuration.py`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is `recipe`, `recipes`, a slot of
`fedmerit.core.parts` or a section such as `run.wait`. A test compares the page with what this writes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from fedmerit.config.privacy import PrivacyConfig
from fedmerit.config.recipe import HIDDEN, IN_THE_NAME, RANKING, SCORES
from fedmerit.config.run import DelaysConfig, RunConfig, ScheduleConfig, StopConfig, WaitConfig
from fedmerit.config.sections import Section, fields_of
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.parts import PARTS, Setting, Slot, load_parts, name_of, settings
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import RECIPES

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BLOCK = re.compile(r"(<!-- table: ([\w. ]+) -->\n).*?(<!-- end -->)", flags=re.S)
SECTIONS: Mapping[str, type[Section]] = {
    "run": RunConfig,
    "run.stop": StopConfig,
    "run.schedule": ScheduleConfig,
    "run.wait": WaitConfig,
    "run.delays": DelaysConfig,
    "privacy": PrivacyConfig,
}
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
    if name == "recipes":
        return _markdown(("recipe", "what it is", "parts that differ from `fedavg`"), _recipes())
    if name == "recipe":
        return _markdown(("key", "meaning"), _recipe_keys())
    if name in SECTIONS:
        return _markdown(("key", "default", "meaning"), _section_keys(name, SECTIONS[name]))
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
    return f'{{name = "{name}"{given}}}' if given else json.dumps(name)


def _unchanged(kind: type[Any]) -> Any:
    """The part without settings; None where it needs some."""
    return None if any(one.required for one in settings(kind).values()) else kind()


def _recipe_keys() -> Iterator[tuple[str, ...]]:
    yield "`recipe.name`", "a recipe of the table above, or `module:attribute`; default: `fedavg`"
    known = {one.name for one in fields(Recipe)}
    for line in re.split(r"^(?=\w+  )", inspect.cleandoc(Recipe.__doc__ or ""), flags=re.M):
        key, _, about = line.partition("\n\n")[0].partition(" ")
        if key in known:
            yield f"`recipe.{key}`", " ".join(about.split())


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
            (f"`{key}`", "none" if key == "rank" else _default(one.default), _meaning(one))
            for key, one in RANKING.items()
        )


def _setting(one: Setting) -> tuple[str, ...]:
    return f"`{one.name}`", "required" if one.required else _default(one.default), _meaning(one)


def _default(value: Any) -> str:
    return "none" if value in ((), None) else f"`{toml(value)}`"


def _meaning(one: Setting) -> str:
    """What a setting is, with its range and those of its words that the line does not name."""
    bounds = ((sign, getattr(one.interval, name, None)) for name, sign in SIGNS.items())
    rules = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None]
    rules += [f'`"{choice}"`' for choice in one.choices if choice not in one.about]
    return f"{one.about} ({', '.join(rules)})" if rules else one.about


def _section_keys(name: str, section: type[Section]) -> Iterator[tuple[str, ...]]:
    for key, one in fields_of(section).items():
        default = "required" if one.is_required() else _default(one.default)
        yield f"`{name}.{key}`", default, one.description or ""


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
