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
    guarded,
    load_config,
    m2f,
    prioritized,
    qffl,
    run_config,
)
from fedmerit.config.recipes import RECIPES, make_recipe
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, REPORTED_COMPUTATION
from fedmerit.core.facts import find_fact
from fedmerit.core.objectives import Predictions
from fedmerit.core.recipe import ONE_GROUP
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import settle
from fedmerit.core.stages.claims import Claims, bound_claims
from fedmerit.core.state import Clock, Settled, State
from fedmerit.core.types import Cohort, History, Replies
from fedmerit.core.updates import Updates
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
    "m2f": lambda: m2f(PARTICIPATION, REPORTED_COMPUTATION, DATA_RATIO, grouping=ONE_GROUP),
    "fedval": lambda: fedval("accuracy"),
    "fedval, top half": lambda: fedval("accuracy", rank="top"),
    "qffl": lambda: qffl(q=2),
    "agnostic": lambda: agnostic(eta=1.0),
    "guarded": guarded,
}


def lies(fact: str, honest: float) -> list[Any]:
    top = min(limit for limit in (find_fact(fact).high, LIMITS.get(fact), 1.7e308) if limit is not None)
    return [*(honest * times for times in (2, 10, 100, 1e6, 1e300)), 0.0, float("nan"), float("inf"), -1.0, top]


def predict(models: Any) -> Predictions:
    number = len(list(models))
    return Predictions(np.array([0, 1]), 2, {}, np.tile([0, 1], (number, 1)))


def settled(recipe: Recipe, facts: list[dict[str, Any]], state: State | None = None) -> Settled:
    updates = Updates(np.random.default_rng(0).normal(size=(len(facts), 2)).astype(np.float32))
    replies = Replies(tuple(range(len(facts))), updates, tuple(facts))
    fleet = CannedFleet(np.zeros((len(facts), 2), np.float32), facts)
    start = state or State(np.zeros(2, np.float32))
    return settle(start, recipe, replies, judges=fleet, predict=predict, limits=LIMITS, seed=0, clock=Clock())


def held(result: Settled) -> np.ndarray:
    """Each client's weight; 0 for who was left out."""
    weights = np.zeros(10)
    if result.aggregation.candidate is not None:
        weights[list(result.cohort.ids)] = result.aggregation.candidate.weights.weights
    return weights


def honest_facts(recipe: Recipe) -> list[dict[str, Any]]:
    return [{name: HONEST[name][client] for name in recipe.client_facts} for client in range(10)]


@pytest.mark.parametrize("liars", [1, 2, 4])
@pytest.mark.parametrize("name", ALL)
def test_the_grid_of_liars(name: str, liars: int):
    recipe = replace(ALL[name](), cap=2.0, claims=Claims())
    truth = honest_facts(recipe)
    honest = settled(recipe, truth)
    shares = held(honest)
    for fact in recipe.client_facts:
        for case in range(10):
            told = [dict(facts) for facts in truth]
            for client in range(liars):
                told[client][fact] = lies(fact, truth[client][fact])[case]
            for before in (None, honest.state):  # lies at first sight, and of clients that are known
                result = settled(recipe, told, before)
                assert np.isfinite(result.state.model).all()
                bound = np.maximum(2 * shares, 2 / max(len(result.cohort.ids), 1))
                assert (held(result)[:liars] <= bound[:liars] + 1e-9).all(), (fact, told[0][fact])


@pytest.mark.parametrize("name", ALL)
def test_no_lie_ends_a_round_where_facts_count_as_told(name: str):
    recipe = ALL[name]()
    truth = honest_facts(recipe)
    for fact in recipe.client_facts:
        for case in range(10):
            told = [dict(facts) for facts in truth]
            told[0][fact] = lies(fact, truth[0][fact])[case]
            once = settled(recipe, told)
            again = settled(recipe, told, once.state)
            assert held(again).sum() == pytest.approx(1)


@pytest.mark.parametrize(("fact", "recipe"), [("samples", "fedavg"), ("loss", "qffl"), ("seconds", "m2f")])
def test_claims_alone_leave_a_liar_few_times_its_share(fact: str, recipe: str):
    made = replace(ALL[recipe](), claims=Claims(k=3))
    truth = honest_facts(made)
    told = [dict(facts) for facts in truth]
    told[4][fact] = 1e-9 if fact == "seconds" else 4000.0
    shares, lied = held(settled(made, truth)), held(settled(made, told))
    assert lied[4] <= (9 if recipe == "qffl" else 3.3) * shares[4]  # the square of a loss three times the median
    known = held(settled(made, told, settled(made, truth).state))
    assert known[4] <= lied[4] + 1e-12


