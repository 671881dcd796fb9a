"""The attack grid through the command line: run, resumed, read, drawn; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Answer, contents

from fedmerit.errors import ConfigError, UserError
from fedmerit.study.attack_plan import load_attack_plan

BASE = """
[task]
clients = 8
partition = "iid"
model = "digits-linear"
server = 50
[train]
lr = 0.5
epochs = 2
[run]
rounds = 4
fraction = 1.0
workers = 1
"""
RUN = (
    BASE
    + '[recipe]\nname = "fedval"\npriority = ["validated:accuracy"]\nscore = { name = "weighted-mean", rank = "top" }\n'
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RUN)
    return path


def test_a_run_is_attacked_resumed_and_drawn(
    cli: Callable[..., Answer], config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["attack", config, "--attack", "scale", "--attack", "backdoor", "--share", "0.25", "--seeds", "1"]
    done = cli(*command, "--jobs", "1", "--json", "--page", "grid.html", "--markdown", "grid.md")
    assert done.code == 0, done.err
    grid = done.json
    assert grid["rows"] == ["fedavg", "fedval"]
    assert [(one["attack"], one["row"]) for one in grid["scores"]] == [
        (attack, row) for attack in ("none", "scale", "backdoor") for row in ("fedavg", "fedval")
    ]
    scores = {(one["attack"], one["row"]): one for one in grid["scores"]}
    assert scores["none", "fedavg"]["drop"] == 0
    assert scores["none", "fedavg"]["weight"] is None
    scaled = scores["scale", "fedavg"]
    assert scaled["heads"] == 0.25
    assert (scaled["precision"], scaled["recall"]) == (1, 1)
    assert scaled["drop"] == pytest.approx(scores["none", "fedavg"]["accuracy"] - scaled["accuracy"])
    assert scaled["missed"] == (["drop"] if scaled["drop"] > 0.08 else [])
    assert scaled["success"] is None
    assert 0 <= scores["backdoor", "fedavg"]["success"] <= 1
    worst = {one["row"]: one for one in grid["worst"]}
    for row in ("fedavg", "fedval"):
        assert worst[row]["accuracy"] == min(scores[attack, row]["accuracy"] for attack in ("scale", "backdoor"))
    page, text = Path("grid.html").read_text(), Path("grid.md").read_text()
    assert "25% of the clients attack" in page
    assert ("missed: " in page) == any(one["missed"] for one in grid["scores"])
    assert "<script" not in page
    assert "fedmerit attack" in text

    folder = tmp_path / "runs" / "attack-tiny"
    before = contents(folder / "scale-0.25" / "runs" / "fedavg-seed1")
    again = cli(*command, "--json")
    assert again.json == grid
    assert contents(folder / "scale-0.25" / "runs" / "fedavg-seed1") == before
    shown = cli(*command)
    assert "worst accuracy over 2 attacks" in shown.out
    suspects = cli("suspects", folder / "scale-0.25" / "runs" / "fedavg-seed1", "--json").json
    assert {one["client"] for one in suspects["suspects"]} == set(suspects["planted"]["clients"])


def plan(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


ROW = '[[row]]\nname = "fedavg"\nrecipe = { name = "fedavg" }\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('attacks = ["sign-flop"]\n' + ROW, "sign-flip"),
        ("shares = [1.5]\n" + ROW, "less than or equal to 1"),
        ("shares = []\n" + ROW, "at least one of its shares"),
        ('attacks = ["scale", "scale"]\n' + ROW, "differ from each other"),
        ('[base.task.attack]\nkind = "scale"\n' + ROW, "has no effect"),
        ("[bounds]\nloss = 1\n" + ROW, "unknown key 'bounds.loss'"),
        ('[[row]]\nname = "a"\ntune = { grid = { "train.lr" = [0.1, 0.2] } }\n', "does not tune"),
        ("seeds = 3\n[base.task]\nclients = 4\n", "row"),
        ('[[row]]\nname = "a"\nrecipe = { name = "nonsense" }\n', "nonsense"),
    ],
)
def test_hostile_grids_are_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_attack_plan(plan(tmp_path, text))


def test_every_cell_is_a_study_of_its_own(tmp_path: Path) -> None:
    text = 'attacks = ["liar", { kind = "scale", strength = 3.0 }]\nshares = [0.2]\nseeds = [7]\n' + ROW
    cells = load_attack_plan(plan(tmp_path, text)).cells()
    assert [(cell.attack, cell.folder) for cell in cells] == [
        ("none", "none"),
        ("liar", "liar-0.2"),
        ("scale strength=3", "scale-strength3-0.2"),
    ]
    attack = cells[2].plan.config(cells[2].plan.rows[0], 7).task.attack[0]
    assert (attack.kind, attack.share, attack.strength) == ("scale", 0.2, 3.0)


def test_a_folder_with_something_else_is_refused(cli: Callable[..., Answer], config: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    done = cli("attack", config, "--attack", "scale", "--out", tmp_path / "full")
    assert done.code == 2
    assert "holds no attack grid" in done.err


def test_a_run_configuration_is_checked_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        load_attack_plan(plan(tmp_path, "[task]\ncolour = 4\n"))


def test_some_rows_of_a_grid_alone(tmp_path: Path) -> None:
    other = '[[row]]\nname = "by size, capped"\nrecipe = { name = "fedavg", cap = 2.0 }\n'
    path = plan(tmp_path, ROW + other)
    assert [row.name for row in load_attack_plan(path, rows=["by size, capped"]).rows] == ["by size, capped"]
    with pytest.raises(UserError, match=r"unknown row of the grid 'capped'.*valid: by size, capped, fedavg"):
        load_attack_plan(path, rows=["capped"])
