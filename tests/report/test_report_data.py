"""The report's data: what is embedded agrees with the ledger, number by number; groups keep their colours."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import PRIORITY, collected, make_run

from fedmerit import run_config
from fedmerit.config.privacy import epsilon_after
from fedmerit.config.schema import make_config
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.report.packing import pack, pack_rounds, shorten
from fedmerit.report.settings import differences, toml_lines
from fedmerit.report.summary import summary
from fedmerit.store.ledger import Ledger, WeightColumns
from fedmerit.store.run_folder import open_ledger

NOBODY = WeightColumns((), {}, {}, {}, np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), None)


def ids(rounds: dict[str, Any], place: int) -> list[int]:
    packed = rounds["ids"][place]
    return list(range(packed)) if isinstance(packed, int) else packed


def unpack(column: Any, rounds: dict[str, Any], place: int, other: Any = None) -> list[float]:
    """What data.js makes of a round's column."""
    if isinstance(column, dict):
        return [value * column["times"] for value in other]
    if isinstance(column, str):
        return unpack(dict(rounds["facts"])[column][place], rounds, place)
    return column if isinstance(column, list) else [column] * len(ids(rounds, place))


def test_weights_and_what_they_came_from_agree_with_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", names=[f"c{i}" for i in range(40)], drawn=30)
    rounds = collected(folder)[1][0]["rounds"]
    with open_ledger(folder) as ledger:
        weights = [ledger.weights(index) for index in rounds["round"]]
    for place, rows in enumerate(weights):
        assert ids(rounds, place) == [row.id for row in rows]
        score = unpack(rounds["score"][place], rounds, place)
        assert score == pytest.approx([row.score for row in rows], rel=1e-5)
        weight = unpack(rounds["weight"][place], rounds, place, score)
        assert weight == pytest.approx([row.weight for row in rows], rel=5e-4)
        for name in PRIORITY if rows else ():
            raw = unpack(dict(rounds["raw"])[name][place], rounds, place)
            assert raw == pytest.approx([row.criteria[name] for row in rows], rel=1e-5)
            norm = unpack(dict(rounds["norm"])[name][place], rounds, place, raw)
            assert norm == pytest.approx([row.normalised[name] for row in rows], rel=5e-4)
        for name, column in rounds["facts"]:
            assert unpack(column[place], rounds, place) == pytest.approx([row.facts[name] for row in rows])


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.integers(3, 6))
def test_packing_keeps_order_and_digits(values: list[float], digits: int) -> None:
    packed = pack(values, digits)
    short = packed if isinstance(packed, list) else [packed] * len(values)
    assert short == pytest.approx(values, rel=0.5 * 10 ** (1 - digits), abs=0)
    by_value = [place for _, place in sorted((value, place) for place, value in enumerate(values))]
    assert all(short[one] <= short[other] for one, other in pairwise(by_value))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "short"), [(87.0, 87), (0.123456, 0.1235), (1e-7, 1e-7), (float("nan"), None), (float("inf"), None)]
)
def test_short_numbers(value: float, short: float | None) -> None:
    assert shorten(value, 4) == short


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30), st.integers(1, 9))
def test_arrays_are_packed_as_lists_are(values: list[float], digits: int) -> None:
    assert pack(np.array(values), digits) == pack(values, digits)


def test_what_follows_from_another_column_is_not_repeated() -> None:
    samples, shares = np.array([10.0, 20.0]), np.array([1 / 3, 2 / 3])
    facts, groups = {"samples": samples, "labels": np.array([3.0, 3.0])}, np.zeros(2, dtype=np.int64)
    rows = WeightColumns((0, 1), facts, {"DS": samples}, {"DS": shares}, np.array([1.0, 2.0]), shares, groups, None)
    row = {"round": 1, "priority": ["DS"], "groups": 1, "cut": None, "score": '{"is": "Product"}', "normalise": "max"}
    packed = pack_rounds([row], [rows])
    assert packed["ids"] == [2]
    assert packed["raw"] == [["DS", ["samples"]]]
    assert packed["facts"] == [["samples", [[10, 20]]], ["labels", [3]]]
    assert packed["norm"][0][1][0]["times"] == pytest.approx(1 / 30)
    assert packed["weight"][0]["times"] == pytest.approx(1 / 3)
    assert packed["total"] == [[3]]


def test_each_score_is_kept_once_and_one_that_is_not_ours_not_at_all() -> None:
    product, own = (
        '{"is": "Ranked", "score": {"is": "Product"}, "how": "top", "top": 0.5}',
        '{"is": "a:B", "repr": "B()"}',
    )
    rounds = [
        {"round": index, "priority": ["DS"], "groups": 1, "cut": None, "score": score, "normalise": "sum"}
        for index, score in enumerate((product, None, own, product, "Prioritized()"), start=1)
    ]
    packed = pack_rounds(rounds, [NOBODY] * 5)
    assert packed["scores"] == [json.loads(product), None, None]
    assert packed["scored"] == [0, None, 1, 0, 2]


