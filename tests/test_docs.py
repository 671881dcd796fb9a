"""The documents stay true: names, keys, commands, links and the README's example."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

import fedmerit
from fedmerit.cli import app
from fedmerit.config.attack import DEFAULT_STRENGTH, KINDS, AttackConfig
from fedmerit.config.old_keys import OLD_KEYS
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.config.schema import Section, TaskConfig, TrainConfig, make_config
from fedmerit.config.task import PARTITIONS, FactsConfig, NodesConfig
from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.criterion import Criterion, FunctionCriterion, reported
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.table import CRITERIA, Attribute
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.facts import FACTS, Fact, find_fact
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.core.objectives import Overall
from fedmerit.core.recipes import RECIPES
from fedmerit.core.suspects import EVIDENCE
from fedmerit.core.types import Family
from fedmerit.study.plan import Plan, Row, TuneConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CITATION = r"\[((?:PMCFL|DAFL|M2F|FedVal)(?:, [^\[\]]+)?)\](?!\()"
"""A place in a paper, as docstrings name it: [PMCFL, eq. 6]."""
REFERENCE = r"^- \*\*\[(.+?)\]\*\*"
"""A paper in the list of references, by the name that cites it."""
BY_YEAR = r"\[([A-Z]\w+ (?:19|20)\d\d)(?:, [^\[\]]+)?\](?!\()"
"""A paper cited by author and year: [Yager 1988]."""


NAMED = r"(?<![\w\]])\[((?:q-)?[A-Z][\w-]*(?: (?:19|20)\d\d)?)(?:, [^\[\]]+)?\](?![(\w])"
"""A paper cited by the name of its method, or by author and year: [Krum], [CFL, Alg. 1]."""


def row(*cells: str) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def chapter(page: str, title: str) -> str:
    """The text of a page under one heading."""
    return (ROOT / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[str]:
    """The lines of the tables in a text whose first cell is code."""
    return re.findall(r"^\| `.*\|$", text, flags=re.M)


def held(lines: list[str], wanted: list[str]) -> None:
    """A page has the wanted lines and no others; what is missing is printed, ready to be pasted."""
    missing, wrong = [line for line in wanted if line not in lines], [line for line in lines if line not in wanted]
    assert not missing + wrong, "\n".join(["missing:", *missing, "not true, or not there any more:", *wrong])
    assert len(lines) == len(wanted)


def summary(name: str) -> str:
    """What the first line of a public name's docstring says; of a criterion such as DS, what it is about."""
    value = getattr(fedmerit, name)
    return value.about if isinstance(value, FunctionCriterion) else (inspect.getdoc(value) or "").partition("\n")[0]


