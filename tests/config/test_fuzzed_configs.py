"""Configurations of strangers: 1,000 examples with something wrong in each are settings, or one clear line.

FEDMERIT_FUZZ is how many times as many are tried (`make fuzz`).
"""

import os
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from helpers import CommandLine, one_line

from fedmerit import UserError
from fedmerit.config.privacy import make_collect
from fedmerit.config.schema import make_config, make_recipe

TIMES = int(os.environ.get("FEDMERIT_FUZZ", "1"))
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2**63, 10**30, 0.5, -0.5, 1e308, float("nan"), float("inf"), True, False),
    *("", "1", "x" * 5000, "\x1b[2J", "fedavg", "DS", "none", "../../x", "table:/dev/zero", "\ud800"),
    *([], {}, [[]], [{}], ["DS", "DS"], [1, "a"], {"name": "fedavg"}, {"poor": "1"}, {"name": []}, [["DS", 1]]),
)


def plain(path: Path) -> dict[str, Any] | None:
    """An example for `run`; plans of studies are others."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        make_config(values)
    except UserError:
        return None
    return values


def tables(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The table and all within it."""
    return [values, *(one for value in values.values() if isinstance(value, dict) for one in tables(value))]


def mutate(random: np.random.Generator, values: dict[str, Any]) -> None:
    """Another value, a key more or less, a table in place of a value."""
    every = tables(values)
    table = every[random.integers(len(every))]
    value = deepcopy(VALUES[random.integers(len(VALUES))])
    keys = list(table)
    way = random.integers(4)
    if way == 0 or not keys:
        known = (
            *("name", "criteria", "score", "stages", "limits", "models", "search", "server", "normalise", "when_zero"),
            *("kinds", "seed", "rounds", "fraction", "clients", "schedule", "attack"),
        )
        table[str(random.choice([*known, "x\x1b", "", "a.b"]))] = value
    elif way == 1:
        del table[str(random.choice(keys))]
    else:
        table[str(random.choice(keys))] = value


def test_1000_configurations_are_settings_or_one_clear_line():
    random = np.random.default_rng(24)
    examples = [values for path in EXAMPLES if (values := plain(path)) is not None]
    assert len(examples) > 3
    refused: list[str] = []
    for trial in range(1000 * TIMES):
        values = tomllib.loads(tomli_w.dumps(examples[trial % len(examples)]))
        for _ in range(random.integers(1, 4)):
            mutate(random, values)
        try:
            config = make_config(values)
            make_recipe(config.recipe)
            make_collect(config, make_recipe(config.recipe))
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > 500
    assert max(map(len, refused)) < 20_000


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 3000, "a." * 3000 + "b = 1", "a = " + "9" * 5000, "x = '''", "\ufeffa = 1", "[a]\n[a]", "a = 1\0"],
)
def test_texts_that_break_parsers_are_one_clear_line(text: str, tmp_path: Path, cli: CommandLine):
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    one_line(cli("run", path, "--out", tmp_path / "run"))


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path, cli: CommandLine):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        line = one_line(cli("run", path, "--out", tmp_path / "run"))
        assert "ordinary file" in line


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, cli: CommandLine):
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "at most 67,108,864 are read" in one_line(cli("run", path, "--out", tmp_path / "run"))


def test_text_of_others_does_not_steer_the_terminal(tmp_path: Path, cli: CommandLine):
    answer = cli("run", tmp_path / "a\x1b[2Jb.toml", "--out", tmp_path / "run")
    assert "\x1b[2J" not in answer.err
    assert "\\x1b[2J" in one_line(answer)
