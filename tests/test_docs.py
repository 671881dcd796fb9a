"""The documents stay true: names, keys, commands, links and the README's example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

import fedmerit
from fedmerit.cli import app
from fedmerit.config.schema import (
    Config,
    GroupsConfig,
    RewardConfig,
    ScheduleConfig,
    ScoreConfig,
    SearchConfig,
    ServerConfig,
)
from fedmerit.config.scores import SCORES
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.study.plan import Plan, Row

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CITATION = r"\[((?:PMCFL|DAFL|M2F|FedVal)(?:, [^\[\]]+)?)\](?!\()"
"""A place in a paper, as docstrings name it: [PMCFL, eq. 6]."""


def test_every_public_name_is_documented_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/api.md").read_text(), flags=re.M)
    assert sorted(named) == sorted(fedmerit.__all__)


def test_every_key_is_documented_with_its_default() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+(?:\.\w+)+)` \| (.*?) \|", page, flags=re.M))
    inner = {"recipe.search": SearchConfig, "recipe.groups": GroupsConfig, "recipe.reward": RewardConfig}
    sections = {name: field.annotation for name, field in Config.model_fields.items()} | inner
    sections |= {"run.schedule": ScheduleConfig, "recipe.server": ServerConfig}
    for section, kind in sections.items():
        for key, value in kind.model_fields.items():  # type: ignore[union-attr]
            default = value.default.name if isinstance(value.default, ScoreConfig) else value.default
            shown = list(default) if isinstance(default, tuple) else default
            assert rows.pop(f"{section}.{key}") == ("(see meaning)" if shown is None else f"`{shown}`")
    assert rows == {}


def test_every_key_of_a_study_is_documented() -> None:
    page = (ROOT / "docs/configuration.md").read_text().partition("## A study")[2]
    named = re.findall(r"^\| `(\w+)` \|", page, flags=re.M)
    keys = [field.alias or key for kind in (Plan, Row) for key, field in kind.model_fields.items()]
    assert sorted(named) == sorted(keys)
    assert f"`{list(TARGETS)}`" in page
    assert f"`{list(SHARES)}`" in page


def test_every_score_is_documented() -> None:
    pages = (ROOT / "docs/configuration.md").read_text(), (ROOT / "docs/papers.md").read_text()
    assert all(f"`{name}`" in page for name in SCORES for page in pages)


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
    assert len(printed) == 2 + 10  # two lines of results, then a line per client of the round
    assert all(0.5 < float(accuracy) <= 1 for accuracy in printed[0].split())


def test_the_criterion_of_the_guide_runs() -> None:
    guide = (ROOT / "docs/add-a-criterion.md").read_text()
    names: dict[str, object] = {"__name__": "builtins"}  # a module that dataclasses can look up
    exec(compile(re.findall(r"```python\n(.*?)```", guide, flags=re.S)[0], "guide", "exec", dont_inherit=True), names)
    task = fedmerit.load_task("digits", clients=6)
    run = fedmerit.federate(task, names["recipe"], rounds=2, fraction=0.5)  # type: ignore[arg-type]
    assert all("freshness" in row.criteria for row in run.explain(2))


def test_citations_lead_to_the_papers_page() -> None:
    anchors = set(re.findall(r'<a id="([^"]+)"></a>|^## (\w+)$', (ROOT / "docs/papers.md").read_text(), flags=re.M))
    known = {(name or heading).lower() for name, heading in anchors}
    pages = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.toml")]
    cited = {place for page in pages for place in re.findall(CITATION, page.read_text())}
    assert {place for place in cited if re.sub("[^a-z0-9]+", "-", place.lower()).strip("-") not in known} == set()
