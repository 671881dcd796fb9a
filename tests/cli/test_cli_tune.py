"""`fedmerit compare CONFIG.toml --grid`: the best point of a grid from the command line, its folder, its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CommandLine, one_line

from fedmerit import load_config
from fedmerit.study.plan import load_plan

DIGITS = "[task]\nclients = 4\n[train]\nepochs = 1\n[run]\nrounds = 2\nfraction = 1.0\nseed = 3\n"
GRID = ("--grid", "train.lr=1e-9,0.5")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "digits.toml"
    path.write_text(DIGITS)
    return path


def test_the_best_of_a_grid_is_run_and_written(
    cli: CommandLine, toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "tuned"
    monkeypatch.setenv("COLUMNS", "80")
    answer = cli("compare", toml, *GRID, "--set", "run.rounds=3", "--out", out, "--jobs", "2")
    assert (answer.code, answer.err) == (0, "")
    flat = " ".join(answer.out.split())
    assert "11 of 11 runs: digits, seed 3 done" in flat
    assert "digits: tuned by accuracy on seeds 101..105" in flat
    assert "the best train.lr, 0.5, is the largest of its grid: extend it upwards" in flat
    assert f"next: fedmerit run {out}/best.toml --out DIR" in answer.out
    best = load_config(out / "best.toml")
    assert (best.train.lr, best.run.rounds, best.run.seed) == (0.5, 3, 3)
    told = cli("compare", toml, *GRID, "--set", "run.rounds=3", "--out", out, "--json").json
    assert told["tuned"]["digits"]["best"] == {"train.lr": 0.5}
    assert [point["verdict"] for point in told["tuning"]] == ["chosen", "leans worse"]
    (tmp_path / "study.toml").write_text('seeds = 1\nbase = "tuned/best.toml"\n[[row]]\nname = "tuned"\n')
    plan = load_plan(tmp_path / "study.toml")
    assert plan.config(plan.rows[0], 1).train.lr == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--grid", "train.lr="), "the grid of train.lr must have at least one value"),
        (("--grid", "train.lrr=1,2"), "unknown key 'train.lrr' (did you mean 'lr'?)"),
        (("--grid", "run.seed=1,2"), "run.seed cannot be tuned"),
        ((*GRID, "--set", "run.seed=101"), "got 101 in both; set other seeds in [tune]"),
        ((*GRID, "--set", "train.lrr=1"), "unknown key 'train.lrr'"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, toml: Path, tmp_path: Path, arguments: tuple[str, ...], message: str):
    assert message in one_line(cli("compare", toml, *arguments, "--out", tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_a_grid_needs_a_configuration(cli: CommandLine, tmp_path: Path):
    assert "no configuration file" in one_line(cli("compare", tmp_path / "no.toml", *GRID, "--out", tmp_path / "t"))