def curve_of(row: dict[str, Any], name: str, at: str = "") -> list[list[float | None]]:
    (lines,) = [one["lines"] for one in row["curve"]["measures"] if (one["name"], one["at"]) == (name, at)]
    return lines


def test_figures_curve_and_targets_agree_with_the_summary(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (row,) = collected(folder)[0]["rows"]
    with open_ledger(folder) as ledger:
        result, upper = summary(ledger, TARGETS), [row["p90"] for row in ledger.rounds()]
    assert curve_of(row, "value")[0][-1] == pytest.approx(result["accuracy"], rel=1e-5)
    assert curve_of(row, "p10")[0][-1] == pytest.approx(result["p10"], rel=1e-5)
    assert row["best"]["round"] == [result["best"]["round"]]
    assert row["costs"] == {"played": [4], "bytes_down": [4000], "bytes_up": [3600], "seconds": [7]}
    reached = [[result["rounds_to_target"][str(t)][str(s)] for s in SHARES] for t in TARGETS]
    assert row["reached"] == [[[index, int(index is not None)] for index in line] for line in reached]
    assert row["curve"]["round"] == [1, 2, 3, 4]
    assert curve_of(row, "p90") == [pytest.approx(upper, rel=1e-5)]


def test_events_are_grouped_and_worded_as_in_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    page, details = collected(folder)
    with open_ledger(folder) as ledger:
        kept = {(event.kind, event.text, event.round, event.client) for event in ledger.events()}
    groups = {group["kind"]: group for group in details[0]["events"]}
    shown = {(kind, one["text"], *at) for kind, group in groups.items() for one in group["texts"] for at in one["at"]}
    assert shown == kept
    assert groups["left-out"] | {"count": 1, "first": 1, "last": 1, "clients": 1} == groups["left-out"]
    assert groups["nobody"] | {"count": 1, "first": 2, "last": 2, "clients": 0} == groups["nobody"]
    assert {one["kind"]: one["count"] for one in page["rows"][0]["events"]} == {
        kind: group["count"] for kind, group in groups.items()
    }


def test_run_without_a_round_is_unfinished_not_an_error(tmp_path: Path) -> None:
    page, details = collected(make_run(tmp_path / "run", rounds=0))
    (row,) = page["rows"]
    assert (row["unfinished"], row["planned"], row["costs"]["played"], row["tested"]) == (1, 4, [0], 0)
    assert row["priorities"] == [list(PRIORITY)]
    assert row["reached"] == row["curve"]["round"] == row["final"] == []
    assert row["best"] is None
    assert details[0]["rounds"]["round"] == []


def test_ledger_without_settings(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger.db", ["a"], {"fedmerit": "0.1"}).close()
    page, _ = collected(tmp_path, make_run(tmp_path / "run"))
    assert page["rows"][0]["recipe"] is None
    assert page["rows"][0]["config"] == []
    assert page["differs"]["config"] == []
    assert "fedmerit" in page["differs"]["environment"]


def test_settings_are_toml_and_differences_are_found(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    other = make_run(tmp_path / "other", settings={"train": {"lr": 0.25}, "task": {"groups": [[0, 1], [2]]}})
    page, _ = collected(one, other)
    text = "\n".join(f"{key} = {value}" if value else key for _, key, value in page["rows"][1]["config"])
    config = tomllib.loads(text)
    assert config["train"]["lr"] == 0.25
    assert config["task"]["groups"] == [[0, 1], [2]]
    assert config["recipe"] == {"name": "prioritized", "criteria": list(PRIORITY), "normalise": "sum"}
    assert {row["key"]: row["values"] for row in page["differs"]["config"]} == {
        "train.lr": ["0.1", "0.25"],
        "task.groups": [None, "[[0, 1], [2]]"],
    }


def test_odd_keys_are_quoted() -> None:
    lines = toml_lines({"recipe": {"normalise": {"bounds": {"DS,CB": 0.5}}}})
    assert tomllib.loads("\n".join(f"{key} = {value}" if value else key for _, key, value in lines)) == {
        "recipe": {"normalise": {"bounds": {"DS,CB": 0.5}}}
    }
    assert differences([lines, lines]) == []


PRIVATE = {
    "task": {"clients": 12},
    "recipe": {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 100}}},
    "run": {"rounds": 3, "fraction": 0.5, "workers": 1, "selection": "poisson"},
    "privacy": {"clip": 1.0, "noise": 1.1, "delta": 1e-3, "reproducible": True},
}


def test_epsilon_is_a_curve_of_private_runs_alone(tmp_path: Path) -> None:
    run_config(make_config(PRIVATE), tmp_path / "private")
    make_run(tmp_path / "plain")
    page, _ = collected(tmp_path / "private", tmp_path / "plain")
    private, plain = page["rows"]
    (spent,) = [each["lines"] for each in private["curve"]["measures"] if each["name"] == "epsilon"]
    assert spent[0] == pytest.approx([epsilon_after(1.1, 0.5, index, 1e-3) for index in (1, 2, 3)], rel=1e-3)
    assert "epsilon" not in {each["name"] for each in plain["curve"]["measures"]}
    assert "privacy-void" in {event["kind"] for event in private["events"]}
