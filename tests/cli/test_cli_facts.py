"""An expert's way without Python: a CSV of clients, [facts] in TOML, a priority over them, a run, the reason."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine, one_line

from fedmerit import Federation, Split, load_config
from fedmerit.core.criteria.table import display_name
from fedmerit.engine.measured import measured_facts, readable_criteria, separations
from fedmerit.errors import DataError
from fedmerit.tasks.registry import load_task, make_client, make_task

CLIENTS = """client;age;battery;job
0;24;90 %;nurse
1;61;40 %;clerk
2;33;15 %;nurse
3;38;80 %;cook
"""
CONFIG = """
[task]
data = "digits"
clients = 4
[facts]
file = "{file}"
[recipe]
name = "prioritized"
criteria = ["fact:age in 20..35 by 10", "fact:battery", "DS"]
normalise = "max"
[run]
rounds = 2
fraction = 1.0
workers = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "clients.csv").write_text(CLIENTS)
    path = tmp_path / "expert.toml"
    path.write_text(CONFIG.format(file=tmp_path / "clients.csv"))
    return path


def test_an_experts_way(cli: CommandLine, config: Path, tmp_path: Path):
    seen = json.loads(cli("doctor", config, "--json").out)["facts"]
    assert seen["clients"][load_task("digits", clients=4).federation.names[1]]["fact:age"] == 61
    assert seen["criteria"]["fact:age in 20..35 by 10"]["separates"] is True
    assert seen["criteria"]["DS"]["separates"] is False  # the digits are spread evenly
    screen = cli("doctor", config).out
    shown = {cell.strip() for line in screen.splitlines() for cell in line.replace("┃", "│").split("│")}
    facts = {name.partition(" is ")[0] for name in next(iter(seen["clients"].values()))}
    assert shown >= {"separates", "client", "criterion", *facts, *map(display_name, seen["criteria"])}
    assert shown >= {"nurse", "clerk", "cook"}  # a word is one column, not one for each
    assert "moved: how much of the weight the criterion alone moves" in " ".join(screen.split())

    assert cli("run", config, "--out", tmp_path / "run").code == 0
    reason = cli("explain", tmp_path / "run", "--client", "1").out
    assert "age in 20..35" in " ".join(reason.split())
    rounds = json.loads(cli("explain", tmp_path / "run", "--json").out)
    weights = {one["id"]: one["weight"] for one in rounds["clients"]}
    assert weights[1] == 0  # at 61 nothing is left of the degree
    assert weights[0] == max(weights.values())

    other = json.loads(cli("what-if", tmp_path / "run", "--priority", "fact:less age > dataset size", "--json").out)
    assert (other["rounds"], other["priority"]) == (2, ["fact:less age", "DS"])
    assert other["moved"] > 0.1
    assert other["clients"][1]["after"] > 0
    same = json.loads(
        cli("what-if", tmp_path / "run", "--priority", "fact:age in 20..35 by 10,fact:battery,DS", "--json").out
    )
    assert same["moved"] == pytest.approx(0, abs=1e-12)
    assert "dataset size, prioritized: " in " ".join(cli("what-if", tmp_path / "run", "--priority", "DS").out.split())
    unknown = one_line(cli("what-if", tmp_path / "run", "--priority", "NearestDistance"))
    assert "has no values to compute nearest distance (NearestDistance) from" in unknown
    assert "Add NearestDistance at the end of recipe.criteria" in unknown


def test_facts_tell_of_devices_words_and_what_waits_for_training(cli: CommandLine, config: Path):
    priority = 'recipe.criteria=["fact:job is nurse", "MW"]'
    criteria = json.loads(cli("doctor", config, "--set", priority, "--json").out)["facts"]["criteria"]
    assert criteria["fact:job is nurse"] == {"moved": 0.5, "separates": True}
    assert "fact:job is cook" not in criteria  # one client alone would get everything
    assert "measured only after training: model nearness" in cli("doctor", config, "--set", priority).out