def cohort(samples: list[float], index: int = 1, **others: list[float]) -> Cohort:
    columns = {name: np.array(column, dtype=np.float64) for name, column in {"samples": samples, **others}.items()}
    return Cohort(index, tuple(range(len(samples))), Updates(np.zeros((len(samples), 2), np.float32)), columns)


def test_a_claim_counts_as_k_medians_and_the_claim_is_kept():
    bounded, notes = bound_claims(Claims(k=2), cohort([10, 10, 1000]), History(), capped=True)
    assert bounded.facts["samples"].tolist() == [10, 10, 20]
    assert bounded.facts["claimed:samples"].tolist() == [10, 10, 1000]
    assert bounded.facts["anchor"].tolist() == [10, 10, 20]
    assert [(note.kind, note.client) for note in notes] == [("claim-cut", 2)]
    assert "claims samples 1000, which counts as 20" in notes[0].text


def test_a_past_of_its_own_bounds_a_client_but_never_below_the_median():
    past = History(3, recent={"loss": {0: (0.1, 0.1, 0.2), 1: (0.9, 1.0)}})
    bounded, _ = bound_claims(Claims(k=3), cohort([1, 1, 1], loss=[2.0, 2.0, 1.0]), past, capped=False)
    assert bounded.facts["loss"].tolist() == [2.0, 2.0, 1.0]
    bounded, _ = bound_claims(Claims(k=3), cohort([1, 1, 1], loss=[2.5, 2.0, 0.5]), past, capped=False)
    assert bounded.facts["loss"].tolist() == [2.0, 2.0, 0.5]
    assert "anchor" not in bounded.facts


def test_facts_of_rows_count_as_at_first_sight_until_they_are_enrolled_anew():
    state = settled(replace(fedavg(), claims=Claims()), [{"samples": 100.0}] * 4).state
    assert state.history.first["samples"] == dict.fromkeys(range(4), 100.0)
    told = [{"samples": 115.0}, {"samples": 180.0}, {"samples": 50.0}, {"samples": 100.0}]
    result = settled(replace(fedavg(), claims=Claims()), told, state)
    assert result.cohort.facts["samples"].tolist() == [115, 100, 100, 100]
    assert [(note.kind, note.client) for note in result.notes] == [("claim-changed", 1), ("claim-changed", 2)]
    enrolled = replace(fedavg(), claims=Claims(enrolled=((1, 180.0),)))
    assert settled(enrolled, told, state).cohort.facts["samples"].tolist() == [115, 180, 100, 100]


def test_a_claim_that_was_cut_does_not_look_changed_later():
    recipe = replace(fedavg(), claims=Claims(k=2))
    first = settled(recipe, [{"samples": float(n)} for n in (10, 10, 100)])
    later = settled(recipe, [{"samples": float(n)} for n in (10, 10, 100)], first.state)
    assert [note.kind for note in later.notes] == ["claim-cut"]


def test_a_median_of_zero_bounds_nothing_and_the_anchor_holds_small_clients():
    facts = [{"samples": 10.0, "balance": 1.0}, *({"samples": 100.0, "balance": 0.0} for _ in range(9))]
    recipe = prioritized(CB, normalise="max")
    assert held(settled(recipe, facts))[0] == 1
    assert held(settled(replace(recipe, cap=2.0), facts))[0] == pytest.approx(0.2)
    assert held(settled(replace(recipe, cap=2.0, claims=Claims()), facts))[0] == pytest.approx(2 * 10 / 910)
    assert held(settled(replace(recipe, cap=2.0, claims=Claims(anchor=False)), facts))[0] == pytest.approx(0.2)


@pytest.mark.parametrize("values", [{"k": 0.5}, {"k": float("nan")}, {"change": 0.9}, {"enrolled": ((0, -1.0),)}])
def test_bounds_that_are_none_are_refused(values: dict[str, Any]):
    with pytest.raises(ConfigError, match="claims"):
        Claims(**values)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_claims_by_name(name: str):
    priority = {"prioritized": "DS", "device_aware": "DS,LD", "fedval": "validated:accuracy"}.get(name)
    base = [f"recipe.name={name}", *([f"recipe.priority={priority}"] if priority else [])]
    assert make_recipe(load_config(None, [*base, "recipe.claims=median"]).recipe).claims == Claims()
    assert make_recipe(load_config(None, [*base, "recipe.claims=as-told"]).recipe).claims is None
    table = "recipe.claims={k=4, change=2.0, enrolled=[[0, 12.0]], anchor=false}"
    made = make_recipe(load_config(None, [*base, table]).recipe)
    assert made.claims == Claims(4, 2.0, ((0, 12.0),), anchor=False)
    assert part_from_json(part_to_json(made)) == made


