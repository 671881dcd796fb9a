"""`fedmerit doctor` on a private configuration: what it costs before it runs, and what is refused."""

import json
from pathlib import Path

import pytest
from helpers import CommandLine, one_line

from fedmerit.config.privacy import epsilon_after

CONFIG = """
[task]
data = "digits"
clients = 100
[recipe]
name = "prioritized"
criteria = ["DS"]
normalise = {name = "scale", bounds = {DS = 500}}
[run]
rounds = 5
fraction = 0.2
selection = "poisson"
[privacy]
clip = 1.0
noise = 1.1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "private.toml"
    path.write_text(CONFIG)
    return path


def test_the_answer_for_machines(cli: CommandLine, config: Path) -> None:
    answer = cli("doctor", config, "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)["privacy"]
    assert {key: told[key] for key in ("delta", "noise", "clip", "rounds", "sampling")} == {
        "delta": 1e-5,
        "noise": 1.1,
        "clip": 1.0,
        "rounds": 5,
        "sampling": "poisson",
    }
    assert told["epsilon"] == pytest.approx(epsilon_after(1.1, 0.2, 5, 1e-5))
    assert told["clients_for"]["1"] > told["clients_for"]["3"] > told["clients_for"]["8"]
    assert told["deviation"] == pytest.approx(1.1 / 20)


def test_the_noise_for_a_target_and_a_table_for_people(cli: CommandLine, config: Path) -> None:
    config.write_text(CONFIG.replace("noise = 1.1", "epsilon = 3.0\nreproducible = true"))
    answer = cli("doctor", config)
    assert answer.code == 0, answer.err
    text = " ".join(answer.out.split())
    assert "at delta 1e-05 after 5 rounds (rdp)" in text
    assert "epsilon with the same noise multiplier" in text
    assert "the guarantee is void" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("run.selection=uniform", 'set run.selection = "poisson"'),
        ("recipe.name=fedavg", 'recipe.normalise = {name = "scale", bounds = {DS = 500}}'),
        ("privacy.delta=0.02", "privacy.delta must be at most 1 / clients = 0.01"),
        ("recipe.normalise.bounds={DS=0}", "the scale of DS must be a number above 0"),
        ("recipe.when_zero=uniform", "recipe.when_zero has no effect with [privacy]"),
        ("recipe.normalise.bounds={}", "needs a bound of DS; set recipe.normalise = "),
    ],
)
def test_what_is_refused(cli: CommandLine, config: Path, tmp_path: Path, change: str, message: str) -> None:
    assert message in one_line(cli("run", config, "--set", change, "--out", tmp_path / "run"))


def test_without_the_section(cli: CommandLine, config: Path) -> None:
    config.write_text(CONFIG.partition("[privacy]")[0])
    assert "privacy" not in json.loads(cli("doctor", config, "--json").out)


def test_a_private_run_says_epsilon_everywhere(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    small = ["--set", "run.rounds=2", "--set", "run.workers=1", "--set", "task.clients=20"]
    answer = cli("run", config, "--out", tmp_path / "run", *small)
    assert answer.code == 0, answer.err
    spent = epsilon_after(1.1, 0.2, 2, 1e-5)
    assert f"epsilon {spent:.3g}" in answer.out
    assert f"epsilon {spent:.3g}" in cli("report", tmp_path / "run", "--text").out
    assert json.loads(cli("report", tmp_path / "run", "--text", "--json").out)["epsilon"] == pytest.approx(spent)
    told = json.loads(cli("explain", tmp_path / "run", "--round", "2", "--json").out)
    assert told["epsilon"] == pytest.approx(spent)
