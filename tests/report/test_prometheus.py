"""A run as Prometheus reads it: lines by the text format, numbers by the ledger."""

from __future__ import annotations

import re
from pathlib import Path

from helpers import CommandLine

from fedmerit import run_config
from fedmerit.config.schema import make_config
from fedmerit.report.prometheus import prometheus_text
from fedmerit.store.ledger import Ledger

LINE = re.compile(r'^(fedmerit_\w+)(?:\{(\w+)="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)$')


def samples(text: str) -> dict[tuple[str, str], float]:
    found = [LINE.match(line) for line in text.splitlines() if not line.startswith("# ")]
    assert all(found), text
    return {(one[1], one[3] or ""): float(one[4]) for one in found if one}


def test_the_numbers_are_the_ledgers(cli: CommandLine, tmp_path: Path):
    late = {"wait": {"min_fraction": 0.5, "seconds": 1.0}, "delays": {"share": 0.5, "seconds": 50.0}}
    config = {"task": {"clients": 4, "model": "digits-linear"}, "train": {"epochs": 1}}
    run = run_config(
        make_config(config | {"run": {"rounds": 2, "fraction": 1.0, "workers": 1, **late}}), tmp_path / "a"
    )
    answer = cli("export", tmp_path / "a", "--format", "prometheus")
    assert answer.code == 0
    told = samples(answer.out)
    assert told["fedmerit_rounds_total", ""] == 2
    assert abs(told["fedmerit_accuracy", ""] - run.accuracy) < 1e-9
    missed = [event for event in run.events() if event.kind == "left-out"]
    assert missed
    assert sum(value for (name, _), value in told.items() if name == "fedmerit_left_out_total") == len(missed)
    weights = {label: value for (name, label), value in told.items() if name == "fedmerit_weight"}
    assert set(weights) == {run.ledger.names()[one.id] for one in run.explain(2)}
    assert abs(sum(weights.values()) - 1) < 1e-6
    assert told["fedmerit_bytes_total", "up"] == sum(row["bytes_up"] for row in run.ledger.rounds())


def test_a_run_without_rounds_and_a_hostile_name():
    ledger = Ledger.create(None, ['a"b\\c\nd'], {})
    text = prometheus_text(ledger)
    assert samples(text) == {
        ("fedmerit_rounds_total", ""): 0,
        ("fedmerit_bytes_total", "down"): 0,
        ("fedmerit_bytes_total", "up"): 0,
        ("fedmerit_left_out_total", 'a\\"b\\\\c\\nd'): 0,
    }
