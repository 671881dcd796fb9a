"""Criteria: which facts they need, what they compute, how they are found."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit import CB, DS, IS, LC, LD, MW, Attribute, Sharpness, UserError, fedavg, prioritized
from fedmerit.config.own import criteria_by_name
from fedmerit.core.criteria.table import CRITERIA, Agnostic, Criterion, Family, LossPower, Validated, criterion
from fedmerit.core.facts import find_fact
from fedmerit.core.objectives import Gated, find_objective
from fedmerit.core.types import Cohort, History
from fedmerit.core.updates import Updates

ALL = (DS, LD, LC, MW, CB, IS, Sharpness, Attribute("region"))


def a_round(updates: list[list[float]], **facts: list[float]) -> Cohort:
    columns = {name: np.array(values) for name, values in facts.items()}
    return Cohort(1, tuple(range(len(updates))), Updates(np.array(updates, dtype=np.float32)), columns)


@pytest.mark.parametrize("criterion", [c for c in ALL if c is not MW], ids=lambda c: c.name)
def test_reported_criteria_are_the_fact_they_ask_for(criterion):
    (fact,) = criterion.required_facts
    round = a_round([[0.0], [0.0]], **{fact: [0.25, 0.75]})
    assert criterion(round, History()).tolist() == [0.25, 0.75]


def test_divergence_is_computed_from_the_update():
    """1 / sqrt(norm + 1): 1 for no update, 1/2 for a norm of 3."""
    values = MW(a_round([[0, 0], [3, 0], [0, -3], [9, 12]]), History())
    assert values == pytest.approx([1, 0.5, 0.5, 0.25])


def test_divergence_asks_clients_for_nothing_and_believes_nothing():
    assert MW.required_facts == ()
    claimed = a_round([[3.0, 0.0]], MW=[1.0], divergence=[1.0])
    assert MW(claimed, History()).tolist() == [0.5]


def test_families_are_those_of_the_papers():
    families = {criterion.name: criterion.family for criterion in ALL}
    assert families["MW"] == Family.MODEL
    assert families["attribute:region"] == Family.TARGET
    assert {families[name] for name in ("DS", "LD", "LC", "CB", "IS", "Sharpness")} == {Family.DATA}


def test_a_recipe_asks_for_each_fact_once_and_always_for_samples():
    assert fedavg().required_facts == ("samples",)
    assert prioritized(CB, DS, MW).required_facts == ("samples", "balance")
    assert prioritized(Attribute("region"), IS).required_facts == ("samples", "attribute:region", "sharp")


def test_names_of_configuration_find_the_criteria():
    assert criteria_by_name(["DS", "MW", "attribute:region"]) == (DS, MW, Attribute("region"))
    assert all(criteria_by_name([name]) == (criterion,) for name, criterion in CRITERIA.items())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ds"], r"unknown criterion 'ds' \(did you mean 'DS'\?\); valid: .*attribute:NAME"),
        (["attribute:"], "unknown criterion 'attribute:'"),
        (["DS", "CB", "DS"], "repeated: DS"),
        ([], "at least one criterion"),
    ],
)
def test_a_priority_that_cannot_be_is_refused(names: list[str], message: str):
    with pytest.raises(UserError, match=message):
        criteria_by_name(names)


def test_a_recipe_has_a_criterion():
    with pytest.raises(UserError, match="at least one criterion"):
        prioritized()


def test_counts_are_no_degrees():
    with pytest.raises(UserError, match="DS, LD do not"):
        prioritized(CB, DS, LD, normalise="none")
    assert prioritized(CB, LC, MW, IS, normalise="none").priority == ("CB", "LC", "MW", "IS")


@pytest.mark.parametrize("criterion", [c for c in CRITERIA.values() if c.degree], ids=lambda c: c.name)
def test_no_claim_that_passes_the_check_lifts_a_degree_above_1(criterion: Criterion):
    """A fact that is a share says so by `high=1`; without that, a claim of 1e6 would pass."""
    claims = np.array([0.0, 0.5, 1.0, 7.0, 1e6])
    bounds = {name: find_fact(name) for name in criterion.required_facts}
    facts = {name: np.clip(claims, fact.low, fact.high).tolist() for name, fact in bounds.items()}
    values = criterion(a_round([[float(place)] for place in range(5)], **facts), History())
    assert ((values >= 0) & (values <= 1)).all(), f"{criterion.name} of {facts} is {values}"


def test_the_value_of_a_recipe_says_what_it_is():
    assert prioritized(DS, CB) == prioritized(DS, CB)
    assert prioritized(DS, CB) != prioritized(CB, DS)
    assert repr(prioritized(DS, CB)) == "Recipe(criteria=(DS, CB))"


def cohort_of(**facts: list[float]) -> Cohort:
    columns = {name.replace("__", ":"): np.array(values) for name, values in facts.items()}
    number = len(next(iter(columns.values())))
    return Cohort(2, tuple(range(number)), Updates(np.zeros((number, 1), np.float32)), columns)


def test_agnostic_weights_begin_with_no_losses():
    """exp(0.5 * losses so far): client 0 had 2 before and has 1 now, client 1 is new and has 3: they are level."""
    values = Agnostic(0.5)(cohort_of(loss=[1.0, 3.0]), History(losses={0: 2.0}))
    assert values.tolist() == [1.0, 1.0]


def test_only_what_a_client_adds_counts_where_the_gain_does():
    accuracy, facts = find_objective("accuracy"), {"validated__accuracy": [0.9, 0.5]}
    assert Validated(accuracy)(cohort_of(**facts), History()).tolist() == [0.9, 0.5]
    gain = cohort_of(**facts, validated__accuracy__without=[0.6, 0.6])
    assert Validated(accuracy, marginal=True)(gain, History()).tolist() == pytest.approx([0.3, 0.0])


def test_shares_are_degrees_and_a_function_is_none_unless_it_says_so():
    assert Attribute("Young").degree
    assert not criterion("Square", Family.DATA, "samples squared", facts=["samples"])(
        lambda c, h: c.facts["samples"]
    ).degree


def test_which_criteria_are_degrees():
    counts = {"DS", "LD", "Sharpness", "Connection", "LossPower"}
    work = {"Computation", "ReportedComputation", "SimulatedComputation", "BudgetComputation"}
    assert {name for name, one in CRITERIA.items() if not one.degree} == counts | work


def test_what_the_server_counts_itself():
    """In round 2 client 0 takes part for the second time and client 1 for the first."""
    told = cohort_of(samples=[10.0, 30.0], loss=[2.0, 3.0], link=[0.5, 4.0])
    assert CRITERIA["Participation"](told, History(1, {0: 1})).tolist() == [1, 0.5]
    assert CRITERIA["DataRatio"](told, History()).tolist() == [0.25, 0.75]
    assert CRITERIA["Connection"](told, History()).tolist() == [0.5, 4]
    assert LossPower(2.0)(told, History()).tolist() == [4, 9]
    assert LossPower(0.0)(told, History()).tolist() == [1, 1]
    assert Agnostic(0.5)(told, History()) == pytest.approx([np.exp(-0.5), 1])
    assert np.isfinite(LossPower(9.0)(cohort_of(loss=[1e300, 1.0]), History())).all()
    assert Agnostic(1.0)(cohort_of(loss=[1e308, 1.0]), History(losses={0: 1e308})).tolist() == [1, 0]


def test_a_gain_by_rounding_is_none():
    facts = {"validated__accuracy": [0.5 + 9e-7, 0.5 + 1e-5], "validated__accuracy__without": [0.5, 0.5]}
    found = Validated(find_objective("accuracy"), marginal=True)(cohort_of(**facts), History())
    assert found == pytest.approx([0, 1e-5])


def test_a_gate_is_shut_below_its_accuracy():
    gated = Validated(Gated(find_objective("f1"), 0.6))
    assert gated.required_facts == ("validated:f1", "validated:accuracy")
    found = gated(cohort_of(validated__f1=[0.9, 0.8, 0.7], validated__accuracy=[0.59, 0.6, 0.9]), History())
    assert found.tolist() == [0, 0.8, 0.7]
    both = Validated(Gated(find_objective("f1"), 0.6), marginal=True).required_facts
    assert both == ("validated:f1", "validated:f1:without", "validated:accuracy")
    assert Validated(find_objective("accuracy")).gate is None
