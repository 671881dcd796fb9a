"""Criteria: which facts they need, what they compute, how they are found."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet

from fedmerit import (
    CB,
    DS,
    IS,
    LC,
    LD,
    MW,
    Attribute,
    Criterion,
    InTime,
    Uniform,
    UserError,
    Validated,
    fedavg,
    prioritized,
)
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.core.criteria.loss import LossPower
from fedmerit.core.criteria.table import CRITERIA, display_name, find_criterion
from fedmerit.core.facts import find_fact
from fedmerit.core.host import Host
from fedmerit.core.objectives import find_objective
from fedmerit.core.parts import declared
from fedmerit.core.round import run_round, run_stages
from fedmerit.core.stages.stages import stages_of
from fedmerit.core.state import History, State, View
from fedmerit.core.types import Cohort, Family
from fedmerit.core.updates import Updates

HOST = replace(Host.of(CannedFleet(np.zeros((0, 1)), [])), names=tuple("abcde"), train=lambda model, seed: model + 1)
ALL = (DS, LD, LC, MW, CB, IS, Attribute("region"))


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
    assert MW.required_facts == (), "what clients claim has no effect"


def test_nearness_by_layers_is_that_of_the_authors_code():
    """The mean over layers of the norms of `get_weights()[0]`, the weights without the bias."""
    shapes, updates = ((2, 3), (2,), (1, 2), (1,)), np.random.default_rng(1).normal(size=(3, 11)).astype(np.float32)
    recipe = make_recipe(RecipeConfig(name="prioritized", criteria=[{"name": "MW", "layers": True}], normalise="sum"))
    for layers, places in ((shapes, ([0, 1, 2, 3, 4, 5], [8, 9])), (((11,),), (range(11),))):
        host = replace(
            Host.of(CannedFleet(updates, [{"samples": 1.0}] * 3)), layers=lambda length, layers=layers: layers
        )
        _, record = run_round(State(np.zeros(11, np.float32)), recipe, host, InTime(Uniform(1.0)), 0, evaluate=False)
        norms = [np.mean([np.sqrt(np.sum(np.square(row[list(at)]))) for at in places]) for row in updates]
        nearness = 1 / np.sqrt(np.array(norms) + 1)
        assert record.weights.weights == pytest.approx(nearness / nearness.sum())


def test_families_are_those_of_the_papers():
    families = {criterion.name: criterion.family for criterion in ALL}
    assert (families["MW"], families["attribute:region"]) == (Family.MODEL, Family.TARGET)
    assert {families[name] for name in ("DS", "LD", "LC", "CB", "IS")} == {Family.DATA}


def test_a_recipe_asks_for_each_fact_once_and_always_for_samples():
    assert fedavg().required_facts == ("samples",)
    assert prioritized(CB, DS, MW).required_facts == ("samples", "balance")
    assert prioritized(Attribute("region"), IS).required_facts == ("samples", "attribute:region", "sharp")


def test_names_find_the_criteria():
    assert find_criterion("attribute:region") == Attribute("region")
    assert all(find_criterion(name) == criterion for name, criterion in CRITERIA.items())
    assert prioritized("DS", "MW") == prioritized("Dataset_Size", "model-nearness") == prioritized(DS, MW)
    assert all(find_criterion(display_name(name)) == criterion for name, criterion in CRITERIA.items())


@pytest.mark.parametrize(
    ("names", "normalise", "message"),
    [
        (["class balanc"], "sum", r"unknown criterion 'class balanc'; did you mean one of 'class balance' \(CB\), '"),
        (["attribute:"], "sum", "unknown criterion 'attribute:'"),
        (["fact:age in 35..20"], "sum", r"an interval goes from LOW up to HIGH; got 35\.\.20"),
        (["DS", "CB", "DS"], "sum", "each criterion may appear once"),
        ([], "sum", "at least one criterion"),
        (["CB", "DS", "LD"], "none", "got DS, LD"),
    ],
)
def test_criteria_that_cannot_be_are_refused(names: list[str], normalise: Any, message: str):
    with pytest.raises(UserError, match=message):
        prioritized(*names, normalise=normalise)


@pytest.mark.parametrize(
    "criterion",
    [c for c in CRITERIA.values() if c.degree and "server rows" not in declared(c, "needs")],
    ids=lambda c: c.name,
)
def test_no_claim_that_passes_the_check_lifts_a_degree_above_1(criterion: Criterion):
    """A fact that is a share says so by `high=1`; without that, a claim of 1e6 would pass."""
    claims = np.array([0.0, 0.5, 1.0, 7.0, 1e6])
    bounds = {name: find_fact(name) for name in criterion.required_facts}
    facts = {name: np.clip(claims, fact.low, fact.high).tolist() for name, fact in bounds.items()}
    round = a_round([[float(place)] for place in range(5)], **facts)
    view = View.of(State(np.zeros(1, np.float32)), HOST, 0)
    values = criterion(run_stages(tuple(stages_of([criterion])), round, view)[0], History())
    assert ((values >= 0) & (values <= 1)).all(), f"{criterion.name} of {facts} is {values}"


def cohort_of(**facts: list[float]) -> Cohort:
    columns = {name.replace("__", ":"): np.array(values) for name, values in facts.items()}
    number = len(next(iter(columns.values())))
    return Cohort(2, tuple(range(number)), Updates(np.zeros((number, 1), np.float32)), columns)


def test_which_criteria_are_degrees():
    counts = {"DS", "LD", "LossPower"}
    work = {"Computation", "ReportedComputation", "SimulatedComputation"}
    assert {name for name, one in CRITERIA.items() if not one.degree} == counts | work


def test_what_the_server_counts_itself():
    """In round 2 client 0 takes part for the second time and client 1 for the first."""
    told = cohort_of(samples=[10.0, 30.0], loss=[2.0, 3.0])
    assert CRITERIA["Participation"](told, History(1, {0: 1})).tolist() == [1, 0.5]
    assert CRITERIA["DataRatio"](told, History()).tolist() == [0.25, 0.75]
    assert LossPower(2.0)(told, History()).tolist() == [4, 9]
    assert LossPower(0.0)(told, History()).tolist() == [1, 1]
    assert np.isfinite(LossPower(9.0)(cohort_of(loss=[1e300, 1.0]), History())).all()


def test_a_gain_by_rounding_is_none():
    facts = {"validated__accuracy": [0.5 + 9e-7, 0.5 + 1e-5], "validated__accuracy__without": [0.5, 0.5]}
    found = Validated(find_objective("accuracy"), marginal=True)(cohort_of(**facts), History())
    assert found == pytest.approx([0, 1e-5])


def test_models_below_the_least_accuracy_score_0():
    gated = Validated(find_objective("f1"), min_accuracy=0.6)
    assert gated.required_facts == ("validated:f1", "validated:accuracy")
    found = gated(cohort_of(validated__f1=[0.9, 0.8, 0.7], validated__accuracy=[0.59, 0.6, 0.9]), History())
    assert found.tolist() == [0, 0.8, 0.7]
    both = Validated(find_objective("f1"), min_accuracy=0.6, marginal=True).required_facts
    assert both == ("validated:f1", "validated:f1:without", "validated:accuracy")


def test_speed_is_the_slowest_time_over_the_own_and_more_epochs_are_faster():
    told = cohort_of(clock=[2.0, 4.0], seconds=[1.0, 5.0], epochs=[1.0, 3.0])
    assert CRITERIA["Computation"](told, History()).tolist() == [2, 1]
    assert CRITERIA["ReportedComputation"](told, History()).tolist() == [5, 1]
    assert CRITERIA["SimulatedComputation"](told, History()) == pytest.approx([1, 3])
