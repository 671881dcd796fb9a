"""Help and lists: what a newcomer asks first."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise

import pytest
import typer
from helpers import CommandLine, one_line
from typer.testing import CliRunner

from fedmerit.cli import app
from fedmerit.cli.app import FORMER
from fedmerit.config.recipe import part_names
from fedmerit.core.criteria.table import CRITERIA, display_name, find_criterion
from fedmerit.core.objectives import BY_CLASS, GROUPED, OVERALL
from fedmerit.core.recipes import RECIPES, SETTINGS_NOT_RECIPES
from fedmerit.tasks.registry import TASKS

COMMANDS = sorted(typer.main.get_command(app).commands)
LISTS = {
    "tasks": ("task", {*TASKS, "table:FILE"}),
    "recipes": ("recipe", {*RECIPES, *(f"({name})" for name in SETTINGS_NOT_RECIPES)}),
    "criteria": (
        "criterion",
        {
            *map(display_name, CRITERIA),
            "attribute:NAME",
            "fact:NAME",
            "validated:OBJECTIVE",
            "contribution:METHOD",
            "reputation:CRITERION",
        },
    ),
    "objectives": (
        "objective",
        {*OVERALL, *(f"{name}:CLASS" for name in BY_CLASS), *(f"{name}:ATTRIBUTE" for name in GROUPED)},
    ),
    "scores": ("score", set(part_names("score"))),
}


def test_help_lists_at_most_14_commands_each_on_one_line_of_80_columns():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    for command in COMMANDS:
        (line,) = re.findall(rf"^│ {command} +(.*?) *│$", shown, flags=re.M)
        assert line.endswith("."), f"{command}: the first line of its docstring is too long: {line}"
    assert len(COMMANDS) <= 14


INNER = [["flower", name] for name in typer.main.get_command(app).commands["flower"].commands]


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), *INNER], ids=" ".join)
def test_help_of_a_command_fits_80_columns(command: list[str]):
    answer = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"})
    assert answer.exit_code == 0
    assert f"{command[-1]} [OPTIONS]" in answer.output
    assert "Example:" in answer.output
    boxes = re.findall(r"╭─ (?:Options|Arguments) ─.*?╰", answer.output, flags=re.S)
    lines = [line for box in boxes for line in box.splitlines()[1:-1] if not re.match("│ +\\[", line)]
    for line, following in pairwise(lines):
        wrapped = [text.startswith("│       ") for text in (line, following)]
        assert wrapped != [True, True], f"an option's help takes three lines: {following}"


@pytest.mark.parametrize("name", FORMER)
def test_a_former_command_names_the_new_one(cli: CommandLine, name: str):
    message = one_line(cli(name, "runs/a"))
    ((program, command),) = re.findall(rf"`fedmerit {name}` is now `(\w+) (\S+)", message)
    assert program == "python" or command in COMMANDS


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("fedmerit exp", ["explain", "export"]),
        ("fedmerit run a.toml --s", ["--set"]),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, wanted: list[str]):
    count = str(len(words.split()) - 1)
    environment = {**os.environ, "_FEDMERIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    run = [sys.executable, "-c", "import sys; sys.argv[0] = 'fedmerit'; from fedmerit.cli import main; main()"]
    answer = subprocess.run(run, env=environment, capture_output=True, text=True, check=False).stdout.split()
    assert [word for word in wanted if word not in answer] == []
    assert all(word.startswith(words.split()[-1]) for word in answer)


def test_the_version(cli: CommandLine):
    assert cli("--version").out == f"fedmerit {version('fedmerit')}\n"
    module = subprocess.run([sys.executable, "-m", "fedmerit", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == cli("--version").out


def test_the_short_list_of_criteria_has_names_that_a_priority_accepts(cli: CommandLine):
    short = cli("list", "criteria", "--json").json
    assert len(short) < len(cli("list", "criteria", "--all", "--json").json) / 2
    symbols = {find_criterion(line["criterion"]).name for line in short if line["symbol"]}
    assert symbols == {"DS", "LD", "CB", "IS", "MW"}


@pytest.mark.parametrize("what", LISTS)
def test_lists(cli: CommandLine, what: str):
    key, names = LISTS[what]
    answer = cli("list", what, "--all", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert {row[key] for row in answer.json} == names
    assert all(row["about"] for row in answer.json)
    assert all(name in cli("list", what, "--all").out for name in names)


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["list", "tasks", "--jason"], ["list", "cats"], ["weigh"], ["explain", ".", "--round", "one"]],
)
def test_a_command_that_cannot_be_read_ends_with_2(cli: CommandLine, arguments: list[str]):
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Usage:" in answer.err
    assert "Traceback" not in answer.err
