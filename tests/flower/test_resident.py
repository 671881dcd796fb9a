"""The resident worker of a node: the same bits, one process for many messages, no stranger, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedmerit.config.schema import dump_config, make_config
from fedmerit.core.seeds import train_seed
from fedmerit.errors import ConfigError
from fedmerit.flower import app, node, processes
from fedmerit.flower.grid import InProcessGrid
from fedmerit.flower.messages import HELLO, TRAIN, pack
from fedmerit.tasks.registry import make_server

pytestmark = pytest.mark.skipif(not processes.is_supported(), reason="the worker needs Linux")
CONFIG = make_config({"task": {"clients": 4, "model": "digits-linear"}, "train": {"epochs": 1}})


def until(condition: object, seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:  # type: ignore[operator]
        time.sleep(0.02)
    return bool(condition())  # type: ignore[operator]


def context_of(run: int = 7, **node_config: Any) -> Context:
    settings = {"fedmerit": dump_config(CONFIG)}
    partition = {"partition-id": 2, "num-partitions": 4}
    return Context(run, 1, node_config=partition | node_config, state=RecordDict(), run_config=settings)


def train_message() -> Message:
    InProcessGrid(app.client, 1)  # names this process, as messages need it
    model = make_server(CONFIG).first_model(0)
    config: dict[str, Any] = {"round": 1, "seed": train_seed(0, 1, 2), "attack": 0, "facts": ["samples", "labels"]}
    config |= {"epochs": 0, "lr": 0.0, "personal": "keep", "budget": 0.0}
    message = Message(pack({"model": model}, config), dst_node_id=1, message_type=TRAIN)
    message.metadata.__dict__["_message_id"] = "42"
    return message


@dataclass
class Node:
    """A process that stands for a node's SuperExec, and the folder in which its worker listens."""

    owner: subprocess.Popen[bytes]
    folder: Path

    def worker(self) -> int | None:
        """Who listens."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(processes.path_of(self.owner.pid, "7")))
            except OSError:
                return None
            return processes.peer(connection)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    tmp_path_factory.getbasetemp()  # made before we move where temporary folders go
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        with subprocess.Popen(["sleep", "600"]) as owner:
            yield Node(owner, Path(folder))
            owner.kill()


def is_there(pid: int | None) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_worker_answers_with_the_bits_of_the_process_itself_and_ends_with_its_owner(made: Node):
    message, here, there = train_message(), context_of(), context_of()
    expected, reply = app.client(message, here), node.ask_worker(message, there, made.owner.pid)
    assert reply is not None
    worker = made.worker()
    assert worker is not None
    for name in ("arrays", "metrics", "config"):
        assert repr(reply.content[name]) == repr(expected.content[name])
    theirs, ours = (one.content.array_records["arrays"]["update"].data for one in (reply, expected))
    assert theirs == ours
    assert np.frombuffer(ours[-400:], np.float32).any()
    assert reply.metadata.reply_to_message_id == "42"
    assert there.state == here.state  # the personal model that it kept
    assert there.state

    greeting = Message(pack(config={}), dst_node_id=1, message_type=HELLO)
    answered = node.ask_worker(greeting, there, made.owner.pid)
    assert answered is not None
    assert dict(answered.content.config_records["config"])["client"] == 2
    assert made.worker() == worker  # the same process as before

    unknown = Message(pack(config={}), dst_node_id=1, message_type="query.nothing")
    assert node.ask_worker(unknown, context_of(), made.owner.pid) is None  # the process that asked raises
    with pytest.raises(ValueError, match="nothing"):
        node.client(unknown, context_of(worker=False))

    os.kill(worker, signal.SIGSTOP)  # it hangs
    assert node.ask_worker(greeting, context_of(), made.owner.pid, patience=0.5) is None
    assert until(lambda: made.worker() is None)
    assert not is_there(worker)
    assert node.ask_worker(greeting, context_of(), made.owner.pid) is not None  # in spite of the old socket
    another = made.worker()
    assert another not in (None, worker)

    made.owner.kill()
    made.owner.wait()
    assert until(lambda: not is_there(another))
    assert list(processes.private_folder().iterdir()) == []


def test_a_worker_whose_owner_is_gone_never_listens(made: Node, monkeypatch: pytest.MonkeyPatch):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    path = processes.private_folder() / f"{done.pid}-1-7"
    with pytest.raises(ConnectionError, match="ended at once"):
        node.reach_worker(path, done.pid, 60.0)
    assert not path.exists()


def test_only_our_own_user_may_be_at_the_other_end(monkeypatch: pytest.MonkeyPatch):
    one, two = socket.socketpair()
    with one, two:
        assert processes.peer(one) == os.getpid()
        monkeypatch.setattr(os, "getuid", lambda: 4242)
        with pytest.raises(PermissionError, match="not of ours, 4242"):
            processes.peer(one)


def test_a_folder_that_others_could_enter_or_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = processes.private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="0700"):
        processes.private_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="0700"):
        processes.private_folder()
    assert node.ask_worker(train_message(), context_of(), os.getpid()) is None


def test_frames_are_whole_and_claim_no_more_than_they_may():
    one, two = socket.socketpair()
    with two:
        with one:
            processes.send_frame(one, b"abc")
            assert processes.read_frame(two) == b"abc"
            one.sendall(processes.HEADER.pack(processes.MAX_FRAME_BYTES + 1))
            with pytest.raises(ConnectionError, match="claims"):
                processes.read_frame(two)
            one.sendall(processes.HEADER.pack(9) + b"short")
        with pytest.raises(ConnectionError, match="went away"):
            processes.read_frame(two)


def test_it_is_switched_off_by_the_nodes_own_configuration():
    assert node.wants_worker(context_of())
    assert not node.wants_worker(context_of(worker=False))
    with pytest.raises(ConfigError, match=r"true or false \(got 'no'\)"):
        node.wants_worker(context_of(worker="no"))


def test_a_process_per_message_imports_neither_torch_nor_the_task():
    code = "import sys, fedmerit.flower.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert not {"torch", "pandas", "sklearn", "scipy"} & set(modules)
    ours = {name for name in modules if name.startswith("fedmerit.")}
    assert ours == {"fedmerit.errors", "fedmerit.flower", "fedmerit.flower.processes", "fedmerit.flower.node"}
