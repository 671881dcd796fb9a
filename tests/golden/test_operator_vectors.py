"""Every operator on every vector of operator_vectors.json, from Python and through `fedmerit weigh --score`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine
from vectors import CLOSE, CRITERIA, GOLDEN, NAMES, OPERATORS, OPTIONS, PAIRS, QUANTIFIERS, SHAPLEY

from fedmerit import OWA
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import QuantifierOWA


def expected(operator: str) -> list[float]:
    return [vector[operator] for vector in GOLDEN["vectors"]]


def test_every_number_of_the_file_is_tested():
    columns = {key for vector in GOLDEN["vectors"] for key in vector} - {"c"}
    assert columns == set(OPERATORS) == set(OPTIONS)
    assert set(QUANTIFIERS) == set(GOLDEN["owa_weights_n3"])


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_from_python(operator: str):
    assert OPERATORS[operator](CRITERIA) == pytest.approx(expected(operator), abs=CLOSE)


@pytest.mark.parametrize(("operator", "option"), [(name, option) for name in OPTIONS for option in OPTIONS[name]])
def test_operator_from_the_command_line(operator: str, option: str, cli: CommandLine, tmp_path: Path):
    lines = [f"client {i},{','.join(map(str, row))}" for i, row in enumerate(CRITERIA.tolist())]
    table = tmp_path / "clients.csv"
    table.write_text("\n".join([f"client,{','.join(NAMES)}", *lines]))
    answer = cli("weigh", table, "--priority", ",".join(NAMES), "--normalise", "none", "--score", option, "--json")
    assert answer.code == 0, answer.err
    scores = answer.json["scores"]
    assert scores == pytest.approx(expected(operator), abs=CLOSE)
    assert answer.json["weights"] == pytest.approx(np.array(scores) / sum(scores), abs=CLOSE)


@pytest.mark.parametrize("name", QUANTIFIERS)
def test_owa_weights(name: str):
    best_ones = np.tril(np.ones((3, 3)))  # k values of 1 score the sum of the first k weights
    weights = np.diff(QuantifierOWA(QUANTIFIERS[name])(best_ones), prepend=0.0)
    assert weights == pytest.approx(GOLDEN["owa_weights_n3"][name], abs=CLOSE)
    assert OWA(tuple(weights.tolist()))(CRITERIA) == pytest.approx(expected(f"owa_{name}"), abs=CLOSE)


def test_two_additive_capacity():
    golden, capacity = GOLDEN["choquet_2additive"], Capacity.two_additive(SHAPLEY, PAIRS)
    masks = {key: sum(1 << int(i) for i in key.split(",")) if key != "empty" else 0 for key in golden["measure"]}
    assert {key: capacity.values[mask] for key, mask in masks.items()} == pytest.approx(golden["measure"], abs=CLOSE)
    assert capacity.shapley() == pytest.approx(golden["shapley_recomputed"], abs=CLOSE)
    table = capacity.interaction()
    found = {f"{i}-{j}": table[i, j] for i, j in PAIRS}
    assert found == pytest.approx(golden["interaction_recomputed"], abs=CLOSE)
    assert (table == table.T).all()
