"""The private search: the budget that its answers take, their bound, and that it does not show who came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import StepSearch, prioritized
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import private
from fedmerit.core.release import Release
from fedmerit.core.round import aggregate_round
from fedmerit.core.server.private_sum import AdaptiveClip, PrivateSum, SearchNoise, client_gains
from fedmerit.core.state import Clock, RoundResult, State
from fedmerit.core.types import Evaluation, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.normalise import scale

STEPS = ((2.0, 0.0), (1.0, 0.0), (0.5, 0.0))
GAINS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(-50, 50))


class Judges:
    """Clients whose loss is |model - wish|, with ten rows each; it keeps who was asked."""

    def __init__(self, wish: float, clients: int = 4) -> None:
        self.wish, self.clients, self.asked = wish, clients, list[Any]()

    def judges(self) -> list[int]:
        return list(range(self.clients))

    def evaluate(self, models: Any, on: str, clients: Any, *, losses: bool = False) -> list[Evaluation]:
        self.asked.append(tuple(clients))
        sizes = np.where(np.isin(np.arange(self.clients), clients), 10, 0)
        far = [float(abs(model[0] - self.wish)) for model in models]
        return [Evaluation(np.zeros(self.clients, np.int64), sizes, one * sizes.astype(float)) for one in far]


PLAIN = prioritized("DS", normalise=scale({"DS": 1}))


def recipe_of(noise: float) -> Recipe:
    aggregator = PrivateSum(noise, 1.0, delta=0.1, reproducible=True, search=SearchNoise(0.5, clip=10.0))
    return private(replace(PLAIN, search=StepSearch(STEPS, accept=1.0)), aggregator)


def result_of(
    recipe: Recipe, judges: Judges, updates: np.ndarray, seed: int = 1, trainable: int | None = None
) -> tuple[RoundResult, list[Release]]:
    """A round from a model of ones, or of zeros where all of it is trained; and what was booked in it."""
    facts, booked = tuple({"samples": 1.0} for _ in updates), list[Release]()
    replies = Replies(tuple(range(len(facts))), Updates(updates.astype(np.float32)), facts, {})
    state = State(np.full(updates.shape[1], float(trainable is not None), np.float32))
    host = Host(judges, tuple("abcd"), trainable=trainable, book=booked.append)  # type: ignore[arg-type]
    return aggregate_round(state, recipe, replies, host, Assignment((state.model,), {}), seed, Clock()), booked


@given(st.floats(0.1, 50), st.floats(0.01, 0.5), st.floats(0.5, 1e4))
def test_all_releases_of_a_round_together_cost_what_the_noise_says(noise: float, share: float, clients: float) -> None:
    search, number = SearchNoise(share), max(1, round(clients))
    plain = PrivateSum(noise, 1.0, search=search)
    assert 1 / search.on_gains(noise) ** 2 + 1 / plain.sum_noise(number) ** 2 == pytest.approx(1 / noise**2)
    both = replace(plain, clip=AdaptiveClip())
    on_count = AdaptiveClip.count_deviation(search.on_updates(noise), number)
    spent = 1 / search.on_gains(noise) ** 2 + 1 / both.sum_noise(number) ** 2 + 1 / (2 * on_count) ** 2
    assert spent == pytest.approx(1 / noise**2)


@given(GAINS, st.floats(0.01, 10))
def test_one_client_moves_the_sum_of_gains_by_at_most_their_clip(gains: np.ndarray, clip: float) -> None:
    noise = SearchNoise(clip=clip)
    moved = noise.total(gains) - noise.total(gains[1:])
    assert np.linalg.norm(moved) <= clip * (1 + 1e-9)


@pytest.mark.parametrize(("wish", "lr"), [(9.0, 2.0), (1.0, 1.0), (0.1, 0.5)])
def test_the_step_that_the_clients_prefer_is_taken(wish: float, lr: float) -> None:
    judges = Judges(wish)
    done, booked = result_of(recipe_of(1e-9), judges, np.array([[1.0, 0.0]] * 4))
    assert done.state.model == pytest.approx([lr, 0], abs=1e-5)
    assert judges.asked == [(0, 1, 2, 3)]
    assert [one.chosen for one in done.moved.search.results].index(True) == [step[0] for step in STEPS].index(lr)
    assert booked == [Release(1, "round", 1e-9, 1.0)], "all candidates share one noisy sum"


def test_answers_are_noised_and_a_round_without_clients_does_not_show() -> None:
    taken = set()
    for seed in range(30):
        done, _ = result_of(recipe_of(3.0), Judges(1.0), np.array([[1.0, 0.0]] * 4), seed)
        assert done.moved.chosen is not None
        taken.add(done.moved.chosen.weighting.optimizer)
    assert len(taken) == 3, "so much noise decides by itself"
    alone = Judges(1.0)
    empty, booked = result_of(recipe_of(3.0), alone, np.empty((0, 2)))
    assert alone.asked == []
    assert set(empty.state.own["server"]["optimizer"]) == {"move"}, "a step of the search was taken all the same"
    assert np.abs(empty.state.model).min() > 0
    assert booked == [Release(1, "round", 3.0, 1.0)]


@pytest.mark.parametrize("fixed", [1, 2])
def test_what_nobody_trains_gets_no_noise_and_stays(fixed: int) -> None:
    for recipe in (recipe_of(3.0), private(PLAIN, PrivateSum(3.0, 1.0, reproducible=True))):
        for updates in (np.ones((4, 4)), np.empty((0, 4))):
            done, _ = result_of(recipe, Judges(1.0), updates, trainable=4 - fixed)
            assert done.state.model[4 - fixed :].tolist() == [1] * fixed
            assert (done.state.model[: 4 - fixed] != 1).all()


def test_who_did_not_answer_in_full_counts_for_nothing() -> None:
    before = Evaluation(np.array([1, 2, 3]), np.array([4, 4, 4]), np.array([4.0, 8.0, 12.0]))
    after = Evaluation(np.array([2, 2, 4]), np.array([4, 0, 4]), np.array([2.0, 8.0, np.nan]))
    assert client_gains("loss", before, [after]).tolist() == [[0.5], [0.0], [0.0]]
    assert client_gains("accuracy", before, [after]).tolist() == [[0.25], [0.0], [0.25]]


def test_who_has_no_rows_counts_for_nothing_whatever_it_reports() -> None:
    before = Evaluation(np.array([1, 0]), np.array([4, 0]), np.array([4.0, 9.0]))
    after = Evaluation(np.array([2, 3]), np.array([4, 0]), np.array([2.0, 1.0]))
    assert client_gains("loss", before, [after]).tolist() == [[0.5], [0.0]]
    assert client_gains("accuracy", before, [after]).tolist() == [[0.25], [0.0]]


def test_one_row_is_an_answer_and_every_candidate_has_to_be_answered() -> None:
    before = Evaluation(np.array([0, 0]), np.array([1, 4]), np.array([3.0, 4.0]))
    first = Evaluation(np.array([1, 4]), np.array([1, 4]), np.array([1.0, 0.0]))
    second = Evaluation(np.array([0, 2]), np.array([1, 3]), np.array([2.5, 0.0]))
    assert client_gains("loss", before, [first, second]).tolist() == [[2.0, 0.5], [0.0, 0.0]]
