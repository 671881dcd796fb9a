"""Claims: what of a lie counts; whole grids of liars, in every recipe, never end a round nor take it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, CommandLine, small_task, stopped_and_resumed

from fedmerit import (
    CB,
    DS,
    LC,
    LD,
    MW,
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
from fedmerit.config.recipe import make_recipe
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, REPORTED_COMPUTATION
from fedmerit.core.facts import find_fact
from fedmerit.core.host import Host
from fedmerit.core.models.grouping import OneGroup
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import Predictions
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import Ran, aggregate_round, run_stages
from fedmerit.core.stages.claims import Anchor, Claims
from fedmerit.core.state import Clock, History, RoundResult, State, View
from fedmerit.core.types import Cohort, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.limits import Cap
from fedmerit.errors import ConfigError

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


def lies(fact: str, honest: float) -> list[Any]:
    top = min(limit for limit in (find_fact(fact).high, LIMITS.get(fact), 1.7e308) if limit is not None)
    return [*(honest * times for times in (2, 10, 100, 1e6, 1e300)), 0.0, float("nan"), float("inf"), -1.0, top]


def predict(models: Any) -> Predictions:
    number = len(list(models))
    return Predictions(np.array([0, 1]), 2, {}, np.tile([0, 1], (number, 1)))


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
    weights, chosen = np.zeros(10), result.moved.chosen
    if chosen is not None and chosen.weights is not None:
        weights[list(result.cohort.ids)] = chosen.weights.weights
    return weights


def honest_facts(recipe: Recipe) -> list[dict[str, Any]]:
    return [{name: HONEST[name][client] for name in recipe.client_facts} for client in range(10)]


@pytest.mark.parametrize("liars", [1, 2, 4])
@pytest.mark.parametrize("name", ALL)
def test_the_grid_of_liars(name: str, liars: int):
    recipe = with_stages(ALL[name](), Claims(), limits=(Cap(2.0, anchored=True),))
    truth = honest_facts(recipe)
    honest = aggregated(recipe, truth)
    shares = held(honest)
    for fact in recipe.client_facts:
        for case in range(10):
            claimed = [dict(facts) for facts in truth]
            for client in range(liars):
                claimed[client][fact] = lies(fact, truth[client][fact])[case]
            for before in (None, honest.state):  # lies at first sight, and of clients that are known
                result = aggregated(recipe, claimed, before)
                assert np.isfinite(result.state.model).all()
                bound = np.maximum(2 * shares, 2 / max(len(result.cohort.ids), 1))
                assert (held(result)[:liars] <= bound[:liars] + 1e-9).all(), (fact, claimed[0][fact])


@pytest.mark.parametrize("name", ALL)
def test_no_lie_ends_a_round_where_facts_count_as_reported(name: str):
    recipe = ALL[name]()
    truth = honest_facts(recipe)
    for fact in recipe.client_facts:
        for case in range(10):
            claimed = [dict(facts) for facts in truth]
            claimed[0][fact] = lies(fact, truth[0][fact])[case]
            once = aggregated(recipe, claimed)
            again = aggregated(recipe, claimed, once.state)
            assert held(again).sum() == pytest.approx(1)


@pytest.mark.parametrize(("fact", "recipe"), [("samples", "fedavg"), ("loss", "qffl"), ("seconds", "m2f")])
def test_claims_alone_leave_a_liar_few_times_its_share(fact: str, recipe: str):
    made = with_stages(ALL[recipe](), Claims(k=3))
    truth = honest_facts(made)
    claimed = [dict(facts) for facts in truth]
    claimed[4][fact] = 1e-9 if fact == "seconds" else 4000.0
    shares, lied = held(aggregated(made, truth)), held(aggregated(made, claimed))
    assert lied[4] <= (9 if recipe == "qffl" else 3.3) * shares[4]  # the square of a loss three times the median
    known = held(aggregated(made, claimed, aggregated(made, truth).state))
    assert known[4] <= lied[4] + 1e-12


def cohort(samples: list[float], index: int = 1, **others: list[float]) -> Cohort:
    columns = {name: np.array(column, dtype=np.float64) for name, column in {"samples": samples, **others}.items()}
    return Cohort(index, tuple(range(len(samples))), Updates(np.zeros((len(samples), 2), np.float32)), columns)


def bounded(stage: Claims, claims: Cohort, past: History | None = None) -> tuple[dict[str, list[float]], Ran]:
    """The facts after claims are bounded and anchors measured, and what the stages left."""
    view = View.of(State(np.zeros(2, np.float32), past or History()), Host.of(CannedFleet(np.zeros((0, 2)), [])), 0)
    after, ran = run_stages((stage, Anchor()), claims, view)
    return {name: column.tolist() for name, column in after.facts.items()}, ran


def test_a_claim_counts_as_k_medians_and_the_claim_is_kept():
    facts, ran = bounded(Claims(k=2), cohort([10, 10, 1000]))
    assert facts == {"samples": [10, 10, 20], "claimed:samples": [10, 10, 1000], "anchor": [10, 10, 20]}
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
    past = History(1, first={"samples": {0: 100.0, 1: 100.0, 2: 100.0, 3: 100.0}})
    facts, ran = bounded(Claims(k=9, change=2.0), cohort([200.0, 201.0, 50.0, 49.0]), past)
    assert facts["samples"] == facts["anchor"] == [200, 100, 50, 100]
    assert [note.text for note in ran.notes] == [
        f"claims samples {claim} after 100; 100 counts, because facts of its rows are constant" for claim in (201, 49)
    ]


def test_facts_of_rows_count_as_at_first_until_they_are_enrolled_anew():
    recipe = with_stages(fedavg(), Claims())
    state = aggregated(recipe, [{"samples": 100.0}] * 4).state
    assert state.history.first["samples"] == dict.fromkeys(range(4), 100.0)
    claims = [{"samples": 115.0}, {"samples": 180.0}, {"samples": 50.0}, {"samples": 100.0}]
    result = aggregated(recipe, claims, state)
    assert result.cohort.facts["samples"].tolist() == [115, 100, 100, 100]
    assert [(note.kind, note.client) for note in result.notes] == [("claim-changed", 1), ("claim-changed", 2)]
    enrolled = with_stages(fedavg(), Claims(enrolled=((1, 180.0),)))
    assert aggregated(enrolled, claims, state).cohort.facts["samples"].tolist() == [115, 180, 100, 100]
    with pytest.raises(ConfigError, match=r"claims\.enrolled needs pairs"):
        Claims(enrolled=((0, -1.0),))


def test_a_claim_that_was_cut_does_not_look_changed_later():
    recipe, claims = with_stages(fedavg(), Claims(k=2)), [{"samples": float(n)} for n in (10, 10, 100)]
    later = aggregated(recipe, claims, aggregated(recipe, claims).state)
    assert [note.kind for note in later.notes] == ["claim-cut"]


@pytest.mark.parametrize(("limits", "weight"), [((), 1), ((Cap(),), 0.2), ((Cap(anchored=True),), 2 * 10 / 910)])
def test_a_median_of_zero_bounds_nothing_and_the_anchor_holds_small_clients(limits: tuple[Cap, ...], weight: float):
    facts = [{"samples": 10.0, "balance": 1.0}, *({"samples": 100.0, "balance": 0.0} for _ in range(9))]
    recipe = with_stages(prioritized(CB, normalise="max"), Claims(), limits=limits)
    assert held(aggregated(recipe, facts))[0] == pytest.approx(weight)


def test_a_resumed_run_remembers_first_and_recent_claims(tmp_path: Path):
    changes = ["task.partition=dirichlet", "task.alpha=0.1", "task.clients=5", "run.workers=1", "run.fraction=0.6"]
    changes += ["recipe.name=qffl", "recipe.limits=['cap']", "recipe.stages=[{name='claims', k=1.5}]", "train.lr=0.5"]
    config = load_config(None, [*changes, "run.rounds=4"])
    whole, again = run_config(config, tmp_path / "whole"), stopped_and_resumed(config, tmp_path / "part")
    assert again.model.tobytes() == whole.model.tobytes()
    recipe = make_recipe(config.recipe)
    assert set(recipe.remembers) == {"samples", "loss"}
    assert part_from_json(part_to_json(recipe)) == recipe
    one, other = (run.ledger.history(recipe.remembers) for run in (again, whole))
    assert (one.first, one.recent) == (other.first, other.recent)
    assert any(event.kind == "claim-cut" for event in whole.events())


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
