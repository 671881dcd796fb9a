"""Help and lists: what a newcomer asks first."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import typer
from helpers import CommandLine

from fedmerit.cli import app
from fedmerit.config.recipe import part_names
from fedmerit.core.criteria.table import CRITERIA
from fedmerit.core.objectives import GROUPED, OVERALL
from fedmerit.core.recipes import RECIPES
from fedmerit.tasks.registry import TASKS

COMMANDS = sorted(typer.main.get_command(app).commands)
LISTS = {
    "tasks": ("task", {*TASKS, "table:FILE"}),
    "recipes": ("recipe", set(RECIPES)),
    "criteria": (
        "criterion",
        {
            *CRITERIA,
            "attribute:NAME",
            "fact:NAME",
            "validated:OBJECTIVE",
            "contribution:METHOD",
            "reputation:CRITERION",
        },
    ),
    "objectives": ("objective", {*OVERALL, "recall:CLASS", *(f"{name}:ATTRIBUTE" for name in GROUPED)}),
    "scores": ("score", set(part_names("score"))),
}


def test_the_commands_are_known():
    assert set(COMMANDS) >= {"run", "weigh", "explain", "show", "report", "demo", *LISTS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli: CommandLine, command: str):
    answer = cli(command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"{command} [OPTIONS]" in answer.out


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_arguments_help_is_shown(cli: CommandLine, arguments: list[str]):
    answer = cli(*arguments)
    assert "Usage:" in answer.out
    assert all(command in answer.out for command in COMMANDS)


def test_the_version(cli: CommandLine):
    assert cli("--version").out == f"fedmerit {version('fedmerit')}\n"


@pytest.mark.parametrize("command", LISTS)
def test_lists_for_machines(cli: CommandLine, command: str):
    key, names = LISTS[command]
    answer = cli(command, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert {row[key] for row in answer.json} == names
    assert all(row["about"] for row in answer.json)


@pytest.mark.parametrize("command", LISTS)
def test_lists_for_people(cli: CommandLine, command: str):
    answer = cli(command)
    assert (answer.code, answer.err) == (0, "")
    assert all(name in answer.out for name in LISTS[command][1])


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["tasks", "--jason"], ["weigh"], ["explain", ".", "--round", "one"]]
)
def test_a_command_that_cannot_be_read_ends_with_2(cli: CommandLine, arguments: list[str]):
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Usage:" in answer.err
    assert "Traceback" not in answer.err
