"""`fedmerit explain` and `fedmerit report --text`: why a client got its weight, how a run went."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import CommandLine, contents, one_line
from rich.console import Console

from fedmerit import Run, UserError, run_config
from fedmerit.config.schema import make_config
from fedmerit.store.ledger import Ledger


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds of digits, half of six unlike clients in each, the second round not tested."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    config = make_config(
        {
            "task": {"partition": "dirichlet", "alpha": 0.3, "clients": 6},
            "train": {"lr": 0.5, "epochs": 2},
            "recipe": {"name": "prioritized", "criteria": "LD,DS", "normalise": "max"},
            "run": {"rounds": 3, "fraction": 0.5, "workers": 1, "evaluate_every": 2},
        }
    )
    run_config(config, out).ledger.close()
    return out


def outsider(folder: Path, number: int) -> int:
    """A client that was not drawn in the round."""
    return next(i for i in range(6) if i not in {client.id for client in Run.load(folder).explain(number)})


def test_json_says_everything_about_a_round(cli: CommandLine, folder: Path):
    answer = cli("explain", folder, "--round", "2", "--json")
    assert (answer.code, answer.err) == (0, "")
    told = answer.json
    assert set(told) >= {"round", "priority", "clients"}
    assert (told["round"], told["priority"]) == (2, ["LD", "DS"])
    assert len(told["clients"]) == 3
    for client in told["clients"]:
        assert set(client) >= {"id", "facts", "criteria", "score", "weight"}
        assert set(client["facts"]) == {"samples", "labels"}
        assert client["criteria"] == {"LD": client["facts"]["labels"], "DS": client["facts"]["samples"]}
    assert sum(client["weight"] for client in told["clients"]) == pytest.approx(1)


def test_one_client(cli: CommandLine, folder: Path):
    all_three = cli("explain", folder, "--round", "1", "--json").json["clients"]
    wanted = all_three[1]
    told = cli("explain", folder, "--round", "1", "--client", str(wanted["id"]), "--json").json
    assert told["clients"] == [wanted]
    text = cli("explain", folder, "--round", "1", "--client", str(wanted["id"])).out
    assert f"{wanted['weight']:.2%} of round 1" in text
    assert "of 3" in text
    assert "an equal share (33.33%)" in text.replace("\n", " ")
    assert " ".join(wanted["reason"]["text"].split()) in " ".join(text.split())


def test_a_client_that_was_not_drawn(cli: CommandLine, folder: Path):
    client = outsider(folder, 1)
    assert cli("explain", folder, "--round", "1", "--client", str(client), "--json").json["clients"] == []
    assert "was not drawn" in cli("explain", folder, "--round", "1", "--client", str(client)).out


def test_without_a_round_a_clients_last_round_is_explained(cli: CommandLine, folder: Path):
    run = Run.load(folder)
    rounds = {one.id: number for number in (1, 2, 3) for one in run.explain(number)}
    client, last = next((client, last) for client, last in rounds.items() if last < 3)
    assert cli("explain", folder, "--client", str(client), "--json").json["round"] == last
    out = " ".join(cli("explain", folder, "--client", str(client)).out.split())
    assert out.startswith(f"client {client} was not drawn in round 3; its last round is {last}. client {client} got ")
    assert run.why(client=client).startswith(run.why(last, client))


@pytest.mark.parametrize(
    ("names", "wanted", "name"),
    [
        (["hospital 1", "hospital 2", "hospital 3", "hospital 13"], "3", "hospital 3"),
        (["h01", "h02", "h03", "h13"], "3", "h03"),
        (["3", "h3", "x", "y"], "3", "3"),
        (["a", "b", "c", "d"], "3", "d"),
        (["hospital 1", "hospital 2", "hospital 3", "hospital 4"], 3, "hospital 4"),
        (["h3", "ward 3", "x", "y"], "3", r"client 3 is ambiguous: it could be 'h3', 'ward 3'"),
    ],
)
def test_a_number_is_the_name_that_ends_with_it(names: list[str], wanted: Any, name: str):
    with Ledger.create(None, names, {}) as ledger:
        if name in names:
            assert ledger.find_client(wanted) == names.index(name)
        else:
            with pytest.raises(UserError, match=name):
                ledger.find_client(wanted)


def test_a_table_of_the_round_heaviest_first(cli: CommandLine, folder: Path):
    answer = cli("explain", folder, "--round", "1")
    assert answer.code == 0
    assert "label diversity > dataset size" in answer.out
    weights = sorted((client.weight for client in Run.load(folder).explain(1)), reverse=True)
    places = [answer.out.index(f"{weight:.2%}") for weight in weights]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--round", "4"], "no round 4; the run has rounds 1 to 3"),
        (["--round", "0"], "no round 0"),
        (["--round", "-1"], "no round -1"),
        (["--round", "1", "--client", "6"], "no client '6'; the run has 6, from '0' to '5'"),
        (["--round", "1", "--client", "Ann"], "no client 'Ann'"),
        (["--round", "9", "--json"], "no round 9"),
        (["--round", "9", "--client", "0"], "no round 9"),
    ],
)
def test_what_is_not_in_the_run_is_a_mistake(cli: CommandLine, folder: Path, options: list[str], message: str):
    assert message in one_line(cli("explain", folder, *options))


def test_the_last_round_is_explained_where_none_is_named(cli: CommandLine, folder: Path):
    last = Run.load(folder).ledger.last_round()
    assert cli("explain", folder).out == cli("explain", folder, "--round", str(last)).out
    assert cli("explain", folder, "--json").json["round"] == last


def test_a_page_of_fairness_fits_a_narrow_screen(cli: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules["fedmerit.cli.app"], "out_console", Console(width=80, highlight=False))
    out = cli("explain", folder, "--fairness").out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", [["explain", "--round", "1"], ["report", "--text"]])
def test_a_folder_that_is_no_run_is_a_mistake(cli: CommandLine, tmp_path: Path, command: list[str]):
    assert re.search("no run (and no study )?in", one_line(cli(command[0], tmp_path, *command[1:])))
    assert re.search("no run (and no study )?in", one_line(cli(command[0], tmp_path / "none", *command[1:])))
    (tmp_path / "ledger.db").write_text("nothing of the kind" * 100)
    assert "is not a ledger" in one_line(cli(command[0], tmp_path, *command[1:]))


def test_the_summary_as_json(cli: CommandLine, folder: Path):
    told = cli("report", folder, "--text", "--json", "--target", "0", "--target", "1").json
    run = Run.load(folder)
    assert (told["rounds"], told["clients"]) == (3, 6)
    assert told["accuracy"] == run.accuracy
    assert told["best"]["value"] == max(row["accuracy"] or 0 for row in run.ledger.rounds())
    assert told["bytes_up"] == told["bytes_down"] == 3 * 3 * run.model.nbytes
    reached = told["rounds_to_target"]
    assert set(reached) == {"0.0", "1.0"}
    assert set(reached["0.0"].values()) == {2}
    assert reached["1.0"]["0.9"] is None


def test_the_summary_for_people(cli: CommandLine, folder: Path):
    answer = cli("report", folder, "--text", "--target", "0.01", "--target", "1")
    assert answer.code == 0
    assert f"accuracy {Run.load(folder).accuracy:.4f}" in answer.out
    assert "rounds until this share of devices is better than the target" in answer.out
    last = next(line for line in answer.out.splitlines() if "100%" in line)
    assert last.count("-") == 9


def test_a_target_beyond_1_is_a_mistake(cli: CommandLine, folder: Path):
    assert "target lies in 0..1" in one_line(cli("report", folder, "--text", "--target", "80"))


def test_reading_leaves_the_folder_as_it_was(cli: CommandLine, folder: Path):
    before = contents(folder)
    cli("explain", folder, "--round", "1")
    cli("report", folder, "--text")
    assert contents(folder) == before
