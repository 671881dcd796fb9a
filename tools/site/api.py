"""Write docs/api.md from the public names: `python tools/site/api.py`.

Each name of `fedmerit.__all__` gets its signature, its docstring, its arguments and its example. A test compares the
page with what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import fedmerit
from fedmerit.core.criteria.criterion import FunctionCriterion
from fedmerit.core.criteria.nearness import ModelNearness
from fedmerit.core.parts import settings

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
WIDTH, CODE_WIDTH = 120, 85
VALUES = FunctionCriterion, ModelNearness
"""Classes of the criteria that are values."""
SHOWN = 4
"""Arguments of a method that the table of methods names."""
INTRO = """# Python API

Import these names with `from fedmerit import ...`. Every example on this page is run by a test. Names that are not
listed here may move between versions. This page is written by `python tools/site/api.py`.
"""
GROUPS: Mapping[str, str] = {
    "Weigh, run, compare": "federate load_task weigh compare check_weighting LawResult Run Study run_config "
    "load_config resume run_on",
    "Data and learners": "Task TaskSpec Federation Split Samples Learner TorchLearner Fleet",
    "Recipes": "fedavg last_answers prioritized device_aware adaptive robust private m2f fedval qffl agnostic "
    "cosine_rewards "
    "standalone finetuned fedamp ifca ditto Recipe",
    "Criteria": "DS LD LC CB IS MW Attribute Validated criterion Criterion",
    "Scores": "Prioritized WeightedMean Product OWA Choquet Ranked Score",
    "Normalisation, stages and limits": "scale Scale Claims Clip Cap",
    "Server": "Server SGD Momentum Adam Yogi FedExP PrivateSum",
    "Selection, search and models": "Uniform Poisson InTime LastAnswers Backtracking StepSearch OneModel LocalModel "
    "ClusterModels PersonalModels ByCosine TopShare",
    "Errors": "FedmeritError UserError",
}
WITH_METHODS = ("Run", "Study", "Task", "Federation", "Split")
HOMES = {"pathlib._local": "pathlib"}
"""Modules whose names are imported from another one."""
MODULES = {"np": "import numpy as np", "nn": "from torch import nn"}
ANCHORS = {
    (name or heading).lower()
    for name, heading in re.findall(
        r'id="([^"]+)"|^## (\w+)$', (PAGE.parent / "papers.md").read_text(encoding="utf-8"), flags=re.M
    )
}
"""The places that the page of the papers has."""
COLON = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): (\S.*)$")
ARGUMENT = re.compile(r"^(\w[\w, .*]{0,30}?)(?: {2,})(\S.*)$")
CITATION = re.compile(r"(?<![\w\]`])\[((?:q-)?[A-Z][\w-]*(?: (?:19|20)\d\d)?(?:, [^\[\]]+)?)\](?![(\w])")


def page() -> str:
    """The whole page: a section per group, an entry per public name."""
    listed = {name for names in GROUPS.values() for name in names.split()}
    names = {title: names.split() for title, names in GROUPS.items()}
    names["More"] = sorted(set(fedmerit.__all__) - listed)
    parts = [INTRO]
    for title, group in names.items():
        parts += [f"## {title}\n"] if group else []
        if title == "Criteria":
            group = [name for name in group if not isinstance(getattr(fedmerit, name), VALUES)]
            parts.append(_criteria())
        parts += map(entry, group)
    return "\n".join(parts)


def _criteria() -> str:
    """The criteria that are values: one table, since they have no arguments."""
    values = ((name, getattr(fedmerit, name)) for name in fedmerit.__all__)
    rows = [f"| `{name}` | {one.about} |" for name, one in values if isinstance(one, VALUES)]
    return "\n".join(["| value | what it measures |", "| --- | --- |", *rows, ""])


def entry(name: str) -> str:
    """One public name: heading, signature, docstring, methods."""
    value = getattr(fedmerit, name)
    text = inspect.getdoc(value) or ""
    declared = _declared(value)
    if declared:
        text = "\n\n".join(part for part in text.split("\n\n") if not _lists(part, declared))
    summary, _, rest = text.partition("\n\n")
    parts = [f"### {name}", f"```python\n{signature(name, value)}\n```", _paragraph(summary)]
    parts += ["\n".join(f"- `{key}`: {about}" for key, about in declared.items())] if declared else []
    module = vars(inspect.getmodule(value))
    for part in filter(None, rest.split("\n\n")):
        parts.append(example(part, module) if part.startswith(">>>") else _paragraph(part))
    is_used = name in WITH_METHODS or getattr(value, "_is_protocol", False)
    methods = list(_methods(value)) if is_used else []
    parts += ["\n".join(["| method | what it does |", "| --- | --- |", *methods])] if methods else []
    return "\n\n".join(parts) + "\n"


def _declared(value: Any) -> dict[str, str]:
    """The arguments that a part declares in its annotations."""
    if not (isinstance(value, type) and is_dataclass(value)):
        return {}
    try:
        found = settings(value)
    except NameError:  # annotations for type checkers only: not a part
        return {}
    return {name: _escaped(one.about) for name, one in found.items() if one.about}


def _lists(part: str, declared: Mapping[str, str]) -> bool:
    """Whether a paragraph lists arguments that the annotations have already."""
    entry = ARGUMENT.match(part.partition("\n")[0])
    return bool(entry) and entry[1].split(",")[0] in declared  # type: ignore[index]


def signature(name: str, value: Any) -> str:
    """The call, in lines of at most 85 characters; only the name where there is nothing to call."""
    if getattr(value, "_is_protocol", False) or (isinstance(value, type) and issubclass(value, Exception)):
        return f"class {name}"
    found = inspect.signature(value)
    shown = [_parameter(one) for one in found.parameters.values()]
    kinds = [one.kind for one in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = "" if isinstance(value, type) else f" -> {_annotation(found.return_annotation)}"
    line = f"{name}({', '.join(shown)}){result}"
    return line if len(line) <= CODE_WIDTH else "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){result}"])


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    annotation = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
    default = "" if one.default is one.empty else f" = {_default(one.default)}"
    text = f"{stars}{one.name}{annotation}{default}"
    return text if len(text) < CODE_WIDTH - 5 else f"{stars}{one.name}{default}"


def _default(value: Any) -> str:
    text = repr(value)
    return "..." if text.startswith("<") or len(text) > 50 else text


class _Plain(ast.NodeTransformer):
    """`Annotated[float, Doc("...")]` as `float`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return ast.unparse(_Plain().visit(ast.parse(text, mode="eval")))


