"""Defaults of parts: the documents name them, and a default that moves changes results of runs that never named it."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from fedmerit.core import attacks, recipes
from fedmerit.core import lr_schedules as schedules
from fedmerit.core.collect.late import Delays, Staleness, Wait
from fedmerit.core.collect.selection import Poisson, Schedule, Uniform, draw
from fedmerit.core.criteria import robust as robust_criteria
from fedmerit.core.criteria import table as criteria
from fedmerit.core.criteria.client_fact import OwnFact
from fedmerit.core.criteria.computation import Computation
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.facts import Fact
from fedmerit.core.host import Judges
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.models.attention import ByAttention
from fedmerit.core.models.choices import Choices
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import Acceptance, TopShare
from fedmerit.core.models.splits import Splits
from fedmerit.core.recipe import Recipe
from fedmerit.core.round import settle
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.search import Fixed
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.search.votes import count_change
from fedmerit.core.server import aggregators
from fedmerit.core.server import optimizers as steps
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.aggregation import Aggregation, aggregate, make_candidates
from fedmerit.core.server.controls import FedDyn, Scaffold
from fedmerit.core.server.private_centring import CentreNoise
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.server.private_sum import Privacy
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.targets import Number
from fedmerit.core.types import History, Replies
from fedmerit.core.weights import scores
from fedmerit.core.weights.ranking import Ranked
from fedmerit.core.weights.weigh import ClientWeight

DEFAULTS: dict[type, dict[str, Any]] = {
    AdaptiveClip: {"start": 0.1, "quantile": 0.5, "rate": 0.2},
    Aggregation: {"exchanges": 0, "evaluations": 0, "tests": 0, "seconds": 0.0, "bytes_down": 0},
    aggregators.TrimmedMean: {"share": 0.2},
    aggregators.GeometricMedian: {"smoothing": 1e-6, "iterations": 32},
    aggregators.MultiKrum: {"share": 0.2},
    aggregators.NNM: {"share": 0.2},
    aggregators.Bucketing: {"size": 2},
    aggregators.Early: {"rounds": 10},
    attacks.Scale: {"strength": 10.0},
    attacks.SignFlip: {"strength": 1.0},
    attacks.Gauss: {"strength": 10.0},
    attacks.LittleIsEnough: {"strength": 1.5},
    attacks.InnerProduct: {"strength": 0.5},
    attacks.LabelFlip: {"strength": 1.0},
    attacks.Backdoor: {"strength": 0.5, "target": 0},
    attacks.Coalition: {"from_round": 1},
    ByAttention: {"sharpness": 10.0},
    Backtracking: {"tolerance": 0.01, "confidence": 0.95, "judges": None},
    Beside: {"pull": 0.1},
    BoldestFirst: {"accept": 0.5, "tolerance": 0.01, "majority": 0.0},
    Choices: {"bytes_down": 0},
    Claims: {"k": 3.0, "change": 1.2, "anchor": True},
    Clip: {"times": 1.0},
    Company: {"fewest": 6, "degree": True},
    Computation: {"degree": False},
    Consistency: {"degree": True},
    Contribution: {"orders": 64, "truncate": 0.0, "degree": True},
    Scaffold: {"moves_model": False},
    FedDyn: {"alpha": 0.01, "moves_model": True},
    criteria.Measured: {"degree": False},
    criteria.Attribute: {"degree": True},
    criteria.Validated: {"degree": True, "marginal": False},
    criteria.LossPower: {"q": 1.0, "degree": False},
    criteria.Agnostic: {"eta": 0.1, "degree": True},
    Fact: {"low": 0.0, "high": None},
    Hypotheses: {"count": 2, "dealt": 1},
    Wait: {"over": 1.0},
    Delays: {"usual": 0.0},
    Staleness: {"power": 0.5, "degree": True},
    OwnFact: {"by": 0.0, "less": False},
    Privacy: {"delta": 1e-5, "reproducible": False},
    CentreNoise: {"clip": 10.0},
    SearchNoise: {"share": 0.1, "clip": 1.0},
    Ranked: {"how": "borda", "top": 0.5},
    Recipe: {"initial": 0.0, "rho": 0.5},
    Reputation: {"half_life": 10.0, "power": 1.0, "least": 0.0},
    TopShare: {"exclude_own": False, "floor": 0.0, "temperature": 1.0, "beta": 1.0},
    Acceptance: {"sigma": 0.05},
    robust_criteria.Alignment: {"degree": True},
    robust_criteria.Nearness: {"share": 0.4, "degree": True},
    robust_criteria.Typical: {"degree": True},
    robust_criteria.Agreement: {"degree": True},
    robust_criteria.Distinct: {"degree": True},
    robust_criteria.NormShare: {"degree": True},
    robust_criteria.Usual: {"degree": True},
    robust_criteria.Common: {"degree": True},
    robust_criteria.Conduct: {"degree": True},
    schedules.StepDecay: {"every": 10, "factor": 0.5},
    schedules.Cosine: {"least": 0.0},
    schedules.WarmUp: {"rounds": 5},
    Fixed: {"tolerance": 0.0},
    scores.Terms: {"divisor": 1.0},
    Splits: {"at": 0.25},
    steps.Aggregate: {"mean_square": 0.0},
    History: {"rounds": 0},
    Replies: {"bytes_down": 0, "bytes_up": 0},
    ClientWeight: {"group": 0},
    Uniform: {"fraction": 0.1, "over": 1.0},
    Poisson: {"fraction": 0.1},
    Schedule: {"rates": ((1.0, 1),)},
    steps.Momentum: {"carry": 0.9, "length": 1.0, "nesterov": False},
    steps.HeavyBall: {"length": 1.0, "carry": 0.0},
    steps.Adam: {"length": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.001, "correct": True},
    steps.Yogi: {"length": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.001},
    steps.Adagrad: {"length": 0.1, "beta1": 0.0, "tau": 0.001},
    steps.Extrapolated: {"epsilon": 0.001},
    Number: {"centre": 0.0, "scale": 1.0},
}

PARTS_OF: dict[Any, tuple[type, ...]] = {
    steps: (steps.Plain, steps.Momentum, steps.HeavyBall, steps.Adam, steps.Yogi, steps.Adagrad, steps.Extrapolated),
    aggregators: (
        *(aggregators.Mean, aggregators.CoordinateMedian, aggregators.TrimmedMean, aggregators.GeometricMedian),
        *(aggregators.MultiKrum, aggregators.NNM, aggregators.Bucketing, aggregators.Early),
    ),
    scores: (
        *(scores.Prioritized, scores.PrioritizedAnd, scores.PrioritizedMean, scores.WeightedMean),
        *(scores.Product, scores.OWA, scores.QuantifierOWA, scores.Choquet, Ranked),
    ),
}
"""Parts that stand in for each other."""


@pytest.mark.parametrize("part", DEFAULTS, ids=lambda part: part.__name__)
def test_defaults_are_those_of_the_documents(part: type):
    found = {field.name: field.default for field in fields(part)}
    assert {name: found[name] for name in DEFAULTS[part]} == DEFAULTS[part]


@pytest.mark.parametrize(
    ("recipe", "defaults"),
    [
        (recipes.m2f, {"initial": 0.1}),
        (recipes.cgsv, {"beta": 1.0, "half_life": 13.5}),
        (recipes.rffl, {"least": 1 / 3, "half_life": 13.5}),
        (recipes.finetuned, {"until": 15}),
        (recipes.fedamp, {"sharpness": 10.0}),
        (recipes.cfl, {"at": 0.25}),
        (recipes.ditto, {"pull": 0.1}),
        (recipes.ifca, {"models": 2, "dealt": 1}),
        (recipes.fedval, {"top": 0.5, "rho": 0.5, "marginal": False}),
        (recipes.qffl, {"q": 1.0}),
        (recipes.agnostic, {"eta": 0.1}),
    ],
)
def test_recipes_have_the_defaults_of_the_documents(recipe: Any, defaults: dict[str, float]):
    found = signature(recipe).parameters
    assert {name: found[name].default for name in defaults} == defaults


@pytest.mark.parametrize(
    ("parts", "method", "default"),
    [
        ((steps.Step, *PARTS_OF[steps]), "__call__", {"index": 1}),
        ((aggregators.Aggregator, *PARTS_OF[aggregators]), "__call__", {"seed": 0}),
        ((scores.ExplainedScore, *PARTS_OF[scores]), "terms", {"place": 0}),
    ],
)
def test_parts_are_called_alike(parts: tuple[type, ...], method: str, default: dict[str, int]):
    """Whoever leaves an argument out gets the same of every part: one that differs would be no drop-in."""
    for part in parts:
        found = signature(getattr(part, method)).parameters
        assert {name: found[name].default for name in default} == default


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (make_candidates, {"moved": False}),
        (aggregate, {"seed": 0, "clients": 0}),
        (criteria.criterion, {"degree": False}),
        (criteria.reported, {"degree": False}),
        (Judges.evaluate, {"losses": False}),
        (rounds_to_target, {"or_equal": False}),
        (Panel.ask, {"before": False, "losses": False}),
        (settle, {"clients": 0}),
        (draw, {"over": 1.0}),
        (count_change, {"k": 3.0}),
    ],
    ids=lambda one: getattr(one, "__qualname__", ""),
)
def test_functions_have_their_defaults(function: Any, defaults: dict[str, Any]):
    found = signature(function).parameters
    assert {name: found[name].default for name in defaults} == defaults
