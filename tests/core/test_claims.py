"""Claims: what of a lie counts, and how little weight a lie gains: in a grid of liars, and as a law."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, CommandLine, small_task
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import (
    CB,
    DS,
    LC,
    LD,
    MW,
    Cap,
    Recipe,
    agnostic,
    device_aware,
    fedavg,
    federate,
    fedval,
    load_config,
    m2f,
    prioritized,
    qffl,
    robust,
    run_config,
)
from fedmerit.core.criteria.loss import LossPower
from fedmerit.core.criteria.table import DATA_RATIO, EQUAL, PARTICIPATION, REPORTED_COMPUTATION
from fedmerit.core.facts import find_fact
from fedmerit.core.host import Host
from fedmerit.core.models.grouping import OneGroup
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import Predictions
from fedmerit.core.round import Ran, aggregate_round, run_stages
from fedmerit.core.stages.claims import Claims
from fedmerit.core.state import Clock, History, RoundResult, State, View
from fedmerit.core.types import Cohort, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import (
    OWA,
    Choquet,
    Lexicographic,
    Prioritized,
    Product,
    Ranked,
    Score,
    WeightedMean,
)

HONEST: Mapping[str, list[float]] = {
    "samples": [40, 60, 80, 90, 100, 110, 120, 150, 200, 300],
    "labels": [2, 3, 4, 5, 5, 6, 7, 8, 9, 10],
    "coverage": [0.2, 0.3, 0.4, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
    "balance": [0.0, 0.0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5],
    "seconds": [1.0, 1.2, 1.4, 1.5, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0],
    "loss": [0.4, 0.5, 0.6, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0],
}
LIMITS = {"samples": 5000.0, "labels": 10.0}
ALL: dict[str, Callable[[], Recipe]] = {
    "fedavg": fedavg,
    "prioritized": lambda: prioritized(LD, DS, CB, normalise="max"),
    "by balance": lambda: prioritized(CB, LC, normalise="none"),
    "device_aware": lambda: device_aware(DS, LD, MW, normalise="max"),
    "m2f": lambda: m2f(PARTICIPATION, REPORTED_COMPUTATION, DATA_RATIO, grouping=OneGroup()),
    "fedval": lambda: fedval("accuracy"),
    "fedval, top half": lambda: fedval("accuracy", rank="top"),
    "qffl": lambda: qffl(q=2),
    "agnostic": lambda: agnostic(eta=1.0),
    "robust": robust,
}


SCORES: dict[str, Score] = {
    "lexicographic": Lexicographic(),
    "weighted mean": WeightedMean(),
    "owa": OWA((0.5, 0.3, 0.2)),
    "choquet": Choquet((0.4, 0.3, 0.3), ((0, 1, 0.2),)),
    "borda": Ranked(Product(), "borda"),
    "squared": Ranked(Prioritized(), "squared"),
    "exponential": Ranked(WeightedMean(), "exponential"),
}


def by_score(score: Score, normalise: Any = "max") -> Callable[[], Recipe]:
    return lambda: prioritized(LD, DS, CB, score=score, normalise=normalise)


GRID = ALL | {name: by_score(score) for name, score in SCORES.items()}
GRID |= {how: by_score(Prioritized(), how) for how in ("sum", "minmax")}
FACTORS = (1.05, 1.1, 1.19, 1.2, 1.5, 2, 3, 5, 10, 100, 1e3, 1e6, 1e300, 0.9, 0.5, 0.1, 0.0, float("inf"), -1.0)
LIES, CLIENTS = range(len(FACTORS) + 2), 20


def lie(fact: str, honest: float, case: int) -> float:
    """A multiple of the truth, as far as the server accepts it, the largest value that it accepts, or no number."""
    top = min(limit for limit in (find_fact(fact).high, LIMITS.get(fact), 1.7e308) if limit is not None)
    if case >= len(FACTORS):
        return [top, float("nan")][case - len(FACTORS)]
    factor = FACTORS[case]
    return factor if factor in (-1.0, float("inf")) else min(honest * factor, top)


def random_clients(spread: float) -> list[dict[str, float]]:
    """Clients whose facts differ by `spread`, the standard deviation of their logarithms."""
    factors = np.exp(spread * np.random.default_rng(7).normal(size=(CLIENTS, len(HONEST))))
    middle, top = np.median([*HONEST.values()], axis=1), np.max([*HONEST.values()], axis=1)
    return [dict(zip(HONEST, row.tolist(), strict=True)) for row in np.minimum(middle * factors, top)]


TABLES = {"alike": random_clients(0.05), "unlike": random_clients(0.8)}


def predict(models: Any) -> Predictions:
    x = np.random.default_rng(3).normal(size=(2, 40))
    return Predictions(np.arange(40) % 2, 2, {}, np.stack([(model @ x > 0).astype(np.int64) for model in models]))


def aggregated(recipe: Recipe, facts: list[dict[str, Any]], state: State | None = None) -> RoundResult:
    updates = np.random.default_rng(0).normal(size=(len(facts), 2)).astype(np.float32)
    clients = tuple(range(len(facts)))
    start = state or State(np.zeros(2, np.float32))
    host = replace(Host.of(CannedFleet(updates, facts)), predict=predict, limits=LIMITS)
    everybody = Assignment((start.model,), dict.fromkeys(clients, 0))
    replies = Replies(clients, Updates(updates), tuple(facts))
    return aggregate_round(start, recipe, replies, host, everybody, 0, Clock())


def with_stages(recipe: Recipe, *stages: Any, limits: tuple[Cap, ...] = ()) -> Recipe:
    names = {one.name for one in stages}
    return replace(recipe, stages=(*stages, *(one for one in recipe.stages if one.name not in names)), limits=limits)


def held(result: RoundResult) -> np.ndarray:
    """Each client's weight; 0 for those that were dropped."""
    weights, chosen = np.zeros(CLIENTS), result.moved.chosen
    if chosen is not None and chosen.weights is not None:
        weights[list(result.cohort.ids)] = chosen.weights.weights
    return weights