def _methods(value: Any) -> Iterator[str]:
    """The public methods of a class, a row each."""
    for name, one in vars(value).items():
        function = getattr(one, "__func__", getattr(one, "fget", getattr(one, "func", one)))
        is_called = name == "__call__" and getattr(value, "_is_protocol", False)
        if not inspect.isfunction(function) or not function.__doc__ or (name.startswith("_") and not is_called):
            continue
        names = [key for key in inspect.signature(function).parameters if key not in ("self", "cls")]
        call = name if function is not one and not hasattr(one, "__func__") else f"{name}({', '.join(names)})"
        if len(names) > SHOWN:
            call = f"{name}({', '.join(names[:SHOWN])}, ...)"
        yield f"| `{call}` | {_escaped((inspect.getdoc(function) or '').partition(chr(10))[0])} |".replace(
            "||", r"\|\|"
        )


def _escaped(text: str) -> str:
    return CITATION.sub(_cited, text.replace("<", "&lt;"))


def _cited(match: re.Match[str]) -> str:
    """A citation as a link: [PMCFL, eq. 6] leads to papers.md#pmcfl-eq-6; where that is no anchor, to the paper."""
    places = [re.sub("[^a-z0-9]+", "-", text.lower()).strip("-") for text in (match[1], match[1].partition(",")[0])]
    known = [place for place in places if place in ANCHORS]
    return f"[{match[1]}](papers.md#{known[0]})" if known else match[0]


def _paragraph(text: str) -> str:
    """A column of arguments as a list, a formula as a block, all else in folded lines."""
    if text.startswith("Args:\n"):
        text = textwrap.dedent(text.partition("\n")[2])
    elif text.startswith("    "):
        return f"```text\n{textwrap.dedent(text)}\n```"
    named = all(COLON.match(line) for line in text.splitlines() if not line.startswith(" "))
    blocks: list[str] = []
    for line in text.splitlines():
        argument = ARGUMENT.match(line) or (COLON.match(line) if named else None)
        if argument:
            blocks.append(f"- `{argument[1].strip()}`: {argument[2]}")
        elif line.startswith("- ") or not blocks:
            blocks.append(line)
        else:
            blocks[-1] += f" {line.strip()}"
    return "\n".join(_folded(_escaped(block)) for block in blocks)


def _folded(block: str) -> str:
    indent = "  " if block.startswith("- ") else ""
    return textwrap.fill(block, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def example(text: str, module: Mapping[str, Any]) -> str:
    """A doctest as a block of code, with the imports that its module makes for it."""
    tree = ast.parse("\n".join(line[4:] for line in text.splitlines() if line.startswith((">>>", "..."))))
    names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
    own = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    own |= {alias.name for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) for alias in one.names}
    lines, imports = text.splitlines(), dict[str, set[str]]()
    while lines[0].startswith(">>> from"):
        home, _, listed = lines.pop(0).removeprefix(">>> from ").partition(" import ")
        imports.setdefault(home, set()).update(listed.split(", "))
    for name in {one.id for one in names} & module.keys() - own:
        value = module[name]
        home = "" if inspect.ismodule(value) else value.__module__
        imports.setdefault("fedmerit" if name in fedmerit.__all__ else home, set()).add(name)
    modules = [f">>> {MODULES[name]}" for name in sorted(imports.pop("", ()))]
    named = [f">>> from {HOMES.get(home, home)} import {', '.join(sorted(imports[home]))}" for home in sorted(imports)]
    return "\n".join(["```pycon", *modules, *named, *lines, "```"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
