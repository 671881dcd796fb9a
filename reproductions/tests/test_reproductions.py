"""Reproductions by name and scale: whether they can be run, and whether their rows are the published ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import Answer, CommandLine, one_line

from fedmerit.errors import UnknownName
from reproductions.errata import ERRATA
from reproductions.published import published
from reproductions.reproduce import REPRODUCTIONS, find_reproduction
from reproductions.reproduce.footnotes import Footnotes
from reproductions.reproduce.reproduction import SCALES, WHOLE, duration_text, expected

NAMES = tuple(REPRODUCTIONS)
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"


def spawn(*arguments: str | Path) -> Answer:
    """`python -m reproductions` in a new process, from the repository's root."""
    command = [sys.executable, "-m", "reproductions", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_scale_has_plans_that_validate_without_data(name: str, scale: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FEDMERIT_DATA", raising=False)
    one = find_reproduction(name)
    plans = one.plans(scale)
    assert all(len(plan.seeds) >= 5 for plan in plans.values())
    assert [row.name for row in plans[next(iter(plans))].rows] == [row["name"] for row in one.rows]
    assert expected(plans, one.setting(scale), jobs=2) > 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_no_published_table_depends_on_a_default_of_normalise_or_batch(name: str, scale: str):
    one = find_reproduction(name)
    rows = one.setting(scale).rows or one.rows
    assert [row["name"] for row in rows if "normalise" not in row["recipe"]] == []
    assert all("batch" in base["train"] for base in one.setting(scale).bases.values())


def test_devices_at_a_target_and_a_null_row_are_options_of_the_plans():
    (plan,) = find_reproduction("pmcfl-table2").plans("small", 1, or_equal=True, null=True).values()
    assert plan.or_equal
    assert plan.rows[-1].null


@pytest.mark.parametrize("name", NAMES)
def test_small_is_expected_within_a_quarter_of_an_hour_on_two_cores(name: str):
    one = find_reproduction(name)
    times = [expected(one.plans(scale), one.setting(scale), jobs=2) for scale in SCALES]
    assert times[0] < 15 * 60
    assert times == sorted(times)


def test_other_rounds_change_the_plans_and_the_time_and_are_said():
    one = find_reproduction("pmcfl-table2")
    short = one.with_rounds(60)
    assert short.setting("paper").differs[-1] == "60 rounds by --rounds, not 1,000"
    assert {short.setting(scale).rounds for scale in SCALES} == {60}
    (plan,), (whole,) = short.plans("paper").values(), one.plans("paper").values()
    assert plan.base["run"] == whole.base["run"] | {"rounds": 60}
    assert expected({WHOLE: plan}, short.setting("paper")) < expected({WHOLE: whole}, one.setting("paper"))


def test_fedvals_parts_plant_every_kind_and_its_rows_vary_the_servers_set():
    kinds = find_reproduction("fedval-kinds").plans("small")
    planted = {part: plan.config(plan.rows[0], 1).task.kinds for part, plan in kinds.items()}
    assert planted == {kind: {kind: 0.4} for kind in ("imbalanced", "biased", "poor", "free_rider")}
    (server,) = find_reproduction("fedval-server").plans("small").values()
    assert [server.config(row, 1).task.server for row in server.rows] == [1000, 100, 300, 1000, 5000]
    data = find_reproduction("fedval-data").plans("paper")
    assert {plan.config(plan.rows[0], 1).task.clients for plan in data.values()} == {20}


@pytest.mark.parametrize("number", [2, 4, 6])
def test_rows_are_those_of_pmcfls_tables(number: int):
    rows = [row["name"] for row in find_reproduction(f"pmcfl-table{number}").rows]
    assert rows == ["DS", *published().pmcfl_rounds[number].gains]
    assert rows[1:] == list(published().pmcfl_errors[number + 1])
    targets = published().pmcfl_rounds[number].targets
    paper = find_reproduction(f"pmcfl-table{number}").setting("paper").targets
    assert [round(100 * target) for target in paper] == list(targets)


def test_rows_are_those_of_dafls_table():
    rows = {row["name"] for row in find_reproduction("dafl-table1").rows}
    for studies in published().dafl_rounds.values():
        assert rows >= {row for block in ("Ind", "MCA") for row in studies[block]} - {"mean"}
        assert rows >= {f"Final {row}" for row in studies["Final"]} - {"Final mean"}


def test_dafls_adjusted_orders_are_all_candidates_and_merging_is_a_row_of_its_own():
    searches = {
        row["name"]: row["recipe"]["search"]
        for row in find_reproduction("dafl-table1").rows
        if "search" in row["recipe"]
    }
    merged = {name for name, search in searches.items() if search["tolerance"] > 0}
    assert merged == {"Merged Ds>Ld>Md"}
    assert len(searches) == 7
    assert {search["adjust_on"] for search in searches.values()} == {"test"}


def test_list_names_all_with_a_time_at_each_scale(cli: CommandLine):
    answer = cli("--list", "--json")
    assert answer.code == 0
    lines = {line["name"]: line for line in json.loads(answer.out)}
    assert set(lines) == set(NAMES)
    assert all(line[scale].startswith("about ") for line in lines.values() for scale in SCALES)
    shown = spawn("--list")
    assert shown.code == 0
    assert all(name in shown.out for name in NAMES)


def test_unknown_names_list_the_valid_ones(cli: CommandLine, tmp_path: Path):
    assert "valid: dafl-table1, fedval-baselines" in one_line(cli("table9", "--out", tmp_path / "a"))
    unknown = one_line(cli("dafl-table1", "--scale", "huge", "--out", tmp_path / "a"))
    assert unknown.endswith("unknown scale 'huge'; valid: medium, paper, small")
    with pytest.raises(UnknownName, match=r"unknown row of pmcfl-table2 'CB'.*valid: DS, DS>LD>MW"):
        find_reproduction("pmcfl-table2").plans("small", rows=["CB"])


@pytest.mark.parametrize("arguments", [(), ("dafl-table1",), ("--out", "a")])
def test_a_name_and_a_folder_are_needed(cli: CommandLine, arguments: tuple[str, ...]):
    assert "give NAME and --out DIR" in one_line(cli(*arguments))


def test_a_rate_is_searched_only_where_the_paper_did(cli: CommandLine, tmp_path: Path):
    answer = one_line(cli("dafl-table1", "--tune-rate", "--out", tmp_path / "a"))
    assert "dafl-table1 has no search for a learning rate" in answer


def test_missing_data_is_reported_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FEDMERIT_DATA", raising=False)
    answer = spawn("fedval-baselines", "--out", tmp_path / "a")  # workers of this process have the data already
    assert answer.code == 2
    assert "FEDMERIT_DATA" in answer.err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("seconds", "text"), [(48, "48 s"), (89 * 60, "89 min"), (9 * 3600, "9 h"), (12 * 86400, "12 days")]
)
def test_times_have_a_fitting_unit(seconds: float, text: str):
    assert duration_text(seconds) == f"about {text}"


def test_footnotes_name_entries_that_exist():
    notes = Footnotes(("pmcfl-averages", "finding-2"))
    assert notes("pmcfl-averages", "+7.67") == "+7.67†"
    assert notes.below[1] == f"‡ see python -m reproductions errata finding-2: {ERRATA['finding-2'].title}"


def test_results_are_fifteen_short_pages_whose_commands_exist():
    pages = [path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md")]
    assert len(pages) <= 15
    assert sum(len(page.split()) for page in pages) <= 15_000
    text = "\n".join(pages)
    assert set(re.findall(r"python -m reproductions ([a-z][\w-]+)", text)) <= {*NAMES, "errata"}
    modules = set(re.findall(r"python -m reproductions\.experiments\.(\w+)", text))
    assert len(modules) > 10
    assert [one for one in modules if not (ROOT / f"reproductions/experiments/{one}.py").exists()] == []