def honest_facts(recipe: Recipe) -> list[dict[str, Any]]:
    return [{name: HONEST[name][client] for name in recipe.client_facts} for client in range(10)]


@cache
def honest_rounds(name: str, table: str) -> tuple[Recipe, list[dict[str, Any]], RoundResult, RoundResult]:
    """A recipe with claims and a cap, its clients' true facts, and two rounds in which all tell them."""
    recipe = with_stages(GRID[name](), Claims(), limits=(Cap(2.0),))
    truth = [{fact: client[fact] for fact in recipe.client_facts} for client in TABLES[table]]
    first = aggregated(recipe, truth)
    return recipe, truth, first, aggregated(recipe, truth, first.state)


def grid_of_liars(name: str) -> list[tuple[str, str, tuple[str, ...], int, int, bool]]:
    """Recipe, table, facts that are false, lie, number of liars, whether they were honest in a round before."""
    facts = honest_rounds(name, "alike")[0].client_facts
    each = [(fact,) for fact in facts] + ([facts] if len(facts) > 1 else [])
    return list(product([name], TABLES, each, LIES, (1, 2, 4, 10), (False, True)))


def check_liars(name: str, table: str, facts: tuple[str, ...], case: int, liars: int, known: bool) -> None:
    """The clients with the least weight lie."""
    recipe, truth, first, second = honest_rounds(name, table)
    honest = held(second if known else first)
    lying = np.argsort(honest, kind="stable")[:liars]
    claimed = [dict(client) for client in truth]
    for client, fact in product(lying, facts):
        claimed[client][fact] = lie(fact, truth[client][fact], case)
    result = aggregated(recipe, claimed, first.state if known else None)
    equal = 1 / max(len(result.cohort.ids), 1)
    bound = np.maximum(2 * honest, equal) if known else np.full(CLIENTS, 2 * equal)
    assert np.isfinite(result.state.model).all()
    assert (held(result)[lying] <= bound[lying] + 1e-9).all(), (name, table, facts, case, liars, known)


def test_a_sample_of_the_grid_of_liars():
    cases = [case for name in GRID for case in grid_of_liars(name)]
    for place in np.random.default_rng(1).choice(len(cases), size=300, replace=False):
        check_liars(*cases[place])


