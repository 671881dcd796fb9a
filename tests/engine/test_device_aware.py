"""The device-aware recipe on real clients: what is asked, how often, and that batch, lazy and a resume agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import SoftmaxLearner, random_split, small_task, stopped_and_resumed

from fedmerit import (
    DS,
    LD,
    MW,
    Prioritized,
    Recipe,
    Run,
    Task,
    WeightedMean,
    device_aware,
    federate,
    run_config,
)
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.search.backtracking import Backtracking, not_worse
from fedmerit.core.search.search import Weighting
from fedmerit.core.state import State
from fedmerit.core.types import Evaluation
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet

SIZES = (4, 40, 9, 25, 60, 14, 8, 31)


def task(validation: Sequence[int] = (5,) * 8, tests: Sequence[int] = (6,) * 8) -> Task:
    """Clients of unlike sizes, with validation rows."""
    made = small_task(SIZES, tests, SoftmaxLearner(lr=3.0, epochs=8))
    return Task(replace(made.federation, validation=random_split(validation, 3)), made.learner)


def recipe(normalise: str = "max", **settings: Any) -> Recipe:
    return device_aware(DS, LD, MW, search=Backtracking(**settings), normalise=normalise)


def run(rounds: int = 12, made: Task | None = None, workers: int = 1, **settings: Any) -> Run:
    return federate(made or task(), recipe(**settings), rounds=rounds, fraction=0.5, seed=2, workers=workers)


def columns(run: Run, *names: str) -> list[list[Any]]:
    return [[row[name] for name in names] for row in run.ledger.rounds()]


@dataclass
class Counting:
    """A fleet that notes each exchange: on which rows, how many models, how many clients."""

    fleet: LocalFleet
    asked: list[tuple[str, int, int]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def evaluate(self, models: Any, on: str = "test", clients: Any = None, **asked: Any) -> Sequence[Evaluation]:
        self.asked.append((on, len(models), len(self.fleet.server.names) if clients is None else len(clients)))
        return self.fleet.evaluate(models, on, clients, **asked)  # type: ignore[arg-type]


def asked_in(rounds: int, **settings: Any) -> list[list[tuple[str, int, int]]]:
    made, exchanges = recipe(**settings), []
    with LocalFleet(task()) as fleet:
        state = State(fleet.server.first_model(1))
        for _ in range(rounds):
            counting = Counting(fleet)
            state, record = run_round(state, made, Host.of(counting), InTime(Uniform(0.5)), 2)  # type: ignore[arg-type]
            exchanges.append(counting.asked)
            searched = counting.asked if settings.get("adjust_on") == "test" else counting.asked[:-1]
            assert record.search is not None
            assert record.search.exchanges == len(searched)
            assert record.search.models_sent == sum(models for _, models, _ in searched)
            assert record.search.tests == sum(models * clients for _, models, clients in searched)
    return exchanges


def test_a_search_tries_other_orders_and_settles_on_some():
    done = run()
    taken = [row["weighting"] for row in done.ledger.rounds()]
    assert len(set(taken)) > 1  # the data are such that the first order does not always do
    assert all(" > ".join(row["priority"]) == row["weighting"] for row in done.ledger.rounds())
    for row in done.ledger.rounds():
        tried = done.ledger.candidates(row["round"])
        assert [one.weighting for one in tried if one.chosen] == [row["weighting"]]
        assert {name for one in tried for name in (one.weighting, *one.same)} == set(recipe().weightings)


@pytest.mark.parametrize("adjust_on", ["validation", "test"])
@pytest.mark.parametrize("orders", ["kendall", "lexicographic", "random", "all"])
def test_batch_and_lazy_come_to_the_same_bits(orders: str, adjust_on: str):
    batch, lazy = (run(orders=orders, adjust_on=adjust_on, exchange=exchange) for exchange in ("batch", "lazy"))
    assert batch.model.tobytes() == lazy.model.tobytes()
    assert columns(batch, "weighting", "quality", "accuracy") == columns(lazy, "weighting", "quality", "accuracy")
    asked = [[row["exchanges"] for row in done.ledger.rounds()] for done in (batch, lazy)]
    assert max(asked[0]) <= (1 if orders == "all" else 2)
    assert sum(asked[0]) < sum(asked[1])


def test_workers_do_not_change_the_bits():
    assert run(workers=2, judges=3).model.tobytes() == run(judges=3).model.tobytes()


def test_the_order_taken_is_not_worse_than_before_or_the_best_tried():
    done = run()
    before = None
    for row in done.ledger.rounds():
        tried = {one.weighting: one.quality for one in done.ledger.candidates(row["round"]) if one.quality is not None}
        assert tried[row["weighting"]] == row["quality"]
        if before is not None:
            assert row["quality"] >= before or row["quality"] == max(tried.values())
        before = row["quality"]


def test_best_so_far_searches_no_less_than_the_last():
    last, best = (
        sum(row["evaluations"] for row in run(reference=name).ledger.rounds()) for name in ("last", "best_so_far")
    )
    assert best >= last


def test_the_first_round_asks_about_the_first_model_too():
    first, second = asked_in(2, orders="all", tolerance=0.0)
    models = first[0][1]
    assert first == [("validation", models, 8), ("test", 1, 8)]
    assert 2 <= models <= 7
    assert second[0][1] <= 6  # its own accuracy is known by now


def test_on_the_test_rows_what_the_search_learned_is_not_asked_again():
    for exchanges in asked_in(4, adjust_on="test", orders="all"):
        assert len(exchanges) == 1
        assert exchanges[0][0] == "test"


def test_orders_that_weigh_alike_are_not_asked_about():
    done = run(tolerance=1.0)
    assert columns(done, "exchanges", "evaluations", "quality") == [[0, 0, None]] * 12
    assert {row["weighting"] for row in done.ledger.rounds()} == {"DS > LD > MW"}
    assert all(len(done.ledger.candidates(row["round"])[0].same) == 5 for row in done.ledger.rounds())


def test_judges_are_few_and_more_are_asked_only_while_undecided():
    exchanges = asked_in(6, judges=2, confidence=0.5)
    clients = [clients for asked in exchanges for on, _, clients in asked if on == "validation"]
    assert min(clients) == 2
    assert all(count in (2, 4) for count in clients)  # 2, then 2 more, then 4 more
    assert run(judges=2).events() == run(judges=2).events()


def test_one_criterion_has_nothing_to_search_for():
    made = device_aware(DS, search=Backtracking())
    done = federate(task(), made, rounds=2, fraction=0.5)
    assert [event.text for event in done.events() if event.kind == "no-search"] == [
        "one criterion has only one order: there is nothing to search for"
    ] * 2
    assert columns(done, "exchanges") == [[0], [0]]


def test_scores_and_normalisations_can_be_searched():
    among = (
        Weighting(("DS", "LD", "MW"), Prioritized(), "sum"),
        Weighting(("LD",), Prioritized(), "max"),
        Weighting(("DS", "LD", "MW"), WeightedMean((0.2, 0.2, 0.6)), "max"),
    )
    done = run(among=among, orders="all")
    labels = ["DS > LD > MW", "DS > LD > MW, sum", "LD", f"DS > LD > MW by {among[2].score!r}"]
    seen = {
        name
        for row in done.ledger.rounds()
        for one in done.ledger.candidates(row["round"])
        for name in (one.weighting, *one.same)
    }
    assert seen == set(labels)
    assert len({row["weighting"] for row in done.ledger.rounds()}) > 1


def test_clients_without_rows_do_not_count():
    some = (5, 0, 0, 9, 0, 7, 0, 0)
    done = run(made=task(validation=some))
    row = done.ledger.rounds()[-1]
    assert row["quality"] == pytest.approx(round(row["quality"] * sum(some)) / sum(some))


@pytest.mark.parametrize(
    ("validation", "tests", "settings", "message"),
    [
        ((0,) * 8, (6,) * 8, {}, r"task\.validation = 0\.1"),
        ((5,) * 8, (0,) * 8, {"adjust_on": "test"}, "needs test rows of the clients"),
    ],
)
def test_what_cannot_be_asked_is_said_before_the_run(validation, tests, settings, message):
    with pytest.raises(ConfigError, match=message):
        run(made=task(validation, tests), **settings)


def answers(gains: Sequence[int], size: int = 10) -> tuple[Evaluation, Evaluation]:
    sizes = np.full(len(gains), size)
    before = np.full(len(gains), size // 2)
    return Evaluation(before + np.array(gains), sizes), Evaluation(before, sizes)


def test_judges_decide_where_the_difference_is_clear():
    assert not_worse(*answers([2, 2, 3, 2, 2]), 0.1, 0.95) is True
    assert not_worse(*answers([-2, -2, -3, -2, -2]), 0.1, 0.95) is False
    assert not_worse(*answers([3, -3, 2, -2, 1]), 0.1, 0.95) is None
    assert not_worse(*answers([0, 0, 0]), 0.1, 0.95) is True
    assert not_worse(*answers([1]), 0.1, 0.95) is None
    nobody = Evaluation(np.zeros(3, int), np.zeros(3, int))
    assert not_worse(nobody, nobody, 0.5, 0.95) is None


def test_when_everybody_was_asked_it_is_never_undecided():
    assert not_worse(*answers([3, -3, 2, -2, 0]), 1.0, 0.95) is True
    assert not_worse(*answers([3, -3, 2, -3, 0]), 1.0, 0.95) is False
    nobody = Evaluation(np.zeros(3, int), np.zeros(3, int))
    assert not_worse(nobody, nobody, 1.0, 0.95) is False


def config(**search: Any) -> Config:
    return make_config(
        {
            "task": {
                "data": "digits",
                "partition": "dirichlet",
                "clients": 12,
                "validation": 0.2,
                "model": "digits-linear",
            },
            "train": {"lr": 0.5, "epochs": 2},
            "recipe": {"name": "device_aware", "criteria": "LD > DS > MW", "normalise": "max", "search": search},
            "run": {"rounds": 7, "fraction": 0.5, "seed": 3, "workers": 1},
        }
    )


@pytest.mark.parametrize("search", [{}, {"reference": "best_so_far"}, {"orders": "random", "judges": 4}])
def test_a_resumed_search_goes_on_as_if_never_stopped(tmp_path: Path, search: dict[str, Any]):
    whole = run_config(config(**search), tmp_path / "whole")
    again = stopped_and_resumed(config(**search), tmp_path / "stopped", 4)
    names = ("weighting", "quality", "exchanges", "evaluations", "accuracy")
    assert columns(again, *names) == columns(whole, *names)
    assert again.model.tobytes() == whole.model.tobytes()
