"""Results: what clients say of models on their rows, held against the server's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import load_task
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.table import DS, LossPower
from fedmerit.core.facts import LOSS, RESULTS
from fedmerit.core.recipe import Recipe
from fedmerit.core.results import Reports, agreement, report, result_notes
from fedmerit.core.round import play
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.state import State, remember_facts
from fedmerit.core.targets import Number
from fedmerit.core.types import Evaluation, History, Matrix
from fedmerit.fleet.local import LocalFleet

CLASSES = np.repeat([0, 1, 2], 40)
LIAR = 3


def reports(values: Matrix, means: list[list[float]], rows: float = 200.0) -> Reports:
    """Of models with these mean losses by class, which differ by a little from row to row."""
    noise = np.tile([-0.1, 0.1], 60)
    own = np.array(means)[:, CLASSES] + noise
    return Reports(tuple(range(len(values))), values, np.full(len(values), rows), own, CLASSES, "loss")


@given(
    mix=st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda parts: sum(parts) > 0.1),
    means=st.lists(st.lists(st.floats(0, 5), min_size=3, max_size=3), min_size=1, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_whatever_mix_of_classes_a_client_has_it_is_believed(mix: list[float], means: list[list[float]]) -> None:
    shares = np.array(mix) / sum(mix)
    assert agreement(reports((np.array(means) @ shares)[np.newaxis], means))[0] == 1.0


def test_losses_that_no_class_has_are_doubted_both_ways() -> None:
    values = agreement(reports(np.array([[0.2], [1.9], [6.0], [0.0]]), [[1.0, 1.5, 2.0]]))
    assert values[1] == 1.0
    assert (values[[0, 2, 3]] < 0.5).all()


def test_few_rows_excuse_more() -> None:
    few, many = (agreement(reports(np.array([[2.2]]), [[1.0, 1.5, 2.0]], rows))[0] for rows in (3.0, 300.0))
    assert few == 1.0
    assert many < 0.5


def test_candidates_upside_down_are_doubted_though_each_answer_alone_is_usual() -> None:
    means = [[1.0, 1.5, 2.0], [0.8, 1.2, 1.6], [0.6, 0.9, 1.2]]
    honest, liar = [1.5, 1.2, 0.9], [0.9, 1.2, 1.5]
    found = agreement(reports(np.array([honest, liar]), means))
    assert found[0] == 1.0
    assert found[1] < 0.5


def test_who_was_asked_about_some_models_is_held_to_these() -> None:
    means = [[1.0, 1.5, 2.0], [0.5, 0.5, 0.5]]
    found = agreement(reports(np.array([[np.nan, 0.5], [np.nan, 4.0], [np.nan, np.nan]]), means))
    assert found.tolist() == [1.0, pytest.approx(found[1]), 1.0]
    assert found[1] < 0.5


@pytest.mark.parametrize("hostile", [1e300, 0.0, 1e-300])
def test_hostile_results_give_values_in_0_to_1(hostile: float) -> None:
    found = agreement(reports(np.array([[hostile, 1.0], [1.0, hostile]]), [[1.0, 1.5, 2.0]] * 2))
    assert ((found >= 0) & (found <= 1)).all()


def test_notes_say_what_was_reported_and_who_is_held_to_it() -> None:
    told = reports(np.array([[9.0, 9.0], [1.5, 1.5], [9.0, np.nan]]), [[1.0, 1.5, 2.0]] * 2)
    notes = result_notes(told, agreement(told), took_part=(0, 1), least=0.5)
    assert [(note.kind, note.client) for note in notes] == [("inconsistent", 0), ("results", 2)]
    assert notes[0].text == (
        "reports loss 9 of a model that has 1.5 on the server's rows, and of 1 more what does not fit to it: no mix "
        "of their classes gives that"
    )


def test_who_agrees_by_as_much_as_asked_for_has_no_note() -> None:
    told = reports(np.array([[1.0], [1.0]]), [[0.5, 1.0, 2.0]])
    assert [note.client for note in result_notes(told, np.array([0.5, 0.499]), took_part=(), least=0.5)] == [1]


def test_answers_belong_to_clients_or_to_the_judges_in_their_order() -> None:
    rows = np.array([4, 0, 4])
    answer = Evaluation(np.array([4, 0, 2]), rows)
    with LocalFleet(load_task("digits", clients=3, server=50), workers=1) as fleet:
        assert fleet.server.predict is not None
        own = fleet.server.predict([fleet.server.first_model(0)])
    by_client, by_judge = report([answer], [own], ()), report([answer], [own], (70, 30, 50))
    assert by_client is not None
    assert by_judge is not None
    assert (by_client.clients, by_judge.clients) == ((0, 1, 2), (30, 50, 70))
    assert report([answer], [own], (30, 50)) is None
    assert by_client.by == "accuracy"
    np.testing.assert_array_equal(by_client.values[:, 0], [1.0, np.nan, 0.5])


def test_other_targets_than_classes_are_no_evidence() -> None:
    with LocalFleet(load_task("digits", clients=3, server=50), workers=1) as fleet:
        assert fleet.server.predict is not None
        own = fleet.server.predict([fleet.server.first_model(0)])
    number = type(own)(own.y, own.classes, {}, own.predicted, None, Number(1.0))
    assert report([Evaluation(np.array([1]), np.array([2]))], [number], ()) is None


class Lying:
    """A fleet in which one client reports ten times the losses of the candidates, or of what it received."""

    def __init__(self, fleet: LocalFleet, *, judge: bool) -> None:
        self._fleet, self._judge = fleet, judge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def evaluate(self, *asked: Any, **more: Any) -> Sequence[Evaluation]:
        answers = self._fleet.evaluate(*asked, **more)
        if self._judge:
            for answer in answers:
                if answer.losses is not None:
                    answer.losses[LIAR] *= 10
        return answers

    def train(self, *asked: Any) -> Any:
        replies = self._fleet.train(*asked)
        if not self._judge:
            replies.facts[LIAR][LOSS] *= 10  # type: ignore[index]
        return replies


@pytest.mark.parametrize("judge", [True, False], ids=["a judge", "the received model"])
@pytest.mark.parametrize("server", [200, 0], ids=["rows", "no rows"])
def test_a_liar_has_a_note_and_less_consistency(judge: bool, server: int) -> None:
    settings = {"clients": 6, "partition": "dirichlet", "alpha": 1.0, "validation": 0.3, "server": server}
    task = load_task("digits", **settings, train={"lr": 0.3, "epochs": 2})
    criteria = (DS, Consistency(("results",)), *(() if judge else (LossPower(),)))
    recipe = Recipe(criteria, search=BoldestFirst(steps=((2.0, 0.9), (1.0, 0.0), (0.3, 0.0))))
    with LocalFleet(task, workers=1) as local:
        fleet: Any = Lying(local, judge=judge)
        state, records = State(local.server.first_model(1)), []
        for _ in range(2):
            state, record = play(state, recipe, fleet, selection=Uniform(1.0), seed=1, evaluate=True)
            records.append(record)
    doubted = [{note.client for note in record.notes if note.kind == "inconsistent"} for record in records]
    if not server:
        assert doubted == [set(), set()]
        assert RESULTS not in records[0].facts
        return
    assert doubted == [{LIAR}, {LIAR}]
    assert [record.facts[RESULTS][LIAR] < 0.5 for record in records] == [True, True]
    # a search asks after weighing: its answers count in the next round
    assert [record.facts["Consistency"][LIAR] < 0.5 for record in records] == [not judge, True]
    assert (np.delete(records[1].facts["Consistency"], LIAR) >= 0.5).all()
    assert state.history.recent[RESULTS][LIAR] == tuple(record.facts[RESULTS][LIAR] for record in records)


def test_a_round_without_results_is_not_remembered() -> None:
    after = remember_facts(History(), [(0, {"samples": 3.0}), (0, {RESULTS: 0.2, "samples": 3.0})], (RESULTS,))
    assert after.recent[RESULTS] == {0: (0.2,)}


def doubt(own: list[list[float]], said: list[float], rows: float = 5.0, by: str = "loss") -> float:
    """The agreement of one client with rows of one class."""
    classes = np.zeros(len(own[0]), np.int64)
    return float(agreement(Reports((0,), np.array([said]), np.array([rows]), np.array(own), classes, by))[0])  # type: ignore[arg-type]


def test_agreement_by_hand() -> None:
    """Losses 1, 3, 1, 3 and one more row 1 off the mean of 2: the variance is 5 / 4, and of 5 rows against 4 the error
    is the root of 5 / 4 * (1 / 5 + 1 / 4), 0.75."""
    one = [1.0, 3.0, 1.0, 3.0]
    assert doubt([one], [2 + 4 * 0.75]) == pytest.approx(2 / 4)
    assert doubt([one], [2 - 8 * 0.75]) == pytest.approx(2 / 8)
    assert doubt([one], [2 + 2 * 0.75]) == pytest.approx(1)
    assert doubt([one], [2 + 1.9 * 0.75]) == 1
    assert doubt([one], [np.nan]) == 1
    assert doubt([one], [99.0], rows=0.0) == 1, "without rows nothing was said"
    wide = [0.0, 4.0, 0.0, 4.0]  # 2 off the mean, and so is the row more
    assert doubt([wide], [2 + 4 * np.sqrt(5 * 0.45)]) == pytest.approx(2 / 4)
    right = [1.0, 1.0, 1.0, 1.0]  # all right: the row more may be wrong
    assert doubt([right], [1 - 4 * np.sqrt(0.25 * 0.45)], by="accuracy") == pytest.approx(2 / 4)


def test_agreement_on_how_models_differ_by_hand() -> None:
    """The second model is 1 above the first in every row, and one more row is off by 0.01, or by 1 of accuracies."""
    one = [1.0, 3.0, 1.0, 3.0]
    error = np.sqrt(0.01**2 / 4 * 0.45)
    assert doubt([one, [two + 1 for two in one]], [2.0, 3 + 10 * error]) == pytest.approx(2 / 10)
    assert doubt([one, [two + 1 for two in one]], [2.0, 3.0]) == 1
    error = np.sqrt(1 / 4 * 0.45)
    told = doubt([[1.0] * 4, [0.0] * 4], [1.0, 4 * error], by="accuracy")
    assert told == pytest.approx(2 / 4)


def test_whose_answers_they_are_where_few_were_asked() -> None:
    with LocalFleet(load_task("digits", clients=3, server=50), workers=1) as fleet:
        assert fleet.server.predict is not None
        own = fleet.server.predict([fleet.server.first_model(0)])
    alone, three = Evaluation(np.array([1]), np.array([2])), Evaluation(np.array([1, 1, 1]), np.array([2, 2, 2]))
    for answer, judges, clients in ((alone, (), (0,)), (three, (0, 2), (0, 1, 2)), (three, (0, 3), None)):
        found = report([answer], [own], judges)
        assert (None if found is None else found.clients) == clients
    assert report([], [], ()) is None
    losses = Evaluation(np.array([1]), np.array([2]), np.array([3.0]))
    assert [
        (one.by, one.values.tolist())
        for told in ([losses], [losses, alone])
        if (one := report(told, [own] * len(told), ()))
    ] == [
        ("loss", [[1.5]]),
        ("accuracy", [[0.5, 0.5]]),
    ]
