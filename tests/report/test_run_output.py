"""What a run shows in scripts, notebooks and terminals: page, figure, tables, short texts."""

import re
from pathlib import Path

import numpy as np
import pytest
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
    weigh,
)
from fedmerit.core.criteria.criterion import reported
from fedmerit.core.types import Family
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.report.screen import weights_table


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