def test_every_public_name_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/api.md").read_text().partition("\n## From its room\n")[0]
    held(table(page), [row(f"`{name}`", summary(name)) for name in fedmerit.__all__])


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes the tables of docs/configuration.md."""
    spec = importlib.util.spec_from_file_location("configuration", ROOT / "tools/site/configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_parts_are_those_that_the_code_declares(tables: ModuleType) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == tables.written(page), "python tools/site/configuration.py"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_fedavg_with_the_parts_that_its_row_names(tables: ModuleType, name: str) -> None:
    recipe = RECIPES[name][0]()
    written = "\n".join(f"{key} = {text}" for key, text in tables.differences(recipe).items())
    assert make_recipe(RecipeConfig(**{"name": "fedavg", **tomllib.loads(written)})) == recipe


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_toml_of_the_documents_is_a_configuration(page: Path) -> None:
    """Studies and files of other programs are left out: a configuration begins with one of our sections."""
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        values = tomllib.loads(block)
        if values.keys() <= {"task", "train", "recipe", "run", "privacy", "facts"}:
            make_config(values)


def test_the_changelog_names_every_key_that_has_another_name_now() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = [row(f"`{old.replace('=', ' = ')}`", f"`{new}`") for old, new in OLD_KEYS.items()]
    assert [line for line in rows if line not in changes] == []


def test_what_is_imported_from_a_room_is_there() -> None:
    lines = table(chapter("docs/api.md", "From its room"))
    assert len(lines) > 20
    for line in lines:
        module, *names = re.findall(r"`([\w.]+)`", line)
        assert [name for name in names if not hasattr(importlib.import_module(module), name)] == [], module


def fact_row(fact: Fact) -> str:
    limits = f"{fact.low:g} or more" if fact.high is None else f"{fact.low:g}..{fact.high:g}"
    source = "server" if fact.source == "server" else "client's rows" if fact.measure else "client's training"
    return row(f"`{fact.name}`", fact.about, limits, source)


def criterion_row(one: Criterion) -> str:
    return row(f"`{one.name}`", one.family, code(one.required_facts), "yes" if one.degree else "no", one.about)


def test_every_fact_is_documented() -> None:
    families = map(find_fact, ("attribute:NAME", "fact:NAME", "validated:OBJECTIVE", "claimed:FACT"))
    held(table(chapter("docs/criteria.md", "Facts")), [fact_row(fact) for fact in [*FACTS.values(), *families]])


def test_every_criterion_is_documented() -> None:
    any_other = reported("CRITERION", Family.TRUST, "those of CRITERION", "")
    own: list[Criterion] = [Attribute("NAME"), ClientFact("NAME"), Validated(Overall("OBJECTIVE"))]
    families = [*own, Contribution(), Reputation(any_other)]
    wanted = [criterion_row(one) for one in [*CRITERIA.values(), *families]]
    held(table(chapter("docs/criteria.md", "Criteria")), wanted)


def test_the_plan_of_the_house_names_every_room_and_every_file_of_the_core() -> None:
    source = Path(fedmerit.__file__).parent
    rooms, _, files = chapter("docs/design.md", "Rooms").partition("| `core/` | subject |")
    assert set(re.findall(r"^\| `(\w+)/` \|", rooms, flags=re.M)) == {
        path.name for path in source.iterdir() if (path / "__init__.py").exists()
    }
    named = re.findall(r"`(\w+/?)`", " ".join(line.split(" |")[0] for line in table(files)))
    core = source / "core"
    folders = [f"{path.name}/" for path in core.iterdir() if (path / "__init__.py").exists()]
    assert sorted(named) == sorted([*folders, *(path.stem for path in core.glob("[a-z]*.py"))])


def keys_in(text: str) -> dict[str, str]:
    """The keys that a part of the page lists, with their defaults."""
    return dict(re.findall(r"^\| `(\w+(?:\.\w+)+)` \| (.*?) \|", text, flags=re.M))


def keys_of(name: str, section: type[Section]) -> dict[str, str]:
    """The keys of a section, with their defaults as the page shows them."""
    defaults = {key: field.default for key, field in section.model_fields.items()}
    shown = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    texts = {key: "(see meaning)" if value is None else f"`{value}`" for key, value in shown.items()}
    required = {key: "(required)" for key, field in section.model_fields.items() if field.is_required()}
    return {f"{name}.{key}": text for key, text in (texts | required).items()}


def test_every_key_is_documented_with_its_default() -> None:
    """Those whose tables are written by hand; the others are compared with the code."""
    page = re.sub(r"<!-- table: .*?<!-- end -->", "", (ROOT / "docs/configuration.md").read_text(), flags=re.S)
    before, *parts = re.split(r"^##+ (.*)$", page, flags=re.M)
    chapters = {title: keys_in(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    sections: dict[str, type[Section]] = {"task": TaskConfig, "train": TrainConfig, "facts": FactsConfig}
    sections |= {"task.attack": AttackConfig, "task.nodes": NodesConfig}
    for name, section in sections.items():
        title = next(title for title in chapters if title.startswith(f"[{name}]"))
        assert chapters.pop(title) == keys_of(name, section)
    assert not any(chapters.values())
    assert not keys_in(before)


def test_the_options_of_every_partition_are_documented() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    for partition, options in PARTITIONS.items():
        assert f"| `{partition}` | {code(options)} |" in page


def test_every_kind_of_attack_is_documented_with_its_strength() -> None:
    lines = table(chapter("docs/configuration.md", "[task.attack]: clients that attack."))
    cells = [line.strip("| ").split(" | ") for line in lines if "task.attack" not in line.split(" | ")[0]]
    wanted = {f"`{kind}`": str(DEFAULT_STRENGTH.get(kind, "none")) for kind in KINDS}
    assert {kind: strength for kind, strength, _ in cells} == wanted


def test_every_key_of_a_study_is_documented() -> None:
    page = (ROOT / "docs/configuration.md").read_text().partition("## A study")[2]
    named = re.findall(r"^\| `(\w+)` \|", page, flags=re.M)
    keys = [field.alias or key for kind in (Plan, Row, TuneConfig) for key, field in kind.model_fields.items()]
    assert sorted(named) == sorted(keys)
    assert f"`{list(TARGETS)}`" in page
    assert f"`{list(SHARES)}`" in page


def test_every_kind_of_evidence_is_documented() -> None:
    cells = " ".join(line.split(" |")[0] for line in table(chapter("docs/suspects.md", "Who stands out")))
    assert re.findall(r"`(\w+)`", cells) == list(EVIDENCE)


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert {name for name in commands if f"fedmerit {name}" not in readme and f"make {name}" not in readme} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[0]
    assert len(example.strip().splitlines()) <= 12
    exec(compile(example, "README.md", "exec", dont_inherit=True), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + 10  # a line per recipe, then one per client of the round
    results = re.search(r"# (0.*)$", example, flags=re.M)
    assert results
    for line, told in zip(printed, results[1].split(", then "), strict=False):
        (accuracy, rounds), (shown, wanted) = line.split(), told.split()
        assert (float(accuracy), int(rounds)) == (
            pytest.approx(float(shown), abs=0.005),
            pytest.approx(int(wanted), abs=1),
        )


def test_the_readme_example_on_adult_takes_all_weight_from_the_poisoned(
    data_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data_folder("adult")
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[1]
    exec(compile(example, "README.md", "exec", dont_inherit=True), {})
    fedavg, fedval, why, *_ = capsys.readouterr().out.splitlines()
    assert float(fedval.split()[0]) > float(fedavg.split()[0])
    weights = json.loads(fedval.partition(" ")[2])
    assert [weights[client] for client in (2, 3, 6, 7)] == [0, 0, 0, 0]
    assert why.startswith("2 poisoned got 0.00%")


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("docs/notebooks/*.ipynb"))], ids=lambda page: page.name)
def test_what_examples_import_is_there(page: Path) -> None:
    text = page.read_text().replace("\\n", "\n").replace('    "from', "from")  # a notebook's lines are texts in JSON
    for module, names in re.findall(r"^from (fedmerit[\w.]*) import ([\w, ]+)$", text, flags=re.M):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == [], module


def test_the_parts_of_the_guide_run(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (ROOT / "docs/add-a-criterion.md").read_text()
    names: dict[str, object] = {"__name__": "builtins"}  # a module that dataclasses can look up
    example = "".join(re.findall(r"```python\n(.*?)```", guide, flags=re.S))
    exec(compile(example, "guide", "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == "[0.57142857 0.42857143]\n"
    task = fedmerit.load_task("digits", clients=6)
    for name in ("recipe", "cautious"):
        run = fedmerit.federate(task, names[name], rounds=2, fraction=0.5)  # type: ignore[arg-type]
        assert all("freshness" in row.criteria for row in run.explain(2))


def cited_in(path: Path) -> set[str]:
    """What docstrings of a module cite: [Krum], [Yin 2018], [CFL, Alg. 1]."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]
    texts = [re.sub(r"^ *>>>.*?(\n\n|\Z)", "", ast.get_docstring(node) or "", flags=re.S | re.M) for node in nodes]
    return {name for text in texts for name in re.findall(NAMED, text)}


