"""The laws of all parts: settings are checked, documented and kept as JSON; parts that do not go together say why."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest

from fedmerit import (
    CB,
    DS,
    LD,
    MW,
    OWA,
    Backtracking,
    ByCosine,
    Choquet,
    Claims,
    Clip,
    FedExP,
    Momentum,
    Product,
    Ranked,
    Recipe,
    StepSearch,
    TopShare,
    Uniform,
    Validated,
    cosine_rewards,
    criterion,
    ditto,
    fedavg,
    fedval,
    ifca,
    m2f,
    prioritized,
    scale,
)
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.table import COMPUTATION, CRITERIA, DATA_RATIO, SIMULATED_COMPUTATION, Attribute
from fedmerit.core.objectives import find_objective
from fedmerit.core.parts import (
    ACCOUNTED,
    GIVEN_BY,
    PARTS,
    WORDS,
    Setting,
    check_words,
    declared,
    load_parts,
    name_of,
    settings,
)
from fedmerit.core.recipe_json import part_from_json, part_text, part_to_json, recipe_from_json
from fedmerit.core.recipes import RECIPES, private
from fedmerit.core.server.aggregators import CoordinateMedian
from fedmerit.core.server.controls import FedDyn, Scaffold
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.server.server import Batch, Mean, Server
from fedmerit.core.types import Family
from fedmerit.errors import ConfigError, DataError, UnknownName

load_parts()
ACCURACY = Validated(find_objective("accuracy"))
REQUIRED: dict[str, Any] = {
    "selection": Uniform(),
    "of": Uniform(),
    "hours": ((0.0, 1.0, 1),),
    "hour_of": float,
    "rounds": 2,
    "objective": ACCURACY.objective,
    "noise": 1.0,
    "fraction": 0.5,
    "bounds": (("DS", 500.0),),
    "weights": (0.5, 0.5),
    "shapley": (0.5, 0.5),
    "score": Product(),
}
"""A value for each setting without a default; `of` differs by part."""
OF = {"reputation": DS}
KINDS = [kind for table in PARTS.values() for kind in table.values()]
SETTINGS = [(kind, setting) for kind in KINDS for setting in settings(kind).values()]


def made(kind: type[Any], **given: Any) -> Any:
    """A part with these settings, and the others as they are by default."""
    needed = {one.name: REQUIRED[one.name] for one in settings(kind).values() if one.required}
    needed |= {"of": OF[name_of(kind)]} if name_of(kind) in OF else {}
    return kind(**{**needed, **given})


def numeric(setting: Setting) -> type | None:
    """Whether the setting accepts numbers: int, float, or none."""
    return next((one for one in (float, int) if one in (get_args(setting.type) or (setting.type,))), None)


def outside(setting: Setting) -> Iterator[Any]:
    """Numbers that the setting must refuse."""
    number = numeric(setting)
    yield from (math.nan, math.inf, -math.inf, True)
    yield from (0.5, 2.5) if number is int else ()
    interval, small = setting.interval, 1 if number is int else 1e-9
    if interval is not None:
        yield from (bound for bound in (interval.gt, interval.lt) if bound is not None)
        yield from () if interval.ge is None else (interval.ge - small,)  # type: ignore[operator]
        yield from () if interval.le is None else (interval.le + small,)  # type: ignore[operator]


def inside(setting: Setting) -> Iterator[Any]:
    """Numbers at the closed bounds of the setting, and next to the open ones."""
    interval = setting.interval
    yield from (bound for bound in (interval.ge, interval.le) if bound is not None)
    yield from () if interval.gt is None else (np.nextafter(float(interval.gt), math.inf),)  # type: ignore[arg-type]
    yield from () if interval.lt is None else (np.nextafter(float(interval.lt), -math.inf),)  # type: ignore[arg-type]


def named(value: object) -> str:
    return value.__name__ if isinstance(value, type) else value.name if isinstance(value, Setting) else str(value)


@pytest.mark.parametrize(("kind", "setting"), SETTINGS, ids=named)
def test_a_setting_refuses_what_is_outside_of_its_rule_and_says_so(kind: type[Any], setting: Setting) -> None:
    wrong: list[Any] = [*outside(setting)] if numeric(setting) else [2.5]
    wrong += ["no such word"] if setting.type is not str else []
    wrong += [] if setting.check(None) is None else [None]
    wrong += [] if setting.type is bool else [True]
    for value in wrong:
        with pytest.raises((ConfigError, UnknownName)) as caught:
            made(kind, **{setting.name: value})
        text = str(caught.value)
        assert f"`{setting.name}` of {name_of(kind)}" in text, text
        assert repr(value) in text, text
        assert "\n" not in text
        assert all(choice in text for choice in setting.choices)


@pytest.mark.parametrize(("kind", "setting"), [one for one in SETTINGS if one[1].interval], ids=named)
def test_a_setting_accepts_its_closed_bounds_and_what_is_next_to_its_open_ones(
    kind: type[Any], setting: Setting
) -> None:
    for value in inside(setting):
        assert getattr(made(kind, **{setting.name: value}), setting.name) == value


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_part_is_documented_frozen_hashable_and_kept_as_json(kind: type[Any]) -> None:
    one = made(kind)
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")  # what dataclasses write themselves
    for setting in settings(kind).values():
        assert setting.about, f"{kind.__name__}.{setting.name} has no Doc"
        with pytest.raises(FrozenInstanceError):
            setattr(one, setting.name, None)
    assert (hash(made(kind)), made(kind)) == (hash(one), one)
    if not any(setting.name == "hour_of" for setting in settings(kind).values()):  # it is not in recipes
        assert part_from_json(part_to_json(one)) == one


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_the_words_of_a_part_have_a_text(kind: type[Any]) -> None:
    one = made(kind)
    words = {word for name in ("needs", "gives", "demands", "takes", "why") for word in declared(one, name)}
    assert all(word in WORDS or word.startswith("fact ") for word in words)
    assert all(declared(one, "why")[word] for word in declared(one, "why"))
    assert set(GIVEN_BY.values()) <= PARTS.keys()


def recipe(**fields: Any) -> Callable[[], Recipe]:
    """FedAvg's recipe with some fields replaced."""
    return lambda: replace(fedavg(), **fields)


