"""Attackers in a run: every kind through the command line, the same bits on any fleet, after any stop."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import on_flower, run_rounds
from helpers import Answer, ProbabilisticSoftmax, small_task, stopped_and_resumed

from fedmerit import DS, LD, Run, Task, fedavg, federate, load_task, prioritized, run_config, standalone
from fedmerit.config.attack import KINDS, AttackConfig, make_coalitions
from fedmerit.config.schema import Config, make_config
from fedmerit.core.attacks.adaptive import OptimalIPM, RuleAware
from fedmerit.core.attacks.attack import Attackers, draw_attackers
from fedmerit.core.collect.attacked import with_attackers
from fedmerit.core.collect.collect import InTime, Poisson, Uniform
from fedmerit.core.host import Host
from fedmerit.core.recipes import private
from fedmerit.core.seeds import Draws
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.state import History, Record, View
from fedmerit.core.types import Download, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import scale
from fedmerit.engine.preflight import check_attackers
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet

SIZES = (6, 40, 9, 25, 30, 14)
PRIVATE = prioritized(DS, normalise=scale({"DS": 50}))
TINY = {"clients": 10, "partition": "iid", "model": "digits-linear"}


def settings(kind: str, **more: Any) -> dict[str, Any]:
    lies = {"facts": {"samples": 3}} if kind == "liar" else {}
    wakes = {"from_round": 2} if kind == "sleeper" else {}
    return {"kind": kind, "share": 0.4, **lies, **wakes, **more}


def config(kind: str, rounds: int = 3, **run: Any) -> Config:
    values = {"rounds": rounds, "fraction": 0.6, "seed": 3, "workers": 1}
    return make_config({"task": TINY | {"attack": settings(kind)}, "train": {"epochs": 1}, "run": values | run})


def bits(run: Run) -> bytes:
    return run.model.tobytes() + repr([run.explain(number) for number in (1, 2, 3)]).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_through_the_command_line_stopped_and_resumed(
    kind: str, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    text = "\n".join(f"{key} = {value!r}" for key, value in settings(kind).items() if key != "facts")
    facts = "facts = { samples = 3 }" if kind == "liar" else ""
    path = tmp_path / "attack.toml"
    path.write_text(
        f'[task]\nclients = 10\npartition = "iid"\nmodel = "digits-linear"\n[task.attack]\n{text}\n{facts}\n'
        "[train]\nepochs = 1\n[run]\nrounds = 3\nfraction = 0.6\nseed = 3\nworkers = 1\n"
    )
    done = cli("run", path, "--out", tmp_path / "whole", "--json")
    assert done.code == 0, done.err
    whole = Run.load(tmp_path / "whole")

    assert bits(stopped_and_resumed(config(kind), tmp_path / "parts")) == bits(whole)
    honest = config(kind).model_copy(update={"task": config(kind).task.model_copy(update={"attack": ()})})
    assert bits(run_config(honest, tmp_path / "honest")) != bits(whole)


@pytest.mark.parametrize("kind", ["gauss", "alie", "pooled-backdoor", "rule-aware"])
def test_workers_and_spilled_updates_change_no_bit(kind: str, tmp_path: Path) -> None:
    one = run_config(config(kind), tmp_path / "one")
    two = run_config(config(kind, workers=2, memory=1e-6), tmp_path / "two")
    assert bits(one) == bits(two)


def planted(kind: str, **more: Any) -> tuple[Task, Attackers]:
    task = small_task(SIZES, (8,) * 6, ProbabilisticSoftmax(lr=1.0, epochs=3))
    attackers = draw_attackers(make_coalitions([AttackConfig(**settings(kind, **more))]), 6, 5)
    return replace(task, attackers=attackers), attackers


def played(fleet: Any, rounds: int = 2) -> tuple[np.ndarray, list[Record]]:
    states, records = run_rounds(fleet, fedavg(), rounds, seed=5)
    return states[-1].model, records


@pytest.mark.parametrize(
    "kind", ["sign-flip", "scale", "gauss", "free-rider", "liar", "alie", "ipm", "mimic", "opt-ipm"]
)
def test_flowers_nodes_attack_with_the_same_bits(kind: str) -> None:
    task, _ = planted(kind)
    with LocalFleet(task) as local:
        ours, records = played(local)
    theirs, others = played(on_flower(task))
    assert ours.tobytes() == theirs.tobytes()
    assert [record.facts["samples"].tolist() for record in records] == [
        record.facts["samples"].tolist() for record in others
    ]


def test_before_its_round_an_attacker_is_honest() -> None:
    models = {}
    for start in (1, 2, 3):
        task, _ = planted("sign-flip", from_round=start)
        with LocalFleet(task) as fleet:
            models[start] = played(fleet)[0].tobytes()
    with LocalFleet(replace(task, attackers=Attackers())) as fleet:
        assert models[3] == played(fleet)[0].tobytes()
    assert len(set(models.values())) == 3


class Sends:
    """A collector and a fleet whose clients send these rows."""

    server = small_task((4,) * 6, (4,) * 6).server()

    def __init__(self, rows: np.ndarray, attackers: Attackers) -> None:
        self.rows, self.attackers = rows, attackers

    def select(self, view: Any) -> dict[int, None]:
        return dict.fromkeys(range(1, 1 + len(self.rows)))

    def collect(self, *asked: Any) -> Replies:
        ids = tuple(range(len(self.rows)))
        return Replies(ids, Updates(self.rows.copy()), ({"samples": 1},) * len(ids))


def colluded(rows: np.ndarray, *attacks: dict[str, Any], clients: int = 0) -> tuple[Updates, Attackers, dict[int, Any]]:
    """What clients with these updates send, which of them attack, and whom the second round asks of 20."""
    configs = [AttackConfig(**attack) for attack in attacks]
    attackers = draw_attackers(make_coalitions(configs), clients or len(rows), 1)
    sends: Any = Sends(rows, attackers)
    collect = with_attackers(sends, sends, fedavg())
    host = Host(sends, tuple(map(str, range(20))))
    view = View(1, np.zeros(rows.shape[1], np.float32), History(), host, Draws(5, 1))
    downloads = dict.fromkeys(range(len(rows)), Download(view.model))
    return collect.collect(downloads, (), view).updates, attackers, dict(collect.select(replace(view, index=2)))


def test_two_coalitions_each_know_the_honest_alone() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2) ** 2
    pair = [{"kind": "ipm", "share": 0.34, "strength": 1.0}, {"kind": "mimic", "share": 0.34}]
    updates, attackers, _ = colluded(rows, *pair)
    honest = [client for client in range(6) if client not in attackers.members]
    for client in range(6):
        coalition = attackers.members.get(client)
        if coalition is None:
            assert updates.row(client).tolist() == rows[client].tolist()
        elif coalition == 0:
            assert updates.row(client) == pytest.approx(-rows[honest].mean(axis=0))
        else:
            assert updates.row(client).tolist() in rows[honest].tolist()


def test_without_an_honest_update_colluders_send_their_own() -> None:
    updates, _, _ = colluded(np.ones((3, 2), np.float32), {"kind": "alie", "share": 1.0})
    assert updates.row(0).tolist() == [1, 1]


def test_a_fixed_draw_has_the_same_number_of_attackers_in_every_round() -> None:
    pair = [{"kind": "sign-flip", "share": 0.4, "draw": "fixed"}, {"kind": "mimic", "share": 0.2, "draw": "fixed"}]
    _, attackers, drawn = colluded(np.ones((5, 2), np.float32), *pair, clients=20)
    assert sorted(attackers.members.get(client, -1) for client in drawn) == [-1, -1, 0, 0, 1]
    with pytest.raises(ConfigError, match="same `draw`"):
        make_coalitions([AttackConfig(kind="scale", draw="fixed"), AttackConfig(kind="gauss")])


@pytest.mark.parametrize("kind", ["opt-ipm", "rule-aware"])
def test_trying_the_rule_leaves_no_trace(kind: str) -> None:
    """An attacker that sends its own update after all gives the bits of an honest one."""
    task, _ = planted(kind)
    states = []
    for made in (task, replace(task, attackers=Attackers())):
        with LocalFleet(made) as fleet, pytest.MonkeyPatch.context() as patch:
            for attack in (OptimalIPM, RuleAware):
                patch.setattr(attack, "collude", lambda self, scene: [scene.peek(-scene.own), scene.own][1])
            states.append(played(fleet)[0].tobytes())
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("kind", "recipe", "message"),
    [
        ("opt-alie", standalone(), "one shared model and no"),
        ("opt-ipm", private(PRIVATE, PrivateSum(1.0, fraction=0.5)), "one shared model"),
        ("eraser", fedavg(), "a row for each class"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(kind: str, recipe: Any, message: str) -> None:
    task, _ = planted(kind)
    with pytest.raises(ConfigError, match=message):
        federate(task, recipe, rounds=1, selection=Poisson(0.5))


@pytest.mark.parametrize("kind", ["rule-aware", "pooled-backdoor", "split-trigger"])
def test_rows_of_flowers_nodes_are_not_pooled(kind: str) -> None:
    task, attackers = planted(kind)
    with pytest.raises(ConfigError, match=f"{kind} uses the rows of all attackers, which stay on their Flower nodes"):
        check_attackers(attackers, fedavg(), task.server(), InTime(Uniform()), 5, rows_here=False)
    with pytest.raises(ConfigError, match="cannot be simulated here"):
        played(on_flower(task))


def test_an_attack_after_the_last_round_is_refused() -> None:
    task = load_task("digits", **TINY, attack={"kind": "sleeper", "share": 0.4})
    with pytest.raises(ConfigError, match=r"begins in round 20, after the last \(5\)"):
        federate(task, fedavg(), rounds=5)


def test_a_fixed_draw_needs_a_fixed_number_of_clients() -> None:
    task = load_task("digits", **TINY, attack={"kind": "scale", "share": 0.4, "draw": "fixed"})
    with pytest.raises(ConfigError, match="needs a fixed number of clients per round"):
        federate(task, fedavg(), rounds=1, selection=Poisson(0.5))


def test_lies_that_nobody_asks_for_are_refused() -> None:
    task = load_task("digits", **TINY, attack={"kind": "liar", "share": 0.4, "facts": {"labels": 2}})
    with pytest.raises(ConfigError, match="asks clients for samples alone"):
        federate(task, fedavg(), rounds=1)
    assert federate(task, prioritized(LD, DS), rounds=1, fraction=0.3).accuracy > 0