def test_citations_lead_to_the_papers_page() -> None:
    papers = (ROOT / "docs/papers.md").read_text()
    anchors = re.findall(r'<a id="([^"]+)"></a>|^## (\w+)$', papers, flags=re.M)
    known = {(name or heading).lower() for name, heading in anchors}
    sources = [path for room in ("src", "tests", "examples", "reproductions") for path in (ROOT / room).rglob("*.py")]
    pages = [*sources, *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.toml")]
    text = "\n".join(page.read_text() for page in pages)
    references = set(re.findall(REFERENCE, papers, flags=re.M))
    in_docstrings = {name for path in (ROOT / "src/fedmerit/core").rglob("*.py") for name in cited_in(path)}
    cited = {*re.findall(CITATION, text), *references, *in_docstrings}
    assert {place for place in cited if re.sub("[^a-z0-9]+", "-", place.lower()).strip("-") not in known} == set()
    assert set(re.findall(BY_YEAR, text)) <= references


def test_formulas_stand_where_the_papers_page_says() -> None:
    for line in re.findall(r"^\|.*`.*\|$", chapter("docs/papers.md", "Where it stands"), flags=re.M):
        _, files, names, _ = line.split(" |")
        paths = re.findall(r"`([\w/]+)\.py`", files)
        modules = [importlib.import_module(f"fedmerit.{path.replace('/', '.')}") for path in paths]
        owners = [*modules, *(kind for module in modules for kind in vars(module).values() if isinstance(kind, type))]
        for name in re.findall(r"`[\w.]*?(\w+)`", names):
            assert any(hasattr(owner, name) for owner in owners), f"{name} is not in {files}"


SITE_PAGES = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name != "results"]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    notebooks = sorted((ROOT / "docs").rglob("*.ipynb"))
    names = [str(page.relative_to(ROOT / "docs")) for page in [*SITE_PAGES, *notebooks]]
    assert [name for name in names if name not in navigation] == [], "add the page to `nav` in mkdocs.yml"


def test_notebooks_are_kept_without_outputs() -> None:
    notebooks = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
    assert len(notebooks) == 8
    for notebook in notebooks:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["source"][0].startswith("# ")
        assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == [], notebook.name


MADE = (
    "attacks",
    "bench",
    "dafl-",
    "fedval-",
    "m2f-",
    "outside-",
    "pmcfl-table2",
    "pmcfl-table4.",
    "pmcfl-table6",
    "scale",
)
"""Pages of results that a command writes in lines of its own."""
FOLDED = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and not page.name.startswith(MADE)]


@pytest.mark.parametrize("page", FOLDED, ids=lambda page: page.name)
def test_lines_have_at_most_120_characters(page: Path) -> None:
    """But for rows of tables, pictures, headings and commands, which Markdown cannot fold: tools/site/fold.py does."""
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [f"{place}: {line}" for place, line in enumerate(lines, 1) if len(line) > 120]
    assert [line for line in long if not re.match(r"\d+: (\||!\[|#|    )", line)] == []


def test_pictures_of_the_documents_have_words() -> None:
    for page in SITE_PAGES:
        for words in re.findall(r"!\[([^\]]*)\]\(", page.read_text(encoding="utf-8")):
            assert len(words.split()) >= 3, f"{page.name}: a picture needs words that say what it shows"
