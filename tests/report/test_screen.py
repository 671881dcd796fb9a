"""Tables on a narrow screen: numbers stay whole, whatever the names of clients."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.report.screen import weights_table

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
