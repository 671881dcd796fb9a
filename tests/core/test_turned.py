"""Turned clients: who is excluded after honest rounds, who never turned, and how one returns."""

import numpy as np
import pytest
from helpers import CannedFleet, run_canned

from fedmerit import DS, Recipe
from fedmerit.core.collect.memory import LastAnswers
from fedmerit.core.criteria.turned import Turned
from fedmerit.core.parts import check_words
from fedmerit.core.state import State
from fedmerit.core.weights.scores import Product
from fedmerit.errors import ConfigError

HONEST = np.random.default_rng(2).normal(size=(8, 40)).astype(np.float32)
RECIPE = Recipe((DS, Turned()), Product(), when_zero="keep", memory=LastAnswers())


def turned(*clients: int, by: float = -2.0) -> np.ndarray:
    """Everybody's answer, multiplied for these clients."""
    rows = HONEST.copy()
    rows[list(clients)] *= np.float32(by)
    return rows


def play(*rounds: np.ndarray) -> tuple[list[list[int]], list[str]]:
    """The clients that are excluded in each round, and the notes of the last."""
    state, found, texts = State(np.zeros(40, np.float32)), [], []
    for rows in rounds:
        state, record = run_canned(RECIPE, CannedFleet(rows, [{"samples": 10.0}] * len(rows)), state)
        found.append(np.flatnonzero(record.facts["Turned"] == 0).tolist())
        texts = [note.text for note in record.notes if note.client is not None]
    return found, texts


@pytest.mark.parametrize("who", [[5, 6, 7], [0, 2, 3, 4, 5, 6, 7]])
def test_clients_that_turn_are_excluded_at_once_also_as_the_majority(who: list[int]):
    found, texts = play(HONEST, HONEST, HONEST, turned(*who), turned(*who))
    assert found == [[], [], [], who, who]
    text = "has weight 0: its answers go against its own of the rounds before round 4, which agreed with each other"
    assert texts == [text] * len(who)


def test_a_client_returns_with_an_answer_that_agrees_with_those_before_it_turned():
    assert play(HONEST, HONEST, HONEST, turned(5, 6), turned(6), HONEST)[0][3:] == [[5, 6], [6], []]


def test_clients_that_always_attacked_or_had_two_answers_did_not_turn():
    always = turned(5, 6)
    assert play(always, always, always, always)[0][-1] == []
    assert play(HONEST, HONEST, turned(5))[0][-1] == []
    assert play(HONEST, HONEST, HONEST, turned(5))[0][-1] == [5]


def test_an_answer_that_has_little_in_common_with_the_last_is_not_turned():
    other = HONEST.copy()
    other[5] = np.roll(HONEST[5], 1) - 0.3 * HONEST[5]
    assert play(HONEST, HONEST, HONEST, other)[0][-1] == []


def test_it_needs_a_memory():
    recipe = Recipe((DS, Turned()), Product())
    with pytest.raises(ConfigError, match=r"Turned needs a memory of the clients' last answers.*last-answers"):
        check_words(recipe.parts, frozenset())
