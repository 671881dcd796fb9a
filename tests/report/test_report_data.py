"""The report's data: what is embedded agrees with the ledger, figure by figure."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import PRIORITY, make_run

from fedmerit.folder import open_ledger
from fedmerit.ledger import Ledger
from fedmerit.report.columns import pack, pack_round, shorten
from fedmerit.report.data import TARGETS, collect, labels
from fedmerit.report.settings import differences, toml_lines
from fedmerit.report.summary import SHARES, summary
from fedmerit.weights import Earned


def unpack(column: Any, packed: dict[str, Any], raw: Any = None) -> list[float]:
    """What data.js makes of a column."""
    if isinstance(column, dict):
        return [value * column["times"] for value in raw]
    if isinstance(column, str):
        return unpack(dict(packed["facts"])[column], packed)
    return column if isinstance(column, list) else [column] * len(packed["ids"])


def test_weights_and_what_they_came_from_agree_with_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", names=[f"c{i}" for i in range(40)], drawn=30)
    (run,) = collect([folder])["runs"]
    with open_ledger(folder) as ledger:
        earned = {packed["round"]: ledger.earned(packed["round"]) for packed in run["rounds"]}
    for packed in json.loads(json.dumps(run["rounds"])):
        rows = earned[packed["round"]]
        assert packed["ids"] == [row.id for row in rows]
        assert unpack(packed["weight"], packed) == pytest.approx([row.weight for row in rows], rel=5e-4)
        assert unpack(packed["score"], packed) == pytest.approx([row.score for row in rows], rel=5e-5)
        for place, name in enumerate(PRIORITY if rows else ()):
            raw = unpack(packed["raw"][place], packed)
            assert raw == pytest.approx([row.criteria[name] for row in rows], rel=5e-5)
            norm = unpack(packed["norm"][place], packed, raw)
            assert [f"{a:.4g}" for a in norm] == [f"{row.normalised[name]:.4g}" for row in rows]
        for name, column in packed["facts"]:
            assert unpack(column, packed) == pytest.approx([row.facts[name] for row in rows], rel=5e-5)


def test_ranks_are_those_of_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", names=[f"c{i}" for i in range(300)], drawn=300)
    (run,) = collect([folder])["runs"]
    with open_ledger(folder) as ledger:
        exact = [row.weight for row in ledger.earned(3)]
    weights = unpack(run["rounds"][2]["weight"], run["rounds"][2])
    assert [sum(b > a for b in weights) for a in weights] == [sum(b > a for b in exact) for a in exact]


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


def test_column_of_one_value_and_of_a_fact_are_not_repeated() -> None:
    rows = [Earned(i, {"samples": 10.0 * i, "labels": 3.0}, {"DS": 10.0 * i}, {"DS": i / 3}, 1.0, 0.5) for i in (1, 2)]
    packed = pack_round(1, ["DS"], rows)
    assert packed["raw"] == ["samples"]
    assert packed["weight"] == 0.5
    assert packed["facts"] == [["samples", [10, 20]], ["labels", 3]]
    assert packed["norm"][0]["times"] == pytest.approx(1 / 30)


def test_figures_curve_and_targets_agree_with_the_summary(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (run,) = collect([folder])["runs"]
    with open_ledger(folder) as ledger:
        told, upper = summary(ledger, TARGETS), [row["p90"] for row in ledger.rounds()]
    assert run["figures"]["accuracy"] == pytest.approx(told["accuracy"], rel=1e-5)
    assert run["figures"]["p10"] == pytest.approx(told["p10"], rel=1e-5)
    assert run["figures"]["best"]["round"] == told["best"]["round"]
    assert run["figures"] | {"bytes_down": 4000, "bytes_up": 3600, "seconds": 7} == run["figures"]
    assert run["reached"] == [[told["rounds_to_target"][str(t)][str(s)] for s in SHARES] for t in TARGETS]
    assert run["curve"]["round"] == [1, 2, 3, 4]
    assert run["curve"]["p90"] == pytest.approx(upper, rel=1e-5)


def test_events_are_grouped_and_worded_as_in_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (run,) = collect([folder])["runs"]
    with open_ledger(folder) as ledger:
        kept = {(event.kind, event.text, event.round, event.client) for event in ledger.events()}
    told = {
        (group["kind"], said["text"], *at) for group in run["events"] for said in group["texts"] for at in said["at"]
    }
    assert told == kept
    groups = {group["kind"]: group for group in run["events"]}
    assert groups["left-out"] | {"count": 1, "first": 1, "last": 1, "clients": 1} == groups["left-out"]
    assert groups["nobody"] | {"count": 1, "first": 2, "last": 2, "clients": 0} == groups["nobody"]


def test_run_without_a_round_is_unfinished_not_an_error(tmp_path: Path) -> None:
    (run,) = collect([make_run(tmp_path / "run", rounds=0)])["runs"]
    assert run["figures"]["played"] == 0
    assert run["recipe"]["planned"] == 4
    assert run["recipe"]["priorities"] == [list(PRIORITY)]
    assert run["rounds"] == run["reached"] == run["curve"]["round"] == []


def test_ledger_without_settings(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger.db", ["a"], {"fedmerit": "0.1"}).close()
    data = collect([tmp_path, make_run(tmp_path / "run")])
    assert data["runs"][0]["recipe"]["name"] is None
    assert data["runs"][0]["config"] == []
    assert data["differs"]["config"] == []


def test_settings_are_toml_and_differences_are_found(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    other = make_run(tmp_path / "other", settings={"train": {"lr": 0.25}, "task": {"groups": [[0, 1], [2]]}})
    data = collect([one, other])
    text = "\n".join(f"{key} = {value}" if value else key for _, key, value in data["runs"][1]["config"])
    config = tomllib.loads(text)
    assert config["train"]["lr"] == 0.25
    assert config["task"]["groups"] == [[0, 1], [2]]
    assert config["recipe"]["score"] == {"name": "prioritized"}
    assert {row["key"]: row["values"] for row in data["differs"]["config"]} == {
        "train.lr": ["0.1", "0.25"],
        "task.groups": ["[]", "[[0, 1], [2]]"],
    }


def test_odd_keys_are_quoted() -> None:
    lines = toml_lines({"recipe": {"score": {"capacity": {"DS,CB": 0.5}}}})
    assert tomllib.loads("\n".join(f"{key} = {value}" if value else key for _, key, value in lines)) == {
        "recipe": {"score": {"capacity": {"DS,CB": 0.5}}}
    }
    assert differences([lines, lines]) == []


def test_labels_tell_folders_apart(tmp_path: Path) -> None:
    assert labels([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    assert labels([tmp_path / "run", tmp_path / "run"]) == ["run (1)", "run (2)"]
    assert labels([tmp_path / "x", tmp_path / "y"]) == ["x", "y"]
