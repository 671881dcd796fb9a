"""Rounds on a fleet without a folder, and a task on Flower's messages within this process."""

from __future__ import annotations

from typing import Any

from fedmerit import InTime, Recipe, Task, Uniform
from fedmerit.core.collect.attacked import with_attackers
from fedmerit.core.host import Fleet, Host
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.state import Record, State
from fedmerit.engine.loop import with_control
from fedmerit.flower import GridFleet, InProcessGrid, make_client_app


def on_flower(task: Task) -> GridFleet:
    """A fleet whose clients are nodes of an in-process grid."""
    app = make_client_app(lambda context: task.client(int(context.node_config["partition-id"])))
    clients = len(task.federation.names)
    fleet = GridFleet(InProcessGrid(app, clients), task.server(), attackers=task.attackers)
    fleet.meet(clients)
    return fleet


def run_rounds(
    fleet: Fleet,
    recipe: Recipe,
    rounds: int,
    selection: Any = Uniform(1.0),  # noqa: B008
    seed: int = 1,
    evaluate: bool = False,
    **more: Any,
) -> tuple[list[State], list[Record]]:
    """The states and records of some rounds from the learner's first model."""
    recipe = with_control(recipe, fleet.server)
    host, collect = Host.of(fleet, rounds), with_attackers(InTime(selection), fleet, recipe)
    state, _ = initial_state(recipe, host, fleet.server.first_model(1), seed)
    states, records = list[State](), list[Record]()
    for _ in range(rounds):
        state, record = run_round(state, recipe, host, collect, seed, evaluate, **more)
        states.append(state)
        records.append(record)
    return states, records
