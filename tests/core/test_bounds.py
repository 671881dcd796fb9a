"""Bounds of settings: the edge itself is allowed or refused, as the error says, and so is what lies just beyond."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from fedmerit.core.collect.late import Staleness
from fedmerit.core.collect.selection import Poisson, Schedule, Uniform
from fedmerit.core.criteria import table as criteria
from fedmerit.core.criteria.client_fact import OwnFact
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.measures import rounds_to_target
from fedmerit.core.models.attention import ByAttention
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.grouping import ByCosine
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import Acceptance, TopShare
from fedmerit.core.models.splits import Splits
from fedmerit.core.objectives import Gated, find_objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import m2f, prioritized
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.server import aggregators
from fedmerit.core.server import optimizers as steps
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.controls import FedDyn
from fedmerit.core.server.private_centring import CentreNoise
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.server.private_sum import Privacy
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.targets import Number
from fedmerit.core.weights.limits import check_caps
from fedmerit.core.weights.ranking import Ranked
from fedmerit.core.weights.scores import Linear, Power, Product
from fedmerit.errors import ConfigError

ABOVE_0 = ((1e-9, 1e9), (0.0, -1e-9, inf, nan))
FROM_0 = ((0.0, 1e9), (-1e-9, inf, nan))
SHARE = ((0.0, 1.0), (-1e-9, 1 + 1e-9, nan))
SOME = ((1e-9, 1.0), (0.0, 1 + 1e-9, nan))
BELOW_1 = ((0.0, 1 - 1e-9), (-1e-9, 1.0, nan))
BETWEEN = ((1e-9, 1 - 1e-9), (0.0, 1.0, nan))
BELOW_HALF = ((0.0, 0.5 - 1e-9), (-1e-9, 0.5))
FROM_1 = ((1.0, 1e9), (1 - 1e-9, inf, nan))

ADAPTIVE = {"length": ABOVE_0, "tau": ABOVE_0, "beta1": BELOW_1, "beta2": BELOW_1}


def _named(part: Callable[..., Any], name: str, value: float) -> Any:
    return part(**{name: value})


BOUNDS: dict[str, tuple[Callable[..., Any], tuple[tuple[Any, ...], tuple[Any, ...]]]] = {
    "AdaptiveClip.start": (lambda value: AdaptiveClip(start=value), ABOVE_0),
    "AdaptiveClip.quantile": (lambda value: AdaptiveClip(quantile=value), BETWEEN),
    "AdaptiveClip.rate": (lambda value: AdaptiveClip(rate=value), ABOVE_0),
    "GeometricMedian.smoothing": (lambda value: aggregators.GeometricMedian(smoothing=value), ABOVE_0),
    "GeometricMedian.iterations": (lambda value: aggregators.GeometricMedian(iterations=value), ((1, 2), (0,))),
    "TrimmedMean.share": (aggregators.TrimmedMean, BELOW_HALF),
    "MultiKrum.share": (aggregators.MultiKrum, BELOW_HALF),
    "NNM.share": (lambda value: aggregators.NNM(aggregators.TrimmedMean(), share=value), BELOW_HALF),
    "Bucketing.size": (lambda value: aggregators.Bucketing(aggregators.TrimmedMean(), size=value), ((2, 3), (1,))),
    "Early.rounds": (lambda value: aggregators.Early(aggregators.TrimmedMean(), rounds=value), ((1, 2), (0,))),
    "Backtracking.tolerance": (lambda value: Backtracking(tolerance=value), SHARE),
    "Backtracking.judges": (lambda value: Backtracking(judges=value), ((2, 3), (1, 0))),
    "Backtracking.confidence": (lambda value: Backtracking(confidence=value), BETWEEN),
    "Beside.pull": (Beside, FROM_0),
    "ByAttention.sharpness": (ByAttention, FROM_0),
    "Splits.at": (Splits, SHARE),
    "Hypotheses.count": (Hypotheses, ((1, 2), (0, True, 1.0))),
    "Hypotheses.dealt": (lambda value: Hypotheses(dealt=value), ((0, 1), (-1, False, 1.0))),
    "Recipe.scales": (lambda value: prioritized("DS", normalise="scale", scales={"DS": value}), ABOVE_0),
    "BoldestFirst.accept": (lambda value: BoldestFirst(accept=value), SHARE),
    "BoldestFirst.majority": (lambda value: BoldestFirst(majority=value), SHARE),
    "BoldestFirst.tolerance": (lambda value: BoldestFirst(tolerance=value), SHARE),
    "BoldestFirst.judges": (lambda value: BoldestFirst(judges=value), ((1, 2, None, "round"), (0, -1, "all"))),
    "BoldestFirst.rungs": (lambda value: BoldestFirst(steps=((1.0, 0.0),), rungs=value), ((1, 2), (0,))),
    "cap": (lambda value: check_caps(value, None), FROM_1),
    "cap_group": (lambda value: check_caps(None, value), SOME),
    "Claims.k": (lambda value: Claims(k=value), FROM_1),
    "Claims.change": (lambda value: Claims(change=value), FROM_1),
    "Claims.enrolled": (lambda value: Claims(enrolled=((0, value),)), ABOVE_0),
    "Claims.enrolled, who": (lambda value: Claims(enrolled=((value, 10.0),)), ((0, 1), (-1,))),
    "Clip.norm": (lambda value: Clip(value), ABOVE_0),
    "Clip.times": (lambda value: Clip(times=value), ABOVE_0),
    "Company.fewest": (lambda value: Company(fewest=value), ((4, 5), (3,))),
    "Contribution.orders": (lambda value: Contribution(orders=value), ((4, 6), (2, 5, 7))),
    "Contribution.truncate": (lambda value: Contribution(truncate=value), BELOW_1),
    "FedDyn.alpha": (lambda value: FedDyn(alpha=value), ABOVE_0),
    "LossPower.q": (lambda value: criteria.LossPower(q=value), FROM_0),
    "ByCosine.at, gap": (lambda value: ByCosine(at=value), ((0.0, 2.0), (-1e-9, 2 + 1e-9))),
    "ByCosine.at, constant": (lambda value: ByCosine(cut="constant", at=value), ((0.0, 2.0), (-1e-9, 2 + 1e-9))),
    "ByCosine.at, quantile": (lambda value: ByCosine(cut="quantile", at=value), SHARE),
    "ByCosine.at, silhouette": (lambda value: ByCosine(cut="silhouette", at=value), SHARE),
    "Staleness.power": (lambda value: Staleness(power=value), FROM_0),
    "a target": (lambda value: rounds_to_target([1, 2], np.ones((2, 2)), value, 0.5), SHARE),
    "a share of devices": (lambda value: rounds_to_target([1, 2], np.ones((2, 2)), 0.5, value), SOME),
    "Gated.least": (lambda value: Gated(find_objective("accuracy"), value), SHARE),
    "OwnFact.inside": (lambda value: OwnFact("age", inside=(20.0, value)), ((20.0, 35.0), (20 - 1e-9,))),
    "Privacy.clip": (lambda value: Privacy(value, 1.0, 0.1), ABOVE_0),
    "Privacy.noise": (lambda value: Privacy(1.0, value, 0.1), ABOVE_0),
    "Privacy.fraction": (lambda value: Privacy(1.0, 1.0, value), SOME),
    "Privacy.delta": (lambda value: Privacy(1.0, 1.0, 0.1, delta=value), BETWEEN),
    "CentreNoise.noise": (CentreNoise, ABOVE_0),
    "CentreNoise.clip": (lambda value: CentreNoise(1.0, clip=value), ABOVE_0),
    "SearchNoise.share": (lambda value: SearchNoise(share=value), ((1e-9, 0.5), (0.0, 0.5 + 1e-9, nan))),
    "SearchNoise.clip": (lambda value: SearchNoise(clip=value), ABOVE_0),
    "Ranked.top": (lambda value: Ranked(Product(), "top", value), SOME),
    "Recipe.initial": (lambda value: m2f(initial=value), SHARE),
    "Recipe.rho": (lambda value: Recipe((criteria.DS,), rho=value), SOME),
    "Recipe.until": (lambda value: m2f(until=value), ((0, 1, None), (-1,))),
    "Reputation.half_life": (lambda value: Reputation(criteria.DS, half_life=value), ABOVE_0),
    "Reputation.power": (lambda value: Reputation(criteria.DS, power=value), ABOVE_0),
    "Reputation.least": (lambda value: Reputation(criteria.DS, least=value), BELOW_1),
    "TopShare.floor": (lambda value: TopShare(floor=value), SHARE),
    "TopShare.temperature": (lambda value: TopShare(temperature=value), ABOVE_0),
    "TopShare.beta": (lambda value: TopShare(beta=value), ABOVE_0),
    "Acceptance.sigma": (Acceptance, FROM_0),
    "Power.a": (Power, ABOVE_0),
    "Linear.a": (lambda value: Linear(value, 0.5), ((0.0, 0.5 - 1e-9), (-1e-9, 0.5))),
    "Linear.b": (lambda value: Linear(0.5, value), ((0.5 + 1e-9, 1.0), (0.5, 1 + 1e-9))),
    "Uniform.fraction": (Uniform, SOME),
    "Uniform.over": (lambda value: Uniform(over=value), ((1.0, 2.0), (1 - 1e-9, nan))),
    "Poisson.fraction": (Poisson, SOME),
    "Schedule.rates, rate": (lambda value: Schedule(10, rates=((value, 1),)), SOME),
    "Schedule.rates, clients": (lambda value: Schedule(10, rates=((1.0, value),)), ((1, 2), (0,))),
    "Schedule.epochs, least": (lambda value: Schedule(10, epochs=(value, 3)), ((1, 3), (0, 4))),
    "Momentum.carry": (lambda value: steps.Momentum(carry=value), BELOW_1),
    "Momentum.length": (lambda value: steps.Momentum(length=value), ABOVE_0),
    "HeavyBall.length": (lambda value: steps.HeavyBall(length=value), ABOVE_0),
    "HeavyBall.carry": (lambda value: steps.HeavyBall(carry=value), BELOW_1),
    **{f"Adam.{name}": (partial(_named, steps.Adam, name), bounds) for name, bounds in ADAPTIVE.items()},
    **{f"Yogi.{name}": (partial(_named, steps.Yogi, name), bounds) for name, bounds in ADAPTIVE.items()},
    "Adagrad.beta1": (lambda value: steps.Adagrad(beta1=value), BELOW_1),
    "Extrapolated.epsilon": (lambda value: steps.Extrapolated(epsilon=value), FROM_0),
    "Number.tolerance": (Number, ABOVE_0),
    "Number.scale": (lambda value: Number(1.0, scale=value), ABOVE_0),
    "Number.centre": (lambda value: Number(1.0, centre=value), ((-1e9, 0.0, 1e9), (inf, -inf, nan))),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_settings_have_their_bounds(name: str):
    make, (good, bad) = BOUNDS[name]
    for value in good:
        make(value)
    for value in bad:
        with pytest.raises(ConfigError):
            make(value)