@pytest.mark.long
@pytest.mark.parametrize("name", GRID)
def test_the_grid_of_liars(name: str):
    for case in grid_of_liars(name):
        check_liars(*case)


@pytest.mark.parametrize("name", ["fedval", "fedval, top half"])
def test_claims_and_cap_do_not_make_a_fact_matter_that_the_recipe_ignores(name: str):
    recipe, _, first, second = honest_rounds(name, "unlike")
    claimed = [{"samples": 3.0 if client % 2 else 4000.0} for client in range(CLIENTS)]
    for state, honest in ((None, first), (first.state, second)):
        assert held(aggregated(recipe, claimed, state)).tolist() == held(honest).tolist()


COLUMNS = st.lists(st.floats(0.1, 10), min_size=5, max_size=5)


@settings(deadline=None)
@given(COLUMNS, COLUMNS, COLUMNS, COLUMNS, st.sampled_from([*SCORES.values()]), st.integers(1, 5), st.floats(1, 5))
def test_no_lie_after_an_honest_round_gains_more_than_twice_the_share_or_an_equal_one(
    rows: list[float],
    losses: list[float],
    more_rows: list[float],
    more_loss: list[float],
    score: Any,
    liars: int,
    k: float,
):
    recipe = prioritized(DS, LossPower(lr=0.1), EQUAL, score=score)
    recipe = with_stages(recipe, Claims(k=k), limits=(Cap(4.0),))
    truth = [{"samples": 10 * size, "loss": loss} for size, loss in zip(rows, losses, strict=True)]
    claimed = [{"samples": 10 * size, "loss": loss} for size, loss in zip(more_rows, more_loss, strict=True)]
    before = aggregated(recipe, truth).state
    honest, lied = (held(aggregated(recipe, facts, before)) for facts in (truth, claimed[:liars] + truth[liars:]))
    assert (lied[:liars] <= np.maximum(2 * honest[:liars], 1 / len(rows)) + 1e-9).all()


@pytest.mark.parametrize("name", ALL)
def test_no_lie_ends_a_round_where_facts_count_as_reported(name: str):
    recipe = ALL[name]()
    truth = honest_facts(recipe)
    for fact in recipe.client_facts:
        for case in LIES:
            claimed = [dict(facts) for facts in truth]
            claimed[0][fact] = lie(fact, truth[0][fact], case)
            once = aggregated(recipe, claimed)
            again = aggregated(recipe, claimed, once.state)
            assert held(again).sum() == pytest.approx(1)


def cohort(samples: list[float], index: int = 1, **others: list[float]) -> Cohort:
    columns = {name: np.array(column, dtype=np.float64) for name, column in {"samples": samples, **others}.items()}
    return Cohort(index, tuple(range(len(samples))), Updates(np.zeros((len(samples), 2), np.float32)), columns)


def bounded(stage: Claims, claims: Cohort, past: History | None = None) -> tuple[dict[str, list[float]], Ran]:
    """The facts after claims are bounded, and what the stage left."""
    view = View.of(State(np.zeros(2, np.float32), past or History()), Host.of(CannedFleet(np.zeros((0, 2)), [])), 0)
    after, ran = run_stages((stage,), claims, view)
    return {name: column.tolist() for name, column in after.facts.items()}, ran


def test_a_claim_counts_as_k_medians_and_the_claim_is_kept():
    facts, ran = bounded(Claims(k=2), cohort([10, 10, 1000]))
    assert facts == {"samples": [10, 10, 20], "claimed:samples": [10, 10, 1000]}
    assert [(note.kind, note.client) for note in ran.notes] == [("claim-cut", 2)]
    assert "claims samples 1000, which counts as 20" in ran.notes[0].text
    assert "claimed:samples" not in bounded(Claims(k=9), cohort([1, 2, 3]))[0]


def test_a_clients_own_past_bounds_it_but_never_below_the_median():
    past = History(3, recent={"loss": {0: (0.1, 0.1, 0.2), 1: (0.9, 1.0)}})
    for claimed, counted in (([2.0, 2.0, 1.0], [2.0, 2.0, 1.0]), ([2.5, 2.0, 0.5], [2.0, 2.0, 0.5])):
        assert bounded(Claims(k=3), cohort([1, 1, 1], loss=claimed), past)[0]["loss"] == counted


