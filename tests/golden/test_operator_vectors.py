"""Every operator on every vector of operator_vectors.json, and the examples of [PMCFL, sec. 4.3] [DAFL, sec. 2.2]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import Answer, CommandLine
from vectors import CLOSE, CRITERIA, GOLDEN, NAMES, OPERATORS

from fedmerit import Prioritized


def expected(operator: str) -> list[float]:
    return [vector[operator] for vector in GOLDEN["vectors"]]


def test_every_number_of_the_file_is_tested():
    assert {key for vector in GOLDEN["vectors"] for key in vector} - {"c"} == set(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_from_the_command_line(operator: str, cli: CommandLine, tmp_path: Path):
    lines = [f"client {i},{','.join(map(str, row))}" for i, row in enumerate(CRITERIA.tolist())]
    table, (_, option) = tmp_path / "clients.csv", OPERATORS[operator]
    table.write_text("\n".join([f"client,{','.join(NAMES)}", *lines]))
    answer = cli("weigh", table, "--priority", ",".join(NAMES), "--normalise", "none", "--score", option, "--json")
    assert answer.code == 0, answer.err
    scores = answer.json["scores"]
    assert scores == pytest.approx(expected(operator), abs=CLOSE)
    assert answer.json["weights"] == pytest.approx(np.array(scores) / sum(scores), abs=CLOSE)


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
