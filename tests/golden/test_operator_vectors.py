"""Every operator on every vector of operator_vectors.json, from Python and through `fedmerit weigh --score`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine
from vectors import CLOSE, CRITERIA, GOLDEN, NAMES, OPERATORS


def expected(operator: str) -> list[float]:
    return [vector[operator] for vector in GOLDEN["vectors"]]


def test_every_number_of_the_file_is_tested():
    assert {key for vector in GOLDEN["vectors"] for key in vector} - {"c"} == set(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_from_python(operator: str):
    score, _ = OPERATORS[operator]
    assert score(CRITERIA) == pytest.approx(expected(operator), abs=CLOSE)


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