def test_a_key_that_as_told_does_not_take_is_refused():
    with pytest.raises(ConfigError, match=r"as-told does not take 'k'"):
        load_config(None, ["recipe.claims={name='as-told', k=3}"])


def test_a_resumed_run_remembers_first_and_recent_claims(tmp_path: Path):
    recipe = replace(qffl(q=2), cap=2.0, claims=Claims(k=1.5))
    changes = ["task.partition=dirichlet", "task.alpha=0.1", "task.clients=5", "run.workers=1", "run.fraction=0.6"]
    changes += ["recipe.name=qffl", "recipe.strength=2.0", "recipe.cap=2.0", "recipe.claims={k=1.5}", "train.lr=0.5"]
    config = load_config(None, [*changes, "run.rounds=4"])
    whole, again = run_config(config, tmp_path / "whole"), stopped_and_resumed(config, tmp_path / "part")
    assert again.model.tobytes() == whole.model.tobytes()
    names = recipe.remembered_facts
    assert set(names) == {"samples", "loss"}
    assert again.ledger.history(names) == whole.ledger.history(names)
    assert any(event.kind == "claim-cut" for event in whole.events())


def test_explain_says_which_claims_were_cut(cli: CommandLine, tmp_path: Path):
    changes = ["task.partition=dirichlet", "task.alpha=0.1", "task.clients=5", "run.workers=1", "run.fraction=1.0"]
    run_config(load_config(None, [*changes, "run.rounds=1", "recipe.claims={k=1}"]), tmp_path / "run").ledger.close()
    told = cli("explain", tmp_path / "run", "--round", "1", "--json").json
    assert told["claims"]
    assert told["claims"][0]["kind"] == "claim-cut"
    assert not told["left_out"]
    cut = next(one for one in told["clients"] if one["id"] == told["claims"][0]["id"])
    assert cut["facts"]["claimed:samples"] > cut["facts"]["samples"]
    shown = cli("explain", tmp_path / "run", "--round", "1", "--client", str(cut["id"])).out
    assert "claims samples" in " ".join(shown.split())


def test_as_told_is_what_it_was():
    task = small_task((5, 12, 20, 80))
    plain = federate(task, fedavg(), rounds=2, fraction=1.0)
    loose = federate(task, replace(fedavg(), claims=Claims(k=100)), rounds=2, fraction=1.0)
    assert plain.model.tobytes() == loose.model.tobytes()


def test_seconds_are_bounded_from_below_too():
    """The median is 6: k = 3 leaves 2 to 18, and of a client whose own median is 3 no less than 1 third of it, 1."""
    told = cohort([1] * 5, seconds=[6.0, 6.0, 6.0, 0.5, 60.0])
    bounded, _ = bound_claims(Claims(k=3), told, History(), capped=False)
    assert bounded.facts["seconds"].tolist() == [6, 6, 6, 2, 18]
    past = History(2, recent={"seconds": {3: (30.0,), 4: (1.0, 3.0, 5.0)}})
    bounded, _ = bound_claims(Claims(k=3), told, past, capped=False)
    assert bounded.facts["seconds"].tolist() == [6, 6, 6, 6, 9]


def test_a_fact_of_rows_may_differ_by_the_factor_itself():
    past = History(1, first={"samples": {0: 100.0, 1: 100.0, 2: 100.0, 3: 100.0}})
    told = cohort([200.0, 201.0, 50.0, 49.0])
    bounded, notes = bound_claims(Claims(k=9, change=2.0), told, past, capped=True)
    assert bounded.facts["samples"].tolist() == [200, 100, 50, 100]
    assert bounded.facts["anchor"].tolist() == [200, 100, 50, 100]
    assert [note.text for note in notes] == [
        f"claims samples {said} after 100, which counts: facts of its rows do not change" for said in (201, 49)
    ]
    assert bound_claims(None, told, past, capped=True) == (told, ())
    assert "claimed:samples" not in bound_claims(Claims(k=9), cohort([1, 2, 3]), History(), capped=False)[0].facts
