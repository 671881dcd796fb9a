"""What a run shows in scripts, notebooks, terminals and to Prometheus: page, figure, tables, short texts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine
from rich.console import Console

from fedmerit import (
    DS,
    LD,
    Federation,
    Prioritized,
    Run,
    Split,
    UserError,
    federate,
    load_task,
    prioritized,
    run_config,
    weigh,
)
from fedmerit.config.schema import make_config
from fedmerit.core.criteria.criterion import reported
from fedmerit.core.types import Family
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.report.prometheus import prometheus_text
from fedmerit.report.screen import weights_table
from fedmerit.store.ledger import Ledger


@pytest.fixture(scope="module")
def run() -> Run:
    return federate(load_task("digits", clients=4), prioritized(LD, DS, normalise="max"), rounds=3, evaluate_every=2)


def test_a_page_of_a_run_in_memory_and_of_one_in_a_folder(run: Run, tmp_path: Path) -> None:
    assert run.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").stat().st_size > 100_000
    with pytest.raises(UserError, match="exists"):
        run.report(tmp_path / "page.html")
    run.report(tmp_path / "page.html", force=True)
    kept = federate(load_task("digits", clients=3), prioritized(LD, DS), rounds=1, out=tmp_path / "run")
    assert kept.report(str(tmp_path / "kept.html")).is_file()


def test_texts_are_short_and_tables_escape_what_they_show(run: Run) -> None:
    recipe = prioritized(LD, DS, normalise="sum")
    assert repr(recipe) == "Recipe(criteria=(LD, DS), normalise='sum')"
    assert "<td>normalise</td>" in recipe._repr_html_()
    mine = reported("<b>mine</b>", Family.DATA, "samples", "about")
    shown = prioritized(mine, DS)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;mine" in shown
    weights = weigh(np.arange(1.0, 21.0).reshape(10, 2), ("A", "B"), Prioritized())
    assert repr(weights).startswith("<Weights of 10 clients: ")
    assert repr(weights).endswith(", ...>")
    assert weights._repr_html_().count("<tr>") == 11
    rows = Split(np.zeros((1000, 2), np.float32), np.arange(1000) % 2, np.array([0, 400, 1000]))
    assert repr(rows) == "<Split: 1,000 rows of 2 clients, inputs (2,)>"
    federation = Federation(("a", "b"), rows, rows, 2)
    assert repr(federation) == "<Federation: 2 clients, 1,000 rows to train on, 1,000 to test on, 2 classes>"
    assert repr(run).startswith("<Run: 3 rounds, 4 clients, accuracy ")
    assert "<li>" in run._repr_html_()


NAMES = ("taming_of_the_shrew: BIANCA", "as_you_like_it: DUKE FREDERICK")
PRIORITY = ("LD", "DS", "MW")


def printed(width: int, names: tuple[str, ...]) -> list[str]:
    values = ({"LD": 44.0, "DS": 846.0, "MW": 0.9382}, {"LD": 25.0, "DS": 81.0, "MW": 0.9361})
    rows = [
        ClientWeight(client, {}, raw, dict.fromkeys(PRIORITY, 0.167), 0.1259, 0.5, 0)
        for client, raw in enumerate(values)
    ]
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(weights_table("round 2", PRIORITY, rows, names))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 70, 80, 120])
@pytest.mark.parametrize("names", [NAMES, ("0", "1")])
def test_numbers_stay_whole(width: int, names: tuple[str, ...]):
    lines = printed(width, names)
    text = "\n".join(lines)
    assert len(re.findall(r"\(0\.167\)", text)) == len(rows_of(lines)) == 6
    assert all(text.count(value) == 1 for value in ("44", "846", "0.9382", "0.9361"))
    assert text.count("50.00%") == 2
    assert max(map(len, lines)) <= width


def rows_of(lines: list[str]) -> list[str]:
    """The normalised values, one per client and criterion."""
    return [cell for line in lines for cell in re.findall(r"\([\d.]+\)", line)]


LINE = re.compile(r'^(fedmerit_\w+)(?:\{(\w+)="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)$')


def samples(text: str) -> dict[tuple[str, str], float]:
    found = [LINE.match(line) for line in text.splitlines() if not line.startswith("# ")]
    assert all(found), text
    return {(one[1], one[3] or ""): float(one[4]) for one in found if one}


def test_the_numbers_are_the_ledgers(cli: CommandLine, tmp_path: Path):
    attack = {"kind": "scale", "share": 0.25, "strength": 1e30}  # its update is dropped
    config = {"task": {"clients": 4, "model": "digits-linear", "attack": attack}, "train": {"epochs": 1}}
    run = run_config(make_config(config | {"run": {"rounds": 2, "fraction": 1.0, "workers": 1}}), tmp_path / "a")
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