def test_facts_tell_of_attributes_and_always_of_the_recipes_own(cli: CommandLine, tmp_path: Path):
    """Columns of [facts] that separate, and an attribute; the recipe's DS, which does not, is told too."""
    lines = [[client, *(number + 4 if client == 3 else client + 1 for number in range(22))] for client in range(4)]
    header = ["client", *(f"f{number}" for number in range(22))]
    (tmp_path / "a.csv").write_text("\n".join(",".join(map(str, line)) for line in [header, *lines]))
    text = "[task]\ndata = 'digits'\nclients = 4\n[recipe]\nname = 'prioritized'\ncriteria = ['DS']\n"
    text += f"[facts]\nfile = '{tmp_path / 'a.csv'}'\n"
    (tmp_path / "a.toml").write_text(text)
    screen = cli("doctor", tmp_path / "a.toml").out
    assert "│ dataset size " in screen
    assert "more; --json has all" in screen
    old = np.array([1.0] * 4 + [0.0] * 4)
    rows = Split(np.ones((8, 2), np.float32), np.arange(8) % 2, np.array([0, 4, 8]), {"old": old})
    found = measured_facts(Federation(("a", "b"), rows, rows, classes=2))
    (line,) = (one for one in separations(found, readable_criteria(found)) if one.criterion == "attribute:old")
    assert (line.least, line.largest, line.moved, line.separates) == (0, 1, 0.5, True)


def test_a_column_that_no_priority_can_name_is_shown_all_the_same(cli: CommandLine, config: Path, tmp_path: Path):
    (tmp_path / "clients.csv").write_text(
        "client,age,battery,home town\n0,1,1,Rome\n1,2,1,Bari\n2,3,1,Bari\n3,4,1,Rome\n"
    )
    answer = cli("doctor", config)
    assert answer.code == 0
    assert "home town" in answer.out
    assert "Bari" in answer.out


def test_another_priority_over_what_the_run_did_not_keep(cli: CommandLine, config: Path, tmp_path: Path):
    """What-if gives the weights of a run that had the priority; the first round of both trains the same."""
    settings = ("--set", "run.rounds=3", "--set", "run.fraction=0.75", "--set", "recipe.normalise=sum")
    other = "MW,class balance,fact:job is nurse"
    assert cli("run", config, *settings, "--set", "recipe.criteria=DS", "--out", tmp_path / "few").code == 0
    priority = f"recipe.criteria={json.dumps(other.split(','))}"
    assert cli("run", config, *settings, "--set", priority, "--out", tmp_path / "all").code == 0
    told = json.loads(cli("what-if", tmp_path / "few", "--priority", other, "--round", "1", "--json").out)
    assert told["measured"] == ["balance", "fact:job is nurse"]
    weights = {
        one["id"]: one["weight"]
        for one in json.loads(cli("explain", tmp_path / "all", "--round", "1", "--json").out)["clients"]
    }
    assert [one["after"] for one in told["clients"]] == pytest.approx([weights.get(i, 0) for i in range(4)], rel=1e-6)
    assert told["moved"] > 0.01
    assert (
        "measured now, because the run did not record it: balance"
        in cli("what-if", tmp_path / "few", "--priority", "CB").out
    )

    often = json.loads(cli("what-if", tmp_path / "few", "--priority", "Participation", "--round", "3", "--json").out)
    came = [
        sum(
            one["id"] == client
            for number in "123"
            for one in json.loads(cli("explain", tmp_path / "few", "--round", number, "--json").out)["clients"]
        )
        for client in range(4)
    ]
    shares = [one["after"] for one in often["clients"]]
    here = [client for client in range(4) if shares[client]]
    assert [shares[client] for client in here] == pytest.approx(
        [came[client] / sum(came[c] for c in here) for client in here]
    )


