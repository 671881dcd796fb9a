"""Attackers of a task: who they are, which rows they change, and how success is measured."""

import numpy as np
import pytest

from fedmerit.config.schema import TaskConfig, make_config
from fedmerit.core.attacks.rows import Backdoor, LabelFlip, make_probe, poisoned_rows, triggered
from fedmerit.core.seeds import generator
from fedmerit.core.types import Samples
from fedmerit.errors import DataError
from fedmerit.tasks.attackers import assign, find_attackers
from fedmerit.tasks.registry import make_client, make_federation, make_task

Y = np.array([0, 1, 2, 1])


def test_flipped_labels_by_hand() -> None:
    x = np.zeros((4, 2), np.float32)
    same, flipped = poisoned_rows(LabelFlip(), x, Y, 3, generator(0, "test"))
    assert flipped.tolist() == [2, 1, 0, 1]
    assert same is x
    probe = make_probe(LabelFlip(), Samples(x, Y, 3))
    assert probe.y.tolist() == [2, 0]  # the middle label flips to itself: no row of it can show success


def test_a_trigger_by_hand() -> None:
    image = triggered(np.zeros((1, 8, 8, 1), np.uint8))[0, :, :, 0]
    assert np.argwhere(image == 255).tolist() == [[6, 6], [6, 7], [7, 6], [7, 7]]
    assert triggered(np.zeros((1, 3), np.float32)).tolist() == [[0, 0, 3]]
    with pytest.raises(DataError, match="a backdoor needs images"):
        triggered(np.zeros((1, 3, 3)))
    probe = make_probe(Backdoor(), Samples(np.zeros((4, 3), np.float32), Y, 3))
    assert probe.y.tolist() == [0] * int((Y != 0).sum())
    assert set(probe.x[:, 2]) == {3}


def test_only_attackers_rows_change_and_nothing_else() -> None:
    settings = {"data": "digits", "clients": 10, "partition": "iid"}
    clean = make_federation(TaskConfig(**settings), 3)
    for attack in ({"kind": "label-flip", "share": 0.3}, {"kind": "backdoor", "share": 0.3}):
        config = TaskConfig(**settings, attack=attack)
        members = find_attackers(config, 10, 3).members
        federation = make_federation(config, 3)
        assert len(members) == 3
        assert federation.names == clean.names  # names do not tell
        assert np.array_equal(federation.test.x, clean.test.x)
        for client in range(10):
            same = np.array_equal(federation.samples(client).y, clean.samples(client).y)
            assert same == (client not in members)
        if attack["kind"] == "backdoor":
            changed = (federation.train.x != clean.train.x).any(axis=(1, 2, 3))
            assert (federation.train.y[changed] == 0).all()
            assert 0.3 < changed.sum() / sum(len(clean.samples(client)) for client in members) <= 0.6


def test_attackers_are_none_of_the_planted_kinds() -> None:
    config = TaskConfig(kinds={"poor": 0.5}, attack={"kind": "scale", "share": 0.5})
    assert not set(assign(20, config.kinds, 1)) & set(find_attackers(config, 20, 1).members)


@pytest.mark.parametrize("kind", ["scale", "backdoor"])
def test_a_node_that_loads_its_own_half_knows_what_it_is(kind: str) -> None:
    config = make_config({"task": {"clients": 4, "attack": {"kind": kind, "share": 0.5}}, "run": {"seed": 2}})
    task = make_task(config)
    for client in range(4):
        alone, within = make_client(config, client), task.client(client)
        assert alone.coalition == within.coalition
        assert (alone.coalition is not None) == (client in task.attackers.members)
        assert np.array_equal(alone.data.train.x, within.data.train.x)