def accounted(**fields: Any) -> Callable[[], Recipe]:
    """A private recipe with some fields replaced."""
    plain = prioritized(DS, CB, normalise=scale({"DS": 100}))
    return lambda: private(replace(plain, **fields), PrivateSum(1.0, 0.1))


PERSONAL, CLUSTERS, SCAFFOLD = m2f().models, ifca().models, (Scaffold(),)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (recipe(models=PERSONAL, server=Server(optimizer=Momentum())), ("personal needs", "momentum", "remove recipe")),
        (recipe(models=PERSONAL, server=Server(CoordinateMedian())), ("personal needs", "median", "remove recipe")),
        (recipe(models=PERSONAL, stages=(Clip(),)), ("clip needs", "personal", "a recipe with one model")),
        (recipe(models=PERSONAL, search=Backtracking()), ("personal needs", "backtracking", "a recipe with one model")),
        (recipe(models=PERSONAL, criteria=(ACCURACY,)), ("validated:accuracy needs", "personal", "with one model")),
        (recipe(models=PERSONAL, criteria=(Alignment(),)), ("Alignment needs", "personal", "with one model")),
        (recipe(models=PERSONAL, stages=(Contribution(),)), ("contribution:shapley needs", "personal", "use `cosine`")),
        (recipe(models=CLUSTERS, search=StepSearch()), ("steps needs", "clusters", "use the fixed search")),
        (recipe(models=CLUSTERS, criteria=(ACCURACY,)), ("validated:accuracy needs", "clusters", "remove one of")),
        (recipe(search=StepSearch(), server=Server(optimizer=Momentum())), ("steps needs", "momentum", "remove one")),
        (recipe(stages=(Clip(),), server=Server(controls=SCAFFOLD)), ("scaffold needs", "clip", "without clip")),
        (recipe(server=Server(CoordinateMedian(), controls=SCAFFOLD)), ("scaffold needs", "median", "use the mean")),
        (recipe(models=PERSONAL, server=Server(controls=SCAFFOLD)), ("scaffold needs", "personal", "another recipe")),
        (recipe(models=ditto().models, server=Server(controls=SCAFFOLD)), ("scaffold needs", "local", "another")),
        (recipe(search=Backtracking(), server=Server(controls=(FedDyn(),))), ("feddyn needs", "backtracking", "scaff")),
        (recipe(server=Server(optimizer=Momentum(), controls=(FedDyn(),))), ("feddyn", "momentum", "its own step")),
        (recipe(server=Server(CoordinateMedian(), FedExP())), ("fedexp needs", "median", "use the mean with a clip")),
    ],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_both_named_with_a_way_out(
    make: Callable[[], Recipe], says: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(text in str(caught.value) for text in says), caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "part", "says"),
    [
        (accounted(models=CLUSTERS), "clusters", "use a recipe with one model"),
        (lambda: private(m2f(), PrivateSum(1.0, 0.1)), "personal", "use a recipe with one model"),
        (accounted(normalise="sum"), 'normalise "sum"', 'recipe.normalise = {name = "scale"'),
        (accounted(criteria=(DS, SimilarityFilter())), "SimilarityFilter", "use DS, LD"),
        (accounted(criteria=(DS, DATA_RATIO)), "DataRatio", "use DS, LD"),
        (accounted(criteria=(DS, Reputation(MW))), "reputation:MW", "use DS, LD"),
        (accounted(criteria=(DS, ClientFact("age", less=True))), "fact:less age", "use DS, LD"),
        (accounted(criteria=(DS, replace(ACCURACY, rho="1/K"))), "validated:accuracy", "rho = 0.5"),
        (accounted(score=Ranked(Product(), "borda")), "ranked", "product"),
        (accounted(score=lambda table: table[:, 0]), "function", "product"),
        (accounted(stages=(Claims(),)), "claims", "remove the stage"),
        (accounted(stages=(Clip(),)), "clip", "privacy.clip is in the account"),
        (accounted(server=Server(optimizer=FedExP())), "fedexp", "use sgd"),
        (accounted(server=Server(controls=SCAFFOLD)), "scaffold", 'train.algorithm = "sgd"'),
        (accounted(search=Backtracking()), "backtracking", "use the fixed search"),
        (accounted(search=StepSearch()), "steps", "use the fixed search"),
    ],
)  # fmt: skip
def test_what_the_account_does_not_cover_is_refused(make: Callable[[], Recipe], part: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(f"{part} cannot be combined with private-sum, which demands "), caught.value
    assert says in str(caught.value), caught.value


def test_an_aggregator_has_no_place_in_the_account() -> None:
    with pytest.raises(ConfigError, match=r"accounts for a weighted sum \(got median\); remove recipe.server.aggreg"):
        accounted(server=Server(CoordinateMedian()))()


@dataclass(frozen=True)
class OwnAggregator(Mean):
    """A user's aggregator, which is not registered."""

    needs: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()

    def __call__(self, batch: Batch, weights: Any) -> Any:
        return batch.updates.combine(weights)


def test_a_part_of_a_users_own_takes_part_with_its_words() -> None:
    with pytest.raises(ConfigError, match=r"^OwnAggregator needs updates as they .*, which clip does not give"):
        recipe(stages=(Clip(),), server=Server(OwnAggregator(needs=frozenset({"whole updates"}))))()
    with pytest.raises(ConfigError, match=r"^fedexp needs the weighted mean of the updates: "):
        recipe(server=Server(OwnAggregator(), FedExP()))()
    recipe(server=Server(OwnAggregator(gives=frozenset({"weighted mean"})), FedExP()))()

    class OwnCriterion:
        name = "own"
        gives = ACCOUNTED

    check_words([OwnCriterion(), PrivateSum(1.0, 0.1)], frozenset({"answers in their round"}))
    OwnCriterion.gives = frozenset()
    with pytest.raises(ConfigError, match=r"^own cannot be combined with private-sum"):
        check_words([OwnCriterion(), PrivateSum(1.0, 0.1)])


def test_a_host_gives_words_too() -> None:
    parts = [ACCURACY, *fedavg().parts]
    check_words(parts, frozenset({"server rows"}))
    with pytest.raises(ConfigError, match=r"^validated:accuracy needs rows of the server: set task.server = 1000"):
        check_words(parts)


GATED = Validated(find_objective("parity:sex"), min_accuracy=0.6)
MADE = {name: make() for name, (make, _) in RECIPES.items()} | {
    "attribute": prioritized(CB, DS, MW, Attribute("Young"), normalise="max"),
    "every criterion": prioritized(*CRITERIA.values()),
    "choquet": prioritized(DS, LD, score=Choquet((0.4, 0.6), ((0, 1, 0.2),))),
    "owa": prioritized(DS, LD, score=OWA((0.25, 0.75))),
    "scale": prioritized(DS, CB, normalise=scale({"DS": 500})),
    "groups": m2f(COMPUTATION, SIMULATED_COMPUTATION, grouping=ByCosine(cut="silhouette"), reward=TopShare("max")),
    "gate": replace(fedval("accuracy", "parity:sex", gamma=(2, 1), rank="top", rho="1/K"), criteria=(GATED,)),
    "until": cosine_rewards(until=3),
    "clusters": ifca(3, warmup_rounds=0),
    "private": private(prioritized(DS, normalise=scale({"DS": 500})), PrivateSum(1.1, fraction=0.1, clip=0.5)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_recipe_comes_back_as_it_was(name: str):
    recipe = MADE[name]
    text = part_to_json(recipe)
    assert part_from_json(text) == recipe_from_json(text) == recipe
    assert part_text(text) == repr(recipe)


@dataclass(frozen=True)
class Mine:
    power: float = 2.0

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return table[:, 0] ** self.power


def test_parts_of_a_users_own_are_shown_and_not_made():
    text = part_to_json(prioritized(DS, score=Mine()))
    assert json.loads(text)["score"] == {"is": f"{__name__}:Mine", "repr": "Mine(power=2.0)"}
    with pytest.raises(DataError, match="user-defined"):
        part_from_json(text)
    assert part_text(text).startswith("Recipe(criteria=(DS,), score=Mine(power=2.0), normalise='max'")


def test_a_criterion_of_a_users_own_with_a_known_name_is_not_taken_for_ours():
    @criterion("DS", Family.DATA, "mine", facts=["samples"])
    def mine(cohort, history):
        return cohort.facts["samples"]

    assert json.loads(part_to_json(mine))["is"] != "criterion"


@pytest.mark.parametrize("text", ["", "no JSON", '{"is": "os:system"}', '{"is": "DS", "x": 1}', "[" * 5000, '{"x": 1}'])
def test_what_is_not_a_part_is_refused(text: str):
    with pytest.raises(DataError):
        part_from_json(text)


def test_a_recipe_is_made_as_far_as_it_is_ours():
    """A user's own score is left at its default, a user's own criterion is a stand-in by name, the rest is kept."""

    @criterion("Mood", Family.DATA, "mine", facts=["samples"])
    def mood(cohort, history):
        return cohort.facts["samples"]

    made = recipe_from_json(part_to_json(prioritized(DS, mood, LD, score=Mine(), normalise="max")))
    assert (made.priority, made.score, made.normalise) == (("DS", "Mood", "LD"), fedavg().score, "max")
    with pytest.raises(DataError, match="'Mood' is user-defined and cannot be rebuilt"):
        made.criteria[1](None, None)  # type: ignore[arg-type]
    for text in ("", "3", part_to_json(ByCosine()), '{"is": "Recipe"}', "[]"):
        with pytest.raises(DataError, match="the text does not describe a recipe"):
            recipe_from_json(text)
