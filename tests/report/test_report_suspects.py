"""Suspects of a run for readers: in words, with the truth where attackers were planted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Answer

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.report.run_detail import run_detail
from fedmerit.store.run_folder import open_ledger


def play(folder: Path, attack: dict[str, object] | None) -> Path:
    task = {"clients": 8, "model": "digits-linear"} | ({"attack": attack} if attack else {})
    run = {"rounds": 4, "fraction": 1.0, "workers": 1, "evaluate_every": 4}
    run_config(make_config({"task": task, "train": {"epochs": 1}, "run": run}), folder)
    return folder


@pytest.mark.parametrize(("kind", "seen"), [("free-rider", "zero"), ("scale", "long"), ("ipm", "twin")])
def test_attackers_are_named_with_what_was_seen(
    kind: str, seen: str, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    folder = play(tmp_path / "run", {"kind": kind, "share": 0.25})
    found = cli("explain", folder, "--suspects", "--json").json
    assert found["planted"]["precision"] == found["planted"]["recall"] == 1
    for suspect in found["suspects"]:
        assert suspect["client"] in found["planted"]["clients"]
        assert suspect["since"] == 3
        assert suspect["kinds"][seen] == [1, 2, 3, 4]
        assert "in 4 of its 4 rounds: its update" in suspect["summary"]
    shown = cli("explain", folder, "--suspects").out
    assert "2 of 8 clients are suspects" in shown
    assert "not a proof" in shown
    with open_ledger(folder) as ledger:
        detail = run_detail(ledger)["suspects"]
    assert [one["odd"] for one in detail["suspects"]] == [4, 4]


def test_one_suspect_is_told_in_the_singular(cli: Callable[..., Answer], tmp_path: Path) -> None:
    folder = play(tmp_path / "run", {"kind": "free-rider", "share": 0.125})
    assert "1 of 8 clients is a suspect after 4 rounds" in cli("explain", folder, "--suspects").out


def test_of_honest_clients_nobody_is_suspected(cli: Callable[..., Answer], tmp_path: Path) -> None:
    folder = play(tmp_path / "run", None)
    assert cli("explain", folder, "--suspects", "--json").json["suspects"] == []
    assert "none of 8 clients is a suspect" in cli("explain", folder, "--suspects").out
    assert cli("explain", tmp_path, "--suspects").code == 2