def test_first_this_then_that(cli: CommandLine, config: Path, tmp_path: Path):
    settings = ("recipe.score=lexicographic", "recipe.criteria=fact:battery > class_balance", "run.fraction=1.0")
    changes = [part for setting in settings for part in ("--set", setting)]
    assert cli("run", config, *changes, "--out", tmp_path / "run").code == 0
    shown = " ".join(cli("explain", tmp_path / "run", "--client", "2").out.split())
    assert re.search(r"; first battery, then class balance: rank \d of 4\.", shown)
    assert re.search(r"Score: 4 - \d = \d; weight = \d / 10 = ", shown)
    assert "class balance, lexicographic: " in cli("what-if", tmp_path / "run", "--priority", "CB").out


def test_facts_that_can_no_longer_be_measured_are_told(cli: CommandLine, config: Path, tmp_path: Path):
    assert cli("run", config, "--out", tmp_path / "run").code == 0
    (tmp_path / "clients.csv").unlink()
    answer = one_line(cli("what-if", tmp_path / "run", "--priority", "CB"))
    assert "did not record balance, and it cannot be measured now: facts.file" in answer


@pytest.mark.parametrize(
    ("criterion", "error"),
    [
        ("fact:job is Nurse", "no client's job is 'Nurse' (did you mean 'nurse'?); they have: nurse, clerk, cook"),
        ("fact:age is 25", "no client's age is '25'"),
        ("fact:job", "write fact:job is nurse"),
    ],
)
def test_a_word_that_nobody_has_is_refused(cli: CommandLine, config: Path, tmp_path: Path, criterion: str, error: str):
    priority = f"recipe.criteria={json.dumps([criterion, 'DS'])}"
    assert error in one_line(cli("run", config, "--set", priority, "--out", tmp_path / "run"))


def test_numbers_and_booleans_are_compared_as_such(cli: CommandLine, config: Path, tmp_path: Path):
    """`fact:vip` of true and false is 1 and 0; an age is the number, however written."""
    (tmp_path / "clients.csv").write_text(
        "client,age,battery,vip\n0,24,1,true\n1,61,1,False\n2,24,1,TRUE\n3,3,1,false\n"
    )
    for number, criterion in enumerate(("fact:vip", "fact:age is 24")):
        out, priority = tmp_path / f"{number}", f"recipe.criteria={json.dumps([criterion])}"
        assert cli("run", config, "--set", priority, "--out", out).code == 0
        rows = json.loads(cli("explain", out, "--json").out)["clients"]
        assert {row["id"]: row["weight"] for row in rows} == {0: 0.5, 1: 0, 2: 0.5, 3: 0}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("client,age\n0,1\n1,2\n2,3\n", "no line for 1 of 4 clients"),
        ("client,age\n0,1\n1,2\n2,3\n3,-4\n", "shift or rescale the column; got '-4'"),
        ("client,age\n0,1\n0,2\n2,3\n3,4\n", "needs one line per client"),
        ("client,samples\n0,1\n1,2\n2,3\n3,4\n", "a fact that clients measure"),
        ("client\n0\n1\n2\n3\n", "add a column with a fact"),
    ],
)
def test_mistakes_in_the_file_are_named(cli: CommandLine, config: Path, tmp_path: Path, text: str, error: str):
    (tmp_path / "clients.csv").write_text(text)
    assert error in one_line(cli("run", config, "--out", tmp_path / "run"))
    assert error in " ".join(cli("doctor", config).out.split())


def test_a_node_reads_its_own_line_and_a_file_must_be_there(config: Path):
    loaded = load_config(config, [])
    assert dict(make_client(loaded, 1).data.train.own) == {"age": 61, "battery": 0.4, "job": "clerk"}
    missing = load_config(None, ["facts={file='clients.csv'}"])
    with pytest.raises(DataError, match=r"facts\.file: no file clients\.csv; .* where the command is called"):
        make_task(missing)
