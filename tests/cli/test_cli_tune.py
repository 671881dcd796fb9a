"""`fedmerit tune`: a grid from the command line, its folder, its table, its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CommandLine, one_line

from fedmerit import load_config
from fedmerit.study.plan import load_plan

DIGITS = "[task]\nclients = 4\n[train]\nepochs = 1\n[run]\nrounds = 2\nfraction = 1.0\nseed = 3\n"
GRID = ("--grid", "train.lr=1e-9,0.5", "--seeds", "7,8")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "digits.toml"
    path.write_text(DIGITS)
    return path


def test_a_grid_is_tuned_told_and_resumed(
    cli: CommandLine, toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "tune"
    monkeypatch.setenv("COLUMNS", "80")
    answer = cli("tune", toml, *GRID, "--set", "run.rounds=3", "--out", out, "--jobs", "1")
    assert (answer.code, answer.err) == (0, "")
    flat = " ".join(answer.out.split())
    assert "4 of 4 runs: lr=0.5, seed 8 done" in flat
    assert "accuracy after 3 rounds, 2 points on seeds 7, 8" in flat
    assert "the best train.lr, 0.5, is the largest of its grid: extend it upwards" in flat
    assert f"next: fedmerit run {out}/best.toml --out DIR" in answer.out
    best = load_config(out / "best.toml")
    assert (best.train.lr, best.run.rounds, best.run.seed) == (0.5, 3, 3)
    told = cli("tune", "--resume", out, "--json").json
    assert told["best"] == {"train.lr": 0.5}
    assert (told["seeds"], told["by"], told["edges"]) == ([7, 8], "accuracy", {"train.lr": "largest"})
    assert told["best_config"] == str(out / "best.toml")
    assert [point["verdict"] for point in told["points"]] == ["chosen", "too few seeds"]
    (tmp_path / "study.toml").write_text('seeds = 1\nbase = "tune/best.toml"\n[[row]]\nname = "tuned"\n')
    plan = load_plan(tmp_path / "study.toml")
    assert plan.config(plan.rows[0], 1).train.lr == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give CONFIG.toml, --grid KEY=VALUE,VALUE and --out DIR"),
        (("--grid", "train.lr=", "--out", "t"), "the grid of train.lr has at least one value"),
        (("--grid", "train.lrr=1,2", "--out", "t"), "unknown key 'train.lrr' (did you mean 'lr'?)"),
        (("--grid", "run.seed=1,2", "--out", "t"), "run.seed cannot be tuned"),
        ((*GRID, "--set", "run.seed=8", "--out", "t"), "run.seed of the configuration, 8, is a tuning seed"),
        ((*GRID, "--by", "loss", "--out", "t"), "unknown measure to tune by 'loss'"),
        ((*GRID, "--by", "rounds", "--out", "t"), "needs a target accuracy"),
        ((*GRID, "--share", "0.5", "--out", "t"), "target and share have no effect"),
        ((*GRID, "--set", "train.lrr=1", "--out", "t"), "unknown key 'train.lrr'"),
        ((*GRID, "--resume", "t"), "--resume goes on with a tuning as it is"),
    ],
)
def test_mistakes_are_one_line(
    cli: CommandLine,
    toml: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
):
    monkeypatch.chdir(tmp_path)
    assert message in one_line(cli("tune", toml, *arguments))
    assert not (tmp_path / "t").exists()


def test_a_folder_without_a_tuning_cannot_be_resumed(cli: CommandLine, tmp_path: Path):
    assert "no tuning in" in one_line(cli("tune", "--resume", tmp_path))
    assert "no configuration file" in one_line(cli("tune", tmp_path / "no.toml", *GRID, "--out", tmp_path / "t"))
