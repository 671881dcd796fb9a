"""Client facts: names that are criteria, degrees by hand, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Samples, prioritized
from fedmerit.core.criteria.client_fact import ClientFact, parse_client_fact
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.facts import measure
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, DataError

ROWS = Samples(np.zeros((2, 1)), np.array([0, 1]), 2, own={"age": 27.0, "job": "nurse"})


def values(name: str, *facts: float) -> list[float]:
    criterion = find_criterion(name)
    updates = Updates(np.zeros((len(facts), 1), np.float32))
    cohort = Cohort(1, tuple(range(len(facts))), updates, {criterion.required_facts[0]: np.array(facts)})
    return criterion(cohort, History()).tolist()


def test_degrees_by_hand():
    assert values("fact:age in 20..35", 19.9, 20, 27, 35, 36) == [0, 1, 1, 1, 0]
    assert values("fact:age in 20..35 by 5", 10, 17.5, 20, 36, 40) == [0, 0.5, 1, 0.8, 0]
    assert values("fact:job is nurse", 1, 0) == [1, 0]
    assert values("fact:battery", 0.2, 0.9) == [0.2, 0.9]
    assert values("fact:less ping", 20, 40, 80) == [1, 0.5, 0.25]
    assert values("fact:less ping", 0, 40) == [1, 0]


@pytest.mark.parametrize(
    "name",
    ["fact:age", "fact:less age", "fact:age in 20..35", "fact:age in 0.5..2.5 by 0.25", "fact:job is head nurse"],
)
def test_names_are_read_back_and_kept_in_ledgers(name: str):
    criterion = parse_client_fact(name)
    assert criterion.name == name
    recipe = prioritized(criterion, "DS", normalise="max")
    assert part_from_json(part_to_json(recipe)) == recipe


@pytest.mark.parametrize("name", ["fact:", "fact:age in 20", "fact:age of 3", "fact:age in 35..20", "fact:a b is c"])
def test_other_names_are_refused(name: str):
    with pytest.raises(ConfigError):
        find_criterion(name)


@pytest.mark.parametrize(
    "forms", [{"inside": (1, 2), "less": True}, {"inside": (1.0, 2.0), "word": "x"}, {"word": "x", "less": True}]
)
def test_a_criterion_has_one_form(forms: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"one of fact:NAME.*got several of them for 'age'"):
        ClientFact("age", **forms)


def test_clients_measure_what_they_know_of_themselves():
    assert measure(ROWS, ["fact:age", "fact:job is nurse", "fact:job is cook"]) == {
        "fact:age": 27.0,
        "fact:job is nurse": 1.0,
        "fact:job is cook": 0.0,
    }
    with pytest.raises(DataError, match="no fact 'shoe'; they have: age, job"):
        measure(ROWS, ["fact:shoe"])
    with pytest.raises(DataError, match=r"is a word \(got 'nurse'\); write fact:job is nurse"):
        measure(ROWS, ["fact:job"])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(0, 100), st.floats(0, 100), st.floats(0, 50))
def test_degrees_lie_in_0_to_1(facts: list[float], low: float, width: float, by: float):
    criterion = ClientFact("age", inside=(low, low + width), by=by)
    updates = Updates(np.zeros((len(facts), 1), np.float32))
    degrees = criterion(Cohort(1, tuple(range(len(facts))), updates, {"fact:age": np.array(facts)}), History())
    assert ((degrees >= 0) & (degrees <= 1)).all()
    assert all(degree == 1 for degree, fact in zip(degrees, facts, strict=True) if low <= fact <= low + width)


def test_all_forms_but_the_plain_one_are_degrees():
    names = ["fact:age", "fact:less age", "fact:age in 1..2", "fact:age in 1..2 by 3", "fact:job is cook"]
    made = [parse_client_fact(name) for name in names]
    assert [one.degree for one in made] == [False, True, True, True, True]
    assert [one.required_facts for one in made] == [("fact:age",)] * 4 + [("fact:job is cook",)]


def test_nobody_has_no_least():
    assert values("fact:less ping") == []
    assert parse_client_fact("fact:less").of == "less", "a fact may have this name"
