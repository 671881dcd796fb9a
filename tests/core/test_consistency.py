"""Consistency: claims about labels, balance and rows held against what updates show of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet

from fedmerit import CB, DS, federate, load_task, prioritized
from fedmerit.core.criteria.consistency import EVIDENCE, Consistency, output_biases
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.host import Host
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.stages.stages import Measured
from fedmerit.core.state import State, View
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

SPREAD = [3.0, 1.0, 1.0, -5.0]
"""Three of four classes move up."""
ONE = [6.0, -2.0, -2.0, -2.0]
"""One class moves up."""


def cohort(biases: list[list[float]], **claims: list[float]) -> Cohort:
    number = len(biases)
    labels = claims.pop("labels", [3.0] * number)
    columns = {
        "samples": [100.0] * number,
        "labels": labels,
        "coverage": [min(1.0, count / 4) for count in labels],
        "balance": [0.1] * number,
    } | claims
    rows = np.array([[0.5, 0.5, *bias] for bias in biases], dtype=np.float32)
    return Cohort(1, tuple(range(number)), Updates(rows), {k: np.array(v, np.float64) for k, v in columns.items()})


def measured(of: Cohort, *evidence: str) -> Measured:
    view = View.of(State(np.zeros(2, np.float32)), Host.of(CannedFleet(np.zeros((0, 2)), [])), 0)
    return Consistency(evidence or ("labels", "balance", "noise")).measure(of, view)


def value(of: Cohort, *evidence: str) -> list[float]:
    return measured(of, *evidence).facts["Consistency"].tolist()


def test_honest_claims_speak_for_themselves():
    assert value(cohort([SPREAD] * 4)) == [1.0] * 4


def test_more_classes_move_up_than_the_client_claims_to_have():
    assert value(cohort([SPREAD] * 4, labels=[1.0, 3.0, 3.0, 3.0]), "labels") == [0.0, 1.0, 1.0, 1.0]


def test_one_class_moves_up_and_the_client_claims_balance():
    told = cohort([ONE, SPREAD, SPREAD, SPREAD], labels=[4.0, 3.0, 3.0, 3.0], balance=[1.0, 0.1, 0.1, 0.1])
    facts, notes, _ = measured(told)
    assert facts["Consistency"] == pytest.approx([1 / 3.5, 1, 1, 1])
    assert [(note.kind, note.client) for note in notes] == [("inconsistent", 0)]
    assert "claims a balance of 1, and its update moves the output bias of few classes up" in notes[0].text


def test_what_was_claimed_is_checked_not_what_counts():
    told = cohort([ONE, *[SPREAD] * 3])
    cut = replace(told, facts={**told.facts, "claimed:balance": np.array([1.0, 0.1, 0.1, 0.1])})
    assert value(cut, "balance")[0] == pytest.approx(1 / 3.5)


@pytest.mark.parametrize("biases", [[[1.0, 1.0, 1.0, 1.0]] * 3, [[0.0] * 4] * 3], ids=["no softmax", "nothing moved"])
def test_other_updates_are_no_evidence(biases: list[list[float]]):
    told = cohort(biases, balance=[1.0] * 3)
    assert output_biases(told) is None
    assert value(told, "labels", "balance") == [1.0] * 3


def test_a_model_shorter_than_the_classes_is_no_evidence():
    assert value(cohort([[]] * 3, labels=[40.0] * 3, coverage=[1.0] * 3)) == [1.0] * 3


@pytest.mark.parametrize("hostile", [0.0, 1e300, 1e9])
def test_hostile_claims_give_values_in_0_to_1(hostile: float):
    names = ("samples", "labels", "seconds")
    told = cohort([ONE, SPREAD, SPREAD], seconds=[1.0] * 3)
    for name in names:
        facts = {**told.facts, name: np.array([max(hostile, 1.0), 3.0, 3.0])}
        values = np.array(value(replace(told, facts=facts), "labels", "balance", "noise", "seconds"))
        assert ((values >= 0) & (values <= 1)).all()


def test_a_real_federation_has_few_alarms_and_keeps_the_values():
    task = load_task("digits", partition="dirichlet", alpha=0.5, clients=10, train={"lr": 0.1, "epochs": 1})
    run = federate(task, prioritized(find_criterion("Consistency"), DS, normalise="max"), rounds=3, fraction=1.0)
    values = np.array([client.facts["Consistency"] for index in (1, 2, 3) for client in run.explain(index)])
    assert (values >= 0.5).mean() > 0.9
    assert values.tolist() == [c.criteria["Consistency"] for index in (1, 2, 3) for c in run.explain(index)]


def test_evidence_is_named():
    with pytest.raises(ConfigError, match="evidence is one or more of labels, balance, noise, seconds"):
        Consistency(("colour",))
    made = prioritized(Consistency(("labels", "seconds")), CB, normalise="max")
    assert "seconds" in made.client_facts
    assert part_from_json(part_to_json(made)) == made


def numbers(rows: list[float], **claims: list[float]) -> Cohort:
    """Clients whose updates are single numbers."""
    told = dict.fromkeys(("labels", "coverage", "balance"), [1.0] * len(rows)) | claims
    updates = Updates(np.array(rows, np.float32)[:, np.newaxis])
    return Cohort(1, tuple(range(len(rows))), updates, {k: np.array(v, np.float64) for k, v in told.items()})


def test_how_far_from_the_mean_by_hand():
    """The mean is 4 and the distances are 4, 3, 2, 1 and 10, of which 3 is the median: 0.75 * 3 / 10."""
    rows, usual = [0.0, 1.0, 2.0, 3.0, 14.0], [100.0] * 4
    assert value(numbers(rows, samples=[*usual, 250.0]), "noise") == pytest.approx([1, 1, 1, 1, 0.225])
    assert value(numbers(rows, samples=[*usual, 200.0]), "noise") == [1] * 5, "twice the median is not more than that"
    assert value(numbers([0.0, 0.0, 9.0], samples=[1.0, 1.0, 9.0]), "noise") == pytest.approx([1, 1, 0.75 * 3 / 6])
    assert value(numbers([0.0, 9.0], samples=[1.0, 9.0]), "noise") == [1, 1], "two have no middle"


def test_seconds_by_hand():
    """Seconds per row 1, 2, 3 and 0.5 of who has 10 rows or more: the median is 1.5; who has fewer is not asked."""
    told = numbers([1.0] * 6, samples=[10, 10, 10, 40, 1, 1], seconds=[10, 20, 30, 20, 50, 0.1])
    assert value(told, "seconds") == pytest.approx([1, 1, 1, 2 * 0.5 / 1.5, 1, 2 * 0.1 / 1.5])
    assert value(numbers([1.0] * 3, samples=[1, 1, 1], seconds=[0, 0, 5]), "seconds") == [1] * 3


def test_labels_and_balance_by_hand():
    """Of 12 labels claimed a client with 3 pushed up shows 9; biases of 3, 1 and 1 are 25 / 11 classes of one size."""
    assert value(cohort([SPREAD] * 3, labels=[4.0] * 3), "labels") == [1] * 3
    wide = [[3.0, 1.0, 1.0, -5.0, *[0.0] * 12]] * 3
    told = cohort(wide, labels=[12.0, 9.0, 3.0], coverage=[0.75, 9 / 16, 3 / 16], balance=[1.0, 0.5, 0.0])
    assert value(told, "labels") == pytest.approx([0.75, 1, 1])
    assert value(told, "balance") == pytest.approx([25 / 11 / 3.5, 1, 1])


def test_two_classes_have_biases_and_one_has_none():
    told = numbers([1.0, 1.0, 1.0], labels=[1.0, 2.0, 2.0], coverage=[0.5, 1.0, 1.0], samples=[1.0] * 3)
    assert output_biases(told) is None, "a model of one number has no two biases"
    updates = Updates(np.array([[7.0, 1.0, -1.0], [7.0, -2.0, 2.0], [7.0, 0.0, 0.0]], np.float32))
    two = output_biases(replace(told, updates=updates))
    assert two.tolist() == [[1.0, -1.0], [-2.0, 2.0], [0.0, 0.0]]
    only = replace(told, updates=Updates(updates.combine(np.eye(3))[:, 1:]))
    assert output_biases(only) is not None, "an update that is biases alone"
    one_class = {**told.facts, "labels": np.ones(3), "coverage": np.ones(3)}
    assert output_biases(replace(told, updates=updates, facts=one_class)) is None


def test_how_many_classes_there_are_is_what_most_say_who_say_anything():
    updates = Updates(np.array([[7.0, 1.0, -1.0]] * 4, np.float32))
    told = numbers([1.0] * 4, labels=[0.0, 2.0, 2.0, 3.0], coverage=[0.0, 1.0, 1.0, 1.0], samples=[1.0] * 4)
    found = output_biases(replace(told, updates=updates))
    assert found.tolist() == [[1.0, -1.0]] * 4
    nobody = {**told.facts, "labels": np.zeros(4), "coverage": np.zeros(4)}
    assert output_biases(replace(told, updates=updates, facts=nobody)) is None


def test_biases_of_a_softmax_sum_to_zero_for_more_than_half_of_who_moved():
    facts = numbers([1.0] * 4, labels=[2.0] * 4, coverage=[1.0] * 4, samples=[1.0] * 4).facts

    def known(*rows: list[float]) -> bool:
        return output_biases(Cohort(1, (0, 1, 2, 3), Updates(np.array(rows, np.float32)), facts)) is not None

    fits, not_so, still = [1.0, -1.0], [1.0, 1.0], [0.0, 0.0]
    assert known(fits, fits, fits, not_so)
    assert not known(fits, fits, not_so, not_so)
    assert known(fits, fits, not_so, still)
    assert not known(fits, not_so, still, still)
    assert known([1001.0, -999.0], *[still] * 3), "2 is a thousandth of 2000"
    assert not known([1002.0, -998.0], *[still] * 3)


def test_no_evidence_speaks_for_more_than_1():
    """Each alone: together with the others, or with earlier rounds, more than 1 would not show."""
    told = cohort([SPREAD] * 4, labels=[2.0, 3.0, 3.0, 4.0], balance=[0.0] * 4, seconds=[9.0, 1.0, 1.0, 1.0])
    far = replace(told, facts={**told.facts, "samples": np.array([1.0, 1.0, 1.0, 9.0])})
    expected = {name: [1, 1, 1, 1] for name in EVIDENCE} | {"labels": [0, 1, 1, 1]}
    assert {name: EVIDENCE[name](told).tolist() for name in EVIDENCE} == expected
    assert EVIDENCE["noise"](far).tolist() == [1, 1, 1, 1], "all are the mean"
    assert EVIDENCE["seconds"](far).tolist() == pytest.approx([1, 1, 1, 2 / 9])
    near = numbers([0.0, 1.0, 3.0, 4.5, 2.0], samples=[1.0, 1, 1, 1, 9])
    assert EVIDENCE["noise"](near).tolist() == [1] * 5, "nearer to the mean than three quarters of the median"


def test_evidence_of_one_half_is_not_noted():
    """Of 6 and 7 labels claimed, one class pushed up shows 3: evidence 1/2 and 3/7."""
    wide = [[6.0, -2.0, -2.0, -2.0, *[0.0] * 12]] * 3
    facts, notes, _ = measured(cohort(wide, labels=[6.0, 7.0, 3.0], coverage=[6 / 16, 7 / 16, 3 / 16]), "labels")
    assert facts["Consistency"] == pytest.approx([1 / 2, 3 / 7, 1])
    assert [note.client for note in notes] == [1]
