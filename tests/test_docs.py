"""The documents stay true: names, keys, commands, links and the README's example."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

import fedmerit
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.config.schema import Config, Section, make_config
from fedmerit.core.recipes import RECIPES
from fedmerit.core.suspects import EVIDENCE

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


def script(name: str) -> ModuleType:
    """A script that writes pages, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/site/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_page_has_every_public_name_as_the_code_declares_it() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert page == script("api").page(), "python tools/site/api.py"
    assert set(fedmerit.__all__) <= set(re.findall(r"^(?:### |\| `)(\w+)", page, flags=re.M))


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes the tables of docs/configuration.md."""
    return script("configuration")


@pytest.mark.parametrize("name", ["configuration.md", "criteria.md"])
def test_tables_are_those_that_the_code_declares(tables: ModuleType, name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == tables.written(page), "python tools/site/configuration.py"


def test_every_section_of_a_configuration_has_a_table(tables: ModuleType) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    rooms = ("fedmerit.config", "fedmerit.study")
    own = {kind for kind in Section.__subclasses__() if kind.__module__.startswith(rooms)}
    assert own == {Config, RecipeConfig, *tables.SECTIONS.values()}
    assert [name for name in tables.SECTIONS if f"<!-- table: {name} -->" not in page] == []
    assert len(tables.FIRST) == 20


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


def test_every_kind_of_evidence_is_documented() -> None:
    cells = " ".join(line.split(" |")[0] for line in table(chapter("docs/untrusted-clients.md", "Suspects")))
    assert re.findall(r"`(\w+)`", cells) == list(EVIDENCE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("docs/notebooks/*.ipynb"))], ids=lambda page: page.name)
def test_what_examples_import_is_there(page: Path) -> None:
    text = page.read_text().replace("\\n", "\n").replace('    "from', "from")  # a notebook's lines are texts in JSON
    for module, names in re.findall(r"^from (fedmerit[\w.]*) import ([\w, ]+)$", text, flags=re.M):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == [], module


def test_the_parts_of_the_guide_run(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (ROOT / "docs/priorities.md").read_text()
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
    places = re.findall(r"`([\w/]+)\.py`:((?:,? `\w+`)+)", (ROOT / "docs/papers.md").read_text())
    assert len(places) > 20
    for path, names in places:
        module = importlib.import_module(f"fedmerit.{path.replace('/', '.')}")
        owners = [module, *(kind for kind in vars(module).values() if isinstance(kind, type))]
        for name in re.findall(r"\w+", names):
            assert any(hasattr(owner, name) for owner in owners), f"{name} is not in {path}.py"


SITE_PAGES = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name != "results"]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    notebooks = sorted((ROOT / "docs").rglob("*.ipynb"))
    names = [str(page.relative_to(ROOT / "docs")) for page in [*SITE_PAGES, *notebooks]]
    assert [name for name in names if name not in navigation] == [], "add the page to `nav` in mkdocs.yml"
    assert len(re.findall(r"^  - ", navigation, flags=re.M)) == 5
    assert len(re.findall(r"\.(?:md|ipynb)$", navigation, flags=re.M)) <= 30


def test_notebooks_are_kept_without_outputs() -> None:
    notebooks = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
    assert len(notebooks) == 5
    for notebook in notebooks:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["source"][0].startswith("# ")
        assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == [], notebook.name


def code_lines(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        blocks = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    else:
        blocks = re.findall(r"^ *```+\w*\n(.*?)^ *```+$", text, flags=re.S | re.M)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize(
    "page", [*SITE_PAGES, *sorted(ROOT.glob("docs/notebooks/*.ipynb"))], ids=lambda page: page.name
)
def test_code_fits_a_window_of_1280_pixels(page: Path) -> None:
    assert [line for line in code_lines(page) if len(line) > 85] == []


def test_pictures_of_the_documents_have_words() -> None:
    for page in SITE_PAGES:
        for words in re.findall(r"!\[([^\]]*)\]\(", page.read_text(encoding="utf-8")):
            assert len(words.split()) >= 3, f"{page.name}: a picture needs words that say what it shows"
