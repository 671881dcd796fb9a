"""`fedmerit weigh`: from a table of criteria to weights, without any training."""

import io
import sys
from collections import Counter
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
        "scores": pytest.approx([1 / 3, 1]),
        "weights": pytest.approx([0.25, 0.75]),
        "reasons": answer.json["reasons"],
    }
    assert answer.json["reasons"]["South"].startswith(
        "South got 75.00% of the round, more than an equal share (50.00%)"
    )


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        (["--priority", "DS,CB", "--normalise", "sum"], [1 / 4 * (1 + 1 / 3), 3 / 4 * (1 + 2 / 3)]),
        (["--priority", "CB,DS", "--normalise", "sum"], [1 / 3 * (1 + 1 / 4), 2 / 3 * (1 + 3 / 4)]),
        (["--priority", "DS,CB"], [1 / 3 * (1 + 1 / 2), 2]),
        (["--priority", "dataset size > class_balance", "--lower-is-better", "CB"], [1 / 3 * 2, 1 + 1 / 2]),
        (["--priority", "CB,DS", "--score", "lexicographic"], [1, 2]),
        (["--priority", "CB", "--normalise", "none"], [0.5, 1]),
        (["--priority", "DS,CB", "--score", "product"], [1 / 4 * 1 / 3, 3 / 4 * 2 / 3]),
        (
            ["--priority", "DS,CB", "--score", '{name="weighted-mean", weights=[0.9, 0.1]}', "--normalise", "sum"],
            [0.9 / 4 + 0.1 / 3, 0.9 * 3 / 4 + 0.1 * 2 / 3],
        ),
        (["--priority", "DS,CB", "--score", '{name="owa", weights=[0, 1]}', "--normalise", "sum"], [1 / 4, 2 / 3]),
    ],
)
def test_options_decide(cli: CommandLine, table: Path, options: list[str], weights: list[float]):
    found = cli("weigh", table, *options, "--json").json["weights"]
    assert found == pytest.approx([weight / sum(weights) for weight in weights])


def test_a_table_for_people(cli: CommandLine, table: Path):
    answer = cli("weigh", table, "--priority", "DS", "--normalise", "max")
    assert answer.code == 0
    for text in ("North [1]", "South", "25.00%", "75.00%", "dataset size", "max"):
        assert text in answer.out


def test_reasons_are_told_of_few_clients_and_of_one_in_full(cli: CommandLine, table: Path):
    words = " ".join(cli("weigh", table, "--priority", "CB,DS").out.split())
    assert "South got" in words
    assert "because its class balance, 1, which counts first, is the highest of 2" in words
    full = " ".join(cli("weigh", table, "--priority", "CB,DS", "--client", "South").out.split())
    assert "Score: 1.0000 + 1.0000 * 1.0000 = 2; weight = 2 /" in full
    assert "80.00% with dataset size first" in full
    ranks = cli("weigh", table, "--priority", "CB,DS", "--score", "lexicographic", "--json").json["reasons"]
    assert "; first class balance, then dataset size: rank 1 of 2." in ranks["South"]
    assert "Score: 2 - 1 = 1; weight = 1 / 3 = 33.33%." in ranks["North [1]"]
    assert "no client 'Sout' (did you mean 'South'?)" in one_line(
        cli("weigh", table, "--priority", "CB", "--client", "Sout")
    )


HOSPITALS = """hospital;Error rate;dataset size;IS
A;2 %;76;0.99
B;10 %;310;0.97
C;30 %;1200;0.8
D;20 %;200;0.5
"""


def test_a_lower_is_better_column_shows_its_raw_values(cli: CommandLine, tmp_path: Path):
    table, page = tmp_path / "hospitals.csv", tmp_path / "page.html"
    table.write_text(HOSPITALS)
    options = ["--priority", "Error rate", "--lower-is-better", "Error rate"]
    shown = " ".join(cli("weigh", table, *options, "--html", page, "--client", "A").out.split())
    assert "Error rate (lower is better)" in shown
    assert "0.02 (1.000)" in shown
    assert "because its Error rate, 0.02, is the lowest of 4; lower is better." in shown
    assert "if every client had 0.02, A would get 25.00%" in shown
    assert "with its Error rate at 0.2, the median of the other clients" in shown
    assert "is the lowest of 4; lower is better" in page.read_text()
    assert "<td>0.02</td>" in page.read_text()
    told = cli("weigh", table, *options, "--json").json
    assert "its Error rate, 0.2, is far above the lowest (0.02; lower is better)." in told["reasons"]["D"]
    assert max(told["weights"]) == told["weights"][0]
    assert "has no effect: add it to --priority IS" in one_line(cli("weigh", table, "--priority", "IS", *options[2:]))


