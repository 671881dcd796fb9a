"""Hostile SuperNodes on a secure deployment: each is refused or left out, and the others get the right bits."""

import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from flwr.app import Message

from fedmerit import Run
from fedmerit.config.schema import dump_config, make_config
from fedmerit.flower import InProcessGrid, make_client_app
from fedmerit.flower.admission import Enrolment, read_enrolment, write_enrolment
from fedmerit.flower.app import serve
from fedmerit.flower.loopback import Loopback, loopback, partitions
from fedmerit.flower.messages import TRAIN
from fedmerit.flower.start import on_superlink
from fedmerit.tasks.registry import make_task

pytestmark = pytest.mark.long
NODES, SHORT, MUTE = 5, 3, 4
DEADLINE = 150.0
HOSTILE = {
    SHORT: """
from flwr.app import Array, ArrayRecord
import fedmerit.flower.clientapp as clientapp
honest = clientapp.train_client
def train_client(*asked):
    reply = honest(*asked)
    junk = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=b"PK\\x03\\x04" + bytes(8))
    reply["arrays"] = ArrayRecord({"update": junk})
    return reply
clientapp.train_client = train_client
""",
    MUTE: """
import time
import fedmerit.flower.clientapp as clientapp
clientapp.train_client = lambda *asked: time.sleep(3600)
""",
}
"""What a hostile node's Python runs when it starts."""


def start_node(made: Loopback, place: int, folder: Path) -> None:
    """A registered node; a hostile one with code of its own in it."""
    path = os.environ.get("PYTHONPATH", "")
    if place in HOSTILE:
        own = folder / f"hostile{place}"
        own.mkdir()
        (own / "sitecustomize.py").write_text(HOSTILE[place])
        path = f"{own}{os.pathsep}{path}"
    with mock.patch.dict(os.environ, {"PYTHONPATH": path}):
        made.supernode(place)


class Leaving(InProcessGrid):
    """The same federation in one process, on which the two hostile nodes' training gets lost."""

    def deliver(self, message: Message) -> Message | None:
        lost = message.metadata.dst_node_id in (1000 + SHORT, 1000 + MUTE) and message.metadata.message_type == TRAIN
        return None if lost else super().deliver(message)


def test_the_run_ends_with_the_right_bits_for_the_others(tmp_path: Path):
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES, "model": "digits-linear"}
    run = {"rounds": 2, "fraction": 1.0, "workers": 1, "evaluate_every": 2}
    config = make_config({"task": task, "train": {"lr": 0.5}, "recipe": {"name": "fedavg"}, "run": run})
    patient = config.model_copy(update={"run": config.run.model_copy(update={"deadline": DEADLINE})})
    said: list[str] = []
    configs = [*partitions(NODES), partitions(NODES)[1]]  # the last is an impostor, registered but not enrolled
    with loopback(tmp_path / "link", NODES + 1, secure=True, configs=configs, started=False) as made:
        for place in range(NODES + 1):
            start_node(made, place, tmp_path)
        for place in range(NODES + 1):
            made.wait_for(f"node{place}", "SuperNode ID", 180)
        path = made.server.folder / "enrolled.toml"
        write_enrolment(path, Enrolment(client=read_enrolment(path).client[:NODES]))
        on_superlink(patient, tmp_path / "out", said.append, kit=made.server.folder)
    theirs, told = Run.load(tmp_path / "out"), "\n".join(said)
    assert "is refused: its key is not enrolled" in told
    left = {(event.round, event.client): event.text for event in theirs.events() if event.kind == "left-out"}
    assert set(left) == {(index, client) for index in (1, 2) for client in (SHORT, MUTE)}
    assert f"no answer within {DEADLINE:g} s" in left[1, MUTE]
    assert left[2, MUTE] == "its node is not connected"  # it is not waited for again
    assert all(len(text) <= 500 and text.isprintable() for text in left.values())
    made_task = make_task(config)
    grid = Leaving(make_client_app(lambda context: made_task.client(int(context.node_config["partition-id"]))), NODES)
    serve(grid, dump_config(config), tmp_path / "local", timeout=0.3)
    ours = Run.load(tmp_path / "local")
    assert [one.id for one in theirs.explain(2)] == [0, 1, 2]
    assert [one.weight for one in theirs.explain(2)] == [one.weight for one in ours.explain(2)]
    assert np.array_equal(theirs.model, ours.model)