def test_seconds_are_bounded_from_below_too():
    """The median is 6: k = 3 leaves 2 to 18, and of a client whose own median is 3 no less than 1 third of it, 1."""
    claims = cohort([1] * 5, seconds=[6.0, 6.0, 6.0, 0.5, 60.0])
    past = History(2, recent={"seconds": {3: (30.0,), 4: (1.0, 3.0, 5.0)}})
    assert bounded(Claims(k=3), claims)[0]["seconds"] == [6, 6, 6, 2, 18]
    assert bounded(Claims(k=3), claims, past)[0]["seconds"] == [6, 6, 6, 6, 9]


def test_a_fact_of_rows_may_differ_by_the_factor_itself():
    past = History(1, first={"samples": {0: 100.0, 1: 100.0, 2: 120.0, 3: 120.0}})
    facts, ran = bounded(Claims(k=9), cohort([120.0, 121.0, 100.0, 99.0]), past)
    assert facts["samples"] == [120, 100, 100, 120]
    assert facts["usual:samples"] == [100, 100, 120, 120]
    assert [note.text for note in ran.notes] == [
        f"claims samples {claim} after {first}; {first} counts, because facts of its rows are constant"
        for claim, first in ((121, 100), (99, 120))
    ]


def test_facts_of_rows_count_as_at_first():
    recipe = with_stages(fedavg(), Claims())
    state = aggregated(recipe, [{"samples": 100.0}] * 4).state
    assert state.history.first["samples"] == dict.fromkeys(range(4), 100.0)
    claims = [{"samples": 115.0}, {"samples": 180.0}, {"samples": 50.0}, {"samples": 100.0}]
    result = aggregated(recipe, claims, state)
    assert result.cohort.facts["samples"].tolist() == [115, 100, 100, 100]
    assert [(note.kind, note.client) for note in result.notes] == [("claim-changed", 1), ("claim-changed", 2)]


def test_a_claim_that_was_cut_does_not_look_changed_later():
    recipe, claims = with_stages(fedavg(), Claims(k=2)), [{"samples": float(n)} for n in (10, 10, 100)]
    later = aggregated(recipe, claims, aggregated(recipe, claims).state)
    assert [note.kind for note in later.notes] == ["claim-cut"]


@pytest.mark.parametrize(("limits", "weight"), [((), 1), ((Cap(),), 0.2)])
def test_a_median_of_zero_bounds_no_claim_and_the_cap_holds(limits: tuple[Cap, ...], weight: float):
    facts = [{"samples": 10.0, "balance": 1.0}, *({"samples": 100.0, "balance": 0.0} for _ in range(9))]
    recipe = with_stages(prioritized(CB, normalise="max"), Claims(), limits=limits)
    assert held(aggregated(recipe, facts))[0] == pytest.approx(weight)


def test_explain_says_which_claims_were_cut(cli: CommandLine, tmp_path: Path):
    changes = ["task.partition=dirichlet", "task.alpha=0.1", "task.clients=5", "run.workers=1", "run.fraction=1.0"]
    changes += ["run.rounds=1", "recipe.stages=[{name='claims', k=1}]"]
    run_config(load_config(None, changes), tmp_path / "run").ledger.close()
    answer = cli("explain", tmp_path / "run", "--round", "1", "--json").json
    assert answer["claims"][0]["kind"] == "claim-cut"
    cut = next(one for one in answer["clients"] if one["id"] == answer["claims"][0]["id"])
    assert cut["facts"]["claimed:samples"] > cut["facts"]["samples"]
    shown = cli("explain", tmp_path / "run", "--round", "1", "--client", str(cut["id"])).out
    assert "claims samples" in " ".join(shown.split())


def test_bounds_that_nobody_reaches_change_no_bit():
    task = small_task((5, 12, 20, 80))
    plain = federate(task, fedavg(), rounds=2, fraction=1.0)
    loose = federate(task, with_stages(fedavg(), Claims(k=100)), rounds=2, fraction=1.0)
    assert plain.model.tobytes() == loose.model.tobytes()
