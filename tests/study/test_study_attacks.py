"""Studies with attacks: rows crossed with attacks, the worst case, what is kept in the folder; and what is refused."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Answer, contents

from fedmerit import UserError
from fedmerit.study.plan import dump_plan, make_plan

PLAN = """
seeds = 1
targets = []
attack = [{ kind = "scale", share = 0.25 }, { kind = "backdoor", share = 0.25 }]
[base.task]
clients = 8
partition = "iid"
model = "digits-linear"
server = 50
[base.train]
lr = 0.5
epochs = 2
[base.run]
rounds = 4
fraction = 1.0
workers = 1
[[row]]
name = "fedavg"
[[row]]
name = "fedval"
recipe = { name = "fedval", criteria = ["validated:accuracy"], score = { name = "weighted-mean", rank = "top" } }
"""
ROWS = ["fedavg", "fedval"]


def test_each_recipe_is_attacked_compared_and_resumed(cli: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "attacks.toml").write_text(PLAN)
    folder = tmp_path / "study"
    command = ["compare", tmp_path / "attacks.toml", "--out", folder]
    done = cli(*command, "--jobs", "1", "--json")
    assert done.code == 0, done.err
    accuracy = {line["row"]: line["accuracy"] for line in done.json["metrics"]}
    assert [*accuracy] == [*ROWS, *(f"{row} ({kind} 25%)" for kind in ("scale", "backdoor") for row in ROWS)]
    attacks = {line["row"]: line for line in done.json["attacks"]}
    assert [line["recipe"] for line in attacks.values()] == ROWS * 2
    for row, line in attacks.items():
        assert line["without"] == accuracy[line["recipe"]]
        assert line["lost"] == pytest.approx(line["without"] - accuracy[row])
    scaled, backdoor = attacks["fedavg (scale 25%)"], attacks["fedavg (backdoor 25%)"]
    assert (scaled["attack clients"], scaled["attack precision"], scaled["attack recall"]) == (0.25, 1, 1)
    assert scaled["attack success"] is None
    assert 0.2 < backdoor["attack success"] <= 1
    assert backdoor["attack weight"] == pytest.approx(0.25, abs=0.01)
    assert backdoor["attack dropped"] == 0 < attacks["fedval (scale 25%)"]["attack dropped"]  # only the better half
    assert 0 == scaled["attack worst class"] < attacks["fedval (scale 25%)"]["attack worst class"] < 1
    assert attacks["fedval (backdoor 25%)"]["attack success"] < backdoor["attack success"]

    (folder / "success/fedavg-backdoor-25-seed1.json").write_text("{")
    assert "is damaged" in cli("report", folder, "--text").err
    (folder / "success/fedavg-backdoor-25-seed1.json").unlink()
    run = folder / "runs" / "fedavg-scale-25-seed1"
    before = contents(run)
    shown = cli(*command)
    assert contents(run) == before
    assert cli("report", folder, "--text", "--json").json["attacks"] == done.json["attacks"]
    assert "accuracy under the worst attack" in shown.out
    assert "rounds until" not in shown.out
    assert cli("export", folder, "--table", "attacks", "--format", "markdown", "--out", tmp_path / "a.md").code == 0
    worst = (tmp_path / "a.md").read_text().splitlines()[4:6]
    for row, line in zip(ROWS, worst, strict=True):
        lowest = min((accuracy[f"{row} ({kind} 25%)"], kind) for kind in ("scale", "backdoor"))
        cells = line.strip("| ").split(" | ")
        assert cells[:4] == [row, "25%", f"{accuracy[row]:.4f}", f"{lowest[0]:.4f}"]
        assert cells[-1] == f"{lowest[1]} 25%"
    suspects = cli("explain", run, "--suspects", "--json").json
    assert {one["client"] for one in suspects["suspects"]} == set(suspects["planted"]["clients"])


def plan(**changes: Any) -> dict[str, Any]:
    return {"seeds": 1, "row": [{"name": "fedavg", "recipe": "fedavg"}]} | changes


def test_a_row_under_an_attack_is_an_ordinary_row() -> None:
    attacks = [{"kind": "liar", "facts": {"samples": 10}}, {"kind": "scale", "strength": 3.0, "share": 0.125}]
    crossed = make_plan(plan(attack=attacks))
    assert [row.name for row in crossed.rows] == [
        "fedavg",
        "fedavg (liar samples=10 20%)",
        "fedavg (scale strength=3 12.5%)",
    ]
    (attack,) = crossed.config(crossed.rows[2], 7).task.attack
    assert (attack.kind, attack.share, attack.strength) == ("scale", 0.125, 3.0)
    assert make_plan(tomllib.loads(dump_plan(crossed))).rows == crossed.rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attack": [{"kind": "sign-flop"}]}, "sign-flip"),
        ({"attack": [{"kind": "scale", "share": 1.5}]}, "less than or equal to 1"),
        ({"attack": [{"kind": "scale"}, {"kind": "scale"}]}, "got more than once: fedavg (scale 20%)"),
        ({"attack": ["scale"]}, "attack.0"),
        (
            {"attack": {"kind": "scale"}, "base": {"task": {"attack": {"kind": "gauss"}}}},
            "base sets task.attack, and [[attack]] sets it for every row; leave one of the two out",
        ),
        ({"attack": {"kind": "scale"}, "row": [{"name": "a", "task": {"attack": []}}]}, "row 'a' sets task.attack"),
    ],
)
def test_a_mistake_in_the_attacks_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        make_plan(plan(**changes))
    assert message in str(caught.value)


def test_a_study_without_attackers_has_no_table_of_attacks(
    cli: Callable[..., Answer], study_folder: Path, tmp_path: Path
) -> None:
    done = cli("export", study_folder, "--table", "attacks", "--format", "markdown", "--out", tmp_path / "a.md")
    assert done.code == 2
    assert "no row has attackers" in done.err
