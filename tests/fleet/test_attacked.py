"""Attackers in a run: every kind through the command line, the same bits on any fleet, after any stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import on_flower, run_rounds
from helpers import Answer, SoftmaxLearner, small_task

from fedmerit import DS, LD, Run, Task, fedavg, federate, load_task, prioritized, resume, run_config
from fedmerit.config.attack import KINDS, AttackConfig, make_coalitions
from fedmerit.config.schema import Config, make_config
from fedmerit.core.attacks import Attackers, draw_attackers
from fedmerit.core.state import Record
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, RunStopped
from fedmerit.fleet.client import collude
from fedmerit.fleet.local import LocalFleet

SIZES = (6, 40, 9, 25, 30, 14)
TINY = {"clients": 10, "partition": "iid", "model": "digits-linear"}


def settings(kind: str, **more: Any) -> dict[str, Any]:
    lies = {"facts": {"samples": 3}} if kind == "liar" else {}
    return {"kind": kind, "share": 0.4, **lies, **more}


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

    def stop(record: Record) -> None:
        if record.index == 2:
            raise RunStopped("in the middle")

    with pytest.raises(RunStopped):
        run_config(config(kind), tmp_path / "parts", stop)
    assert bits(resume(tmp_path / "parts")) == bits(whole)
    honest = config(kind).model_copy(update={"task": config(kind).task.model_copy(update={"attack": ()})})
    assert bits(run_config(honest, tmp_path / "honest")) != bits(whole)


@pytest.mark.parametrize("kind", ["gauss", "alie"])
def test_workers_and_spilled_updates_change_no_bit(kind: str, tmp_path: Path) -> None:
    one = run_config(config(kind), tmp_path / "one")
    two = run_config(config(kind, workers=2, memory=1e-6), tmp_path / "two")
    assert bits(one) == bits(two)


def planted(kind: str, **more: Any) -> tuple[Task, Attackers]:
    task = small_task(SIZES, (8,) * 6, SoftmaxLearner(lr=1.0, epochs=3))
    attackers = draw_attackers(make_coalitions([AttackConfig(**settings(kind, **more))]), 6, 5)
    return replace(task, attackers=attackers), attackers


def played(fleet: Any, rounds: int = 2) -> tuple[np.ndarray, list[Record]]:
    states, records = run_rounds(fleet, fedavg(), rounds, seed=5)
    return states[-1].model, records


@pytest.mark.parametrize("kind", ["sign-flip", "scale", "gauss", "free-rider", "liar", "alie", "ipm", "mimic"])
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


def test_a_liar_holds_what_it_claims() -> None:
    task, attackers = planted("liar")
    with LocalFleet(task) as fleet:
        record = played(fleet, 1)[1][0]
    sizes = np.array(
        [size * (3 if client in attackers.members else 1) for client, size in enumerate((6, 40, 9, 25, 30, 14))]
    )
    assert record.facts["samples"].tolist() == sizes.tolist()
    assert record.weights is not None
    assert record.weights.weights == pytest.approx(sizes / sizes.sum())


def test_two_coalitions_each_know_the_honest_alone() -> None:
    pair = [AttackConfig(kind="ipm", share=0.34, strength=1.0), AttackConfig(kind="mimic", share=0.34)]
    attackers = draw_attackers(make_coalitions(pair), 6, 1)
    rows = np.arange(12, dtype=np.float32).reshape(6, 2) ** 2
    replies = Replies(tuple(range(6)), Updates(rows.copy()), ({"samples": 1},) * 6)
    made = collude(replies, attackers, 1)
    honest = [client for client in range(6) if client not in attackers.members]
    for client in range(6):
        coalition = attackers.members.get(client)
        if coalition is None:
            assert made.updates.row(client).tolist() == rows[client].tolist()
        elif coalition == 0:
            assert made.updates.row(client) == pytest.approx(-rows[honest].mean(axis=0))
        else:
            assert made.updates.row(client).tolist() in rows[honest].tolist()


def test_without_an_honest_update_colluders_send_their_own() -> None:
    attackers = draw_attackers(make_coalitions([AttackConfig(kind="alie", share=1.0)]), 3, 1)
    rows = np.ones((3, 2), np.float32)
    replies = Replies((0, 1, 2), Updates(rows), ({},) * 3)
    assert collude(replies, attackers, 1).updates.row(0).tolist() == [1, 1]


def test_federate_knows_the_attackers_of_its_task() -> None:
    task = load_task("digits", seed=1, **TINY, attack={"kind": "ipm", "share": 0.4})
    honest = replace(task, attackers=Attackers())
    one, two = (federate(made, fedavg(), rounds=1, fraction=1.0) for made in (task, honest))
    assert one.model.tobytes() != two.model.tobytes()


def test_lies_that_nobody_asks_for_are_refused() -> None:
    task = load_task("digits", **TINY, attack={"kind": "liar", "share": 0.4, "facts": {"labels": 2}})
    with pytest.raises(ConfigError, match="asks clients for samples alone"):
        federate(task, fedavg(), rounds=1)
    assert federate(task, prioritized(LD, DS), rounds=1, fraction=0.3).accuracy > 0
