"""A node that sleeps: the round ends at its deadline, the ledger names it, the next round does not wait for it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedmerit import Run, Task
from fedmerit.config.schema import dump_config, make_config
from fedmerit.flower import InProcessGrid, make_client_app
from fedmerit.flower.app import serve
from fedmerit.flower.messages import HELLO, TRAIN
from fedmerit.tasks.registry import make_task

SLEEPER = 1002


class SleepyGrid(InProcessGrid):
    """One node's answer to its second `train` message is held back until so many further rounds were asked for."""

    rounds_asleep = 2

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.asked: list[tuple[int, str]] = []
        self.held: str | None = None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        some = list(messages)
        names = list(super().push_messages(some))
        for name, message in zip(names, some, strict=True):
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.asked.append((node, kind))
            if self.asked.count((SLEEPER, TRAIN)) == 2 and (node, kind) == (SLEEPER, TRAIN):
                self.held, self.since = name, self.asked.count((1000, TRAIN))
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asleep = self.held is not None and self.asked.count((1000, TRAIN)) < self.since + self.rounds_asleep
        return super().pull_messages([name for name in message_ids if not (asleep and name == self.held)])


def played(
    folder: Path, run: dict[str, Any], clients: int = 4, kind: type[InProcessGrid] = SleepyGrid, **more: Any
) -> tuple[Run, Any, Task]:
    """Run a configuration on a grid in which one node may sleep."""
    task = {"clients": clients, "model": "digits-linear", **more.pop("task", {})}
    config = make_config({"task": task, "train": {"epochs": 1}, "run": {"fraction": 1.0, **run}, **more})
    made = make_task(config)
    grid = kind(make_client_app(lambda context: made.client(int(context.node_config["partition-id"]))), clients)
    serve(grid, dump_config(config), folder / "run")
    return Run.load(folder / "run"), grid, made


def test_the_round_goes_on_and_the_sleeper_comes_back(tmp_path: Path):
    done, grid, _ = played(tmp_path, {"rounds": 6, "wait": {"min_fraction": 0.5, "seconds": 0.4}})
    late = {event.round: event.text for event in done.events() if (event.kind, event.client) == ("left-out", 2)}
    assert late[2].startswith("late: no answer within")
    assert late[3] == "late: still busy with an earlier message"
    assert [one.id for one in done.explain(2)] == [0, 1, 3]
    assert [one.id for one in done.explain(6)] == [0, 1, 2, 3]  # it answered, and is asked again
    rounds_asked = grid.asked.count((SLEEPER, TRAIN))
    assert rounds_asked == 6 - len(late) + 1  # once in vain, and not while it slept
    assert grid.asked.count((SLEEPER, HELLO)) == 1


def test_a_node_that_scales_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    attack = {"attack": {"kind": "scale", "share": 0.17}}
    _, _, task = played(tmp_path, {"rounds": 5, "seed": 2}, 6, InProcessGrid, task=attack)
    (attacker,) = task.attackers.members
    named = [record.getMessage() for record in caplog.records if "is a suspect" in record.getMessage()]
    assert len(named) == 1
    assert named[0].startswith(f"fedmerit: client {attacker} is a suspect: in 3 of its 3 rounds: its update was ")
