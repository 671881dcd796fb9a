"""`fedmerit weigh`: from a table of criteria to weights, without any training."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CommandLine, one_line

TABLE = "client,DS,CB\nNorth [1],10,0.5\nSouth,30,1\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "clients.csv"
    path.write_text(TABLE)
    return path


def test_json_has_clients_scores_and_weights(cli: CommandLine, table: Path):
    answer = cli("weigh", table, "--priority", "DS", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json == {
        "clients": ["North [1]", "South"],
        "scores": pytest.approx([0.25, 0.75]),
        "weights": pytest.approx([0.25, 0.75]),
    }


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        (["--priority", "DS,CB"], [1 / 4 * (1 + 1 / 3), 3 / 4 * (1 + 2 / 3)]),
        (["--priority", "CB,DS"], [1 / 3 * (1 + 1 / 4), 2 / 3 * (1 + 3 / 4)]),
        (["--priority", "DS,CB", "--normalise", "max"], [1 / 3 * (1 + 1 / 2), 2]),
        (["--priority", "CB", "--normalise", "none"], [0.5, 1]),
        (["--priority", "DS,CB", "--score", "product"], [1 / 4 * 1 / 3, 3 / 4 * 2 / 3]),
        (
            ["--priority", "DS,CB", "--score", '{name="weighted-mean", weights=[0.9, 0.1]}'],
            [0.9 / 4 + 0.1 / 3, 0.9 * 3 / 4 + 0.1 * 2 / 3],
        ),
        (["--priority", "DS,CB", "--score", '{name="owa", weights=[0, 1]}'], [1 / 4, 2 / 3]),
    ],
)
def test_options_decide(cli: CommandLine, table: Path, options: list[str], weights: list[float]):
    found = cli("weigh", table, *options, "--json").json["weights"]
    assert found == pytest.approx([weight / sum(weights) for weight in weights])


def test_a_table_for_people(cli: CommandLine, table: Path):
    answer = cli("weigh", table, "--priority", "DS", "--normalise", "max")
    assert answer.code == 0
    for text in ("North [1]", "South", "25.00%", "75.00%", "DS", "max"):
        assert text in answer.out


def test_notes_go_to_stderr(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "flat.csv"
    table.write_text("client,DS,CB\na,5,0\nb,5,0\n")
    answer = cli("weigh", table, "--priority", "DS,CB")
    assert answer.code == 0
    assert "note: criterion DS does not separate the clients" in answer.err
    assert "criterion CB is 0 for every client" in answer.err
    assert "note:" not in answer.out


def test_zero_scores_fall_back_to_the_column_ds_or_to_equal_weights(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "zero.csv"
    for column, weights in (("DS", [0.25, 0.75]), ("size", [0.5, 0.5])):
        table.write_text(f"client,{column},CB\na,1,0\nb,3,0\n")
        found = cli("weigh", table, "--priority", "CB", "--normalise", "none", "--json").json
        assert (found["scores"], found["weights"]) == ([0, 0], weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--priority", "DS,cb"], "no column 'cb' (did you mean 'CB'?)"),
        (["--priority", "DS,DS"], "repeated: DS"),
        (["--priority", ""], "--priority names at least one column of DS, CB"),
        (["--priority", "DS", "--normalise", "none"], "degrees in 0..1"),
        (["--priority", "DS", "--normalise", "mean"], "'scale' or 'none' (got 'mean')"),
        (["--priority", "DS", "--score", "prio"], "unknown score 'prio'"),
        (["--priority", "DS", "--score", "{name="], "unknown score"),
        (["--priority", "DS", "--score", '{name="owa"}'], "either weights"),
        (["--priority", "DS", "--score", '{nane="owa"}'], "unknown key 'recipe.score.nane' (did you mean 'name'?)"),
        (["--priority", "DS", "--score", '{name="owa", weights=[0.5, 0.5]}'], "weights has 2 values for 1 criteria"),
        (["--priority", "DS,CB", "--score", '{name="choquet", shapley=[0.9, 0.9]}'], "1 for all of them"),
    ],
)
def test_a_mistake_is_one_line(cli: CommandLine, table: Path, options: list[str], message: str):
    assert message in one_line(cli("weigh", table, *options))


@pytest.mark.parametrize("content", ["", "client,DS\n", "client,DS\na,nan\n", "client,DS\na,1\na,2\n"])
def test_a_table_that_is_none_is_one_line(cli: CommandLine, tmp_path: Path, content: str):
    table = tmp_path / "clients.csv"
    table.write_text(content)
    assert one_line(cli("weigh", table, "--priority", "DS")).startswith(f"error: {table}")


def test_names_of_criteria_are_shown_as_they_are(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "clients.csv"
    table.write_text("client,[/b]\na,1\nb,2\n")
    answer = cli("weigh", table, "--priority", "[/b]")
    assert answer.code == 0
    assert "[/b]" in answer.out


def test_a_cap_bounds_every_weight_and_tells_what_was_cut(cli: CommandLine, tmp_path: Path):
    path = tmp_path / "liar.csv"
    path.write_text("client,DS\nliar,1000000\na,30\nb,20\nc,10\n")
    told = cli("weigh", path, "--priority", "DS", "--cap", "2", "--json").json
    assert told["weights"] == pytest.approx([1 / 2, 1 / 4, 1 / 6, 1 / 12])
    assert told["uncapped"][0] > 0.99
    shown = cli("weigh", path, "--priority", "DS", "--cap", "2")
    assert "uncapped" in shown.out
    assert "the cap cut 1 of 4 weights" in shown.err


@pytest.mark.parametrize("cap", ["0.5", "0", "-1", "nan", "inf"])
def test_a_cap_below_one_share_is_refused(cli: CommandLine, table: Path, cap: str):
    assert "recipe.cap" in one_line(cli("weigh", table, "--priority", "DS", "--cap", cap))
