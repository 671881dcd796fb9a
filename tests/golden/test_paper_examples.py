"""The worked examples of [PMCFL, sec. 4.3] and [DAFL, sec. 2.2], as a user would check them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import Answer, CommandLine

from fedmerit import Prioritized

ALICE_AND_BOB = "client,DS,CD,IS\nAlice,0.9,0.2,0.4\nBob,0.1,0.8,0.5\n"


def weigh(cli: CommandLine, folder: Path, priority: str, *options: str) -> Answer:
    file = folder / "clients.csv"
    file.write_text(ALICE_AND_BOB)
    answer = cli("weigh", file, "--priority", priority, "--normalise", "none", "--json", *options)
    assert answer.code == 0, answer.err
    return answer


@pytest.mark.parametrize(
    ("priority", "scores", "weights"),
    [
        ("DS,CD,IS", [1.152, 0.22], [0.8397, 0.1603]),
        ("IS,CD,DS", [0.552, 0.94], [0.3700, 0.6300]),
        ("IS > CD > DS", [0.552, 0.94], [0.3700, 0.6300]),
        ("DS", [0.9, 0.1], [0.9, 0.1]),
    ],
)
def test_priority_decides_between_alice_and_bob(
    cli: CommandLine, tmp_path: Path, priority: str, scores: list[float], weights: list[float]
):
    result = weigh(cli, tmp_path, priority).json
    assert result["clients"] == ["Alice", "Bob"]
    assert result["scores"] == pytest.approx(scores, abs=1e-12)
    assert result["weights"] == pytest.approx(weights, abs=5e-5)


def test_the_plain_mean_hardly_tells_alice_from_bob(cli: CommandLine, tmp_path: Path):
    result = weigh(cli, tmp_path, "DS,CD,IS", "--score", "weighted-mean").json
    assert [round(weight, 2) for weight in result["weights"]] == [0.52, 0.48]
    assert result["weights"] == pytest.approx([1.5 / 2.9, 1.4 / 2.9])


def test_device_aware_example():
    scores = Prioritized()(np.array([[0.5, 0.8, 0.9], [0.9, 0.8, 0.5]]))
    assert scores == pytest.approx([1.26, 1.98], abs=1e-12)  # the paper prints 1.82 for the second