def test_a_reason_says_what_a_value_is_compared_with(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "hospitals.csv"
    table.write_text(HOSPITALS)
    told = cli("weigh", table, "--priority", "image sharpness, DS", "--json").json["reasons"]["B"]
    assert (
        "0.97, which counts first, is second of 4, but its dataset size, 310, is far below the largest (1,200)" in told
    )


def test_a_table_comes_from_stdin_too(cli: CommandLine, table: Path, monkeypatch: pytest.MonkeyPatch):
    expected = cli("weigh", table, "--priority", "DS", "--json").json
    text = TABLE.replace(",", ";").replace("0.5", "50 %").replace(";1\n", ";100%\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli("weigh", "-", "--priority", "DS", "--json").json == expected


def test_many_clients_are_weighed_and_both_ends_shown(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "many.csv"
    table.write_text("client,DS\n" + "".join(f"h{i},{i + 1}\n" for i in range(20_000)))
    answer = cli("weigh", table, "--priority", "DS", "--client", "h0")
    assert answer.code == 0
    words = " ".join(answer.out.split())
    assert "the 25 largest and the 25 smallest of 20,000 weights" in words
    for client, shown in (("h19999", True), ("h19975", True), ("h19974", False), ("h25", False), ("h24", True)):
        assert (f" {client} " in words) == shown
    assert "h0 got 5e-07% of the round" in " ".join(answer.out.split())
    found = cli("weigh", table, "--priority", "DS", "--json").json
    assert (len(found["weights"]), found["reasons"]) == (20_000, {})


def test_ten_times_the_clients_are_ten_times_the_work(cli: CommandLine, tmp_path: Path):
    def calls(clients: int) -> int:
        table, counted = tmp_path / f"{clients}.csv", Counter[str]()
        table.write_text("client,DS,CB\n" + "".join(f"h{i},{i + 1},0.5\n" for i in range(clients)))
        sys.setprofile(lambda frame, event, arg: counted.update([event]))
        try:
            cli("weigh", table, "--priority", "CB,DS", "--client", "h1")
        finally:
            sys.setprofile(None)
        return counted.total()

    few, some, many = map(calls, (200, 1_100, 2_000))
    assert many - some <= 1.1 * (some - few)


def test_a_page_has_the_table_and_the_reasons(cli: CommandLine, table: Path, tmp_path: Path):
    page = tmp_path / "weights.html"
    assert cli("weigh", table, "--priority", "CB,DS", "--html", page).code == 0
    text = page.read_text()
    for part in ("North [1]", "<th>class balance</th>", "South got", "<h2>Why</h2>", 'lang="en"'):
        assert part in text
    assert "--force" in one_line(cli("weigh", table, "--priority", "CB", "--html", page))
    assert cli("weigh", table, "--priority", "CB", "--html", page, "--force").code == 0


def test_notes_go_to_stderr(cli: CommandLine, tmp_path: Path):
    table = tmp_path / "flat.csv"
    table.write_text("client,DS,CB\na,5,0\nb,5,0\n")
    answer = cli("weigh", table, "--priority", "DS,CB")
    assert answer.code == 0
    assert "note: DS is the same for all clients" in answer.err
    assert "CB is 0 for all clients" in answer.err
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
        (["--priority", "DS,CBs"], "no column 'CBs' (did you mean 'CB'?)"),
        (["--priority", "DS,DS"], "repeated: DS"),
        (["--priority", ""], "--priority needs at least one column of DS, CB"),
        (["--priority", "DS", "--normalise", "none"], "must be in 0..1"),
        (["--priority", "DS", "--normalise", "mean"], "unknown --normalise 'mean'"),
        (["--priority", "DS", "--score", "prio"], "unknown --score 'prio'"),
        (["--priority", "DS", "--score", "{name="], "unknown --score"),
        (["--priority", "DS", "--score", '{name="owa"}'], "owa needs `weights`"),
        (["--priority", "DS", "--score", '{nane="owa"}'], "unknown key '--score.nane'"),
        (["--priority", "DS", "--score", '{name="owa", weights=[0.5, 0.5]}'], "weights has 2 values for 1 criteria"),
        (["--priority", "DS,CB", "--score", '{name="choquet", shapley=[0.9, 0.9]}'], "sum to 1"),
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
    assert "--cap" in one_line(cli("weigh", table, "--priority", "DS", "--cap", cap))
