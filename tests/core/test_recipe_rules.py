"""Rules of a recipe: parts that cannot go together are refused, and the same parts alone are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedmerit import DS, LD, MW, Backtracking, Momentum, Prioritized, Recipe, device_aware, fedavg, fedval, m2f
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import Alignment
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.criteria.table import Attribute
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.grouping import ByCosine
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import Nothing, TopShare
from fedmerit.core.recipes import adaptive, cgsv, fedamp, guarded, ifca, rffl, shares_of, standalone
from fedmerit.core.search.search import Weighting
from fedmerit.core.server.aggregators import TrimmedMean
from fedmerit.core.server.optimizers import Extrapolated
from fedmerit.core.server.private_sum import Privacy
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.weights.scores import WeightedMean
from fedmerit.errors import ConfigError

PERSONAL = m2f()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Recipe(()), "at least one criterion"),
        (lambda: Recipe((DS, LD, DS)), "names each criterion once"),
        (lambda: Recipe((DS,), step=Extrapolated(), aggregate=TrimmedMean()), "one client can stretch"),
        (lambda: replace(PERSONAL, contributions=(Contribution(),)), "`cosine` goes"),
        (lambda: replace(ifca(2), contributions=(Contribution(),)), "contributions but `cosine` are of one model"),
        (lambda: Recipe((DS,), until=5), "last round"),
        (lambda: replace(fedval("accuracy"), personal="keep"), "merged with the global one"),
        (lambda: replace(PERSONAL, criteria=(Alignment(),)), "Alignment compares"),
        (lambda: replace(PERSONAL, step=Momentum()), "a step moves the one model"),
        (lambda: replace(PERSONAL, aggregate=TrimmedMean()), "no other aggregate and no clip"),
        (lambda: replace(PERSONAL, clip=Clip()), "no other aggregate and no clip"),
        (lambda: replace(adaptive(DS), step=Momentum()), "leave out one of the two"),
        (lambda: replace(PERSONAL, search=Backtracking()), "use the fixed order"),
        (lambda: Recipe((DS,), grouping=ByCosine()), "groups and rewards"),
        (lambda: Recipe((DS,), reward=TopShare()), "groups and rewards"),
        (lambda: Recipe((DS,), normalise="none"), "lie in 0..1 by themselves; DS do not"),
        (
            lambda: device_aware(DS, search=Backtracking(among=(Weighting(("LD",), Prioritized(), "sum"),))),
            "a weighting names criteria of the recipe",
        ),
        (
            lambda: device_aware(DS, search=Backtracking(among=(Weighting((), Prioritized(), "sum"),))),
            "a weighting names criteria of the recipe",
        ),
    ],
)
def test_parts_that_cannot_go_together(make: Callable[[], Recipe], said: str):
    with pytest.raises(ConfigError, match=said):
        make()


def test_the_same_parts_alone_are_welcome():
    Recipe((DS,), step=Extrapolated())
    Recipe((DS,), aggregate=TrimmedMean(), clip=Clip(), step=Momentum())
    Recipe((DS, Alignment()), contributions=(Contribution(),))
    replace(PERSONAL, contributions=(Contribution(method="cosine"),))
    replace(ifca(2), contributions=(Contribution(method="cosine"),))
    Recipe((Attribute("night"),), normalise="none")
    Recipe((DS,), rho="1/K")


def test_facts_that_clients_are_asked_for():
    assert fedavg().required_facts == fedavg().client_facts == ("samples",)
    assert Recipe((DS,), cap_group=0.5).required_facts == ("samples", "site")
    assert Recipe((DS,), cap_group=0.5).client_facts == ("samples",)
    assert Recipe((LD,)).client_facts == ("samples", "labels")
    assert Recipe((LD,)).remembered_facts == ()
    assert Recipe((LD,), claims=Claims()).remembered_facts == ("samples", "labels")


def test_criteria_are_seen_through_those_they_are_made_of():
    name = Reputation(Contribution(method="cosine"))
    recipe = Recipe((DS, name))
    assert recipe.observed == (name,)
    assert [one.method for one in recipe.measured] == ["cosine"]
    assert recipe.remembered_facts == (name.name,)
    assert not recipe.meets
    assert Recipe((DS, Company())).meets


def test_after_the_last_round_with_rewards_clients_train_on_alone():
    until = m2f(personal="reset", until=5)
    assert until.in_round(5) is until
    assert until.in_round(6).personal == "keep"
    assert PERSONAL.in_round(99) is PERSONAL


def test_importances_become_shares():
    assert shares_of((), 4) == (0.25,) * 4
    assert shares_of((2, 1, 1), 3) == (0.5, 0.25, 0.25)
    assert shares_of((1, 0), 2) == (1.0, 0.0)
    for gamma in ((1,), (0, 0), (1, -1), (float("inf"), 1)):
        with pytest.raises(ConfigError):
            shares_of(gamma, 2)


def test_what_recipes_are_made_of():
    assert fedavg() == Recipe((DS,))
    assert fedval("accuracy").score == WeightedMean((1.0,))
    assert (fedval("accuracy").normalise, fedval("accuracy").when_zero) == ("none", "uniform")
    assert fedval("accuracy", marginal=True).when_zero == "keep"
    assert adaptive().criteria == (DS,)
    assert adaptive(LD, DS).cap == 2.0
    assert [recipe.personal for recipe in (cgsv(), rffl(), standalone())] == ["reset", "keep", "keep"]
    assert {recipe.acceptance.refuses for recipe in (cgsv(), rffl(), standalone())} == {False}
    assert (guarded().cap, guarded().claims) == (2.0, Claims(anchor=False))
    assert (guarded().criteria, guarded().clip) == ((DS, Company()), Clip(times=2.0))
    assert device_aware(DS, LD, MW).search == Backtracking()


def test_who_keeps_models_and_who_shares_one():
    beside, one, two = Recipe((DS,), beside=Beside()), Recipe((DS,), hypotheses=Hypotheses(1)), ifca(2)
    assert [recipe.keeps_models for recipe in (fedavg(), PERSONAL, beside, one, two)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert [recipe.one_model for recipe in (fedavg(), PERSONAL, beside, one, two)] == [True, False, False, True, False]


def test_results_are_held_against_the_one_model_alone():
    held = Recipe((DS, Consistency()))
    assert held.checks_results
    assert "results" in held.remembered_facts
    assert Recipe((Reputation(Consistency()),)).checks_results
    assert not Recipe((DS, Consistency(("labels",)))).checks_results
    assert not replace(held, hypotheses=Hypotheses(1)).checks_results
    assert not replace(PERSONAL, criteria=(DS, Consistency())).checks_results
    assert not fedavg().checks_results


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(PERSONAL, beside=Beside()), "set personal or beside"),
        (lambda: replace(fedamp(), reward=TopShare()), "gets all of it"),
        (lambda: replace(ifca(), privacy=Privacy(1.0, 1.0, 0.1)), "privacy"),
        (lambda: replace(ifca(), beside=Beside()), "models beside are of one"),
        (lambda: Recipe((DS,), scales=(("DS", 5.0),)), "scales has no effect"),
        (lambda: Recipe((DS,), normalise="scale"), "DS has none"),
        (lambda: Recipe((DS,), normalise="scale", scales=(("LD", 5.0),)), "scales are of criteria of the recipe"),
    ],
)
def test_more_parts_that_cannot_go_together(make: Callable[[], Recipe], said: str):
    with pytest.raises(ConfigError, match=said):
        make()


def test_more_parts_that_can():
    assert replace(fedamp(), until=3).in_round(4).reward == Nothing()
    assert replace(PERSONAL, until=0).in_round(1).reward == Nothing()
    Recipe((Attribute("night"),), normalise="scale")
    ways = (Weighting(("DS",), Prioritized(), "scale"),)
    Recipe((DS, LD), search=Backtracking(among=ways), scales=(("DS", 5.0),))
