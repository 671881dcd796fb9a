"""Processes of a node: worker, fork server and supervisor; the same bits, no stranger, and nothing left behind."""

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
from fedmerit.flower import app, node, processes, supernode
from fedmerit.flower.grid import InProcessGrid
from fedmerit.flower.messages import HELLO, TRAIN, pack
from fedmerit.flower.start import LOCK, PREFIX, temp_folder
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
    config |= {"epochs": 0, "lr": 0.0, "personal": "keep"}
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


@dataclass
class ForkServer:
    """A fork server, the process that it lives for, and its folder."""

    owner: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes]
    folder: Path

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "flwr-clientapp"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    tmp_path_factory.getbasetemp()  # made before we move where temporary folders go
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", name)
        with subprocess.Popen(["sleep", "600"]) as owner:
            folder = supernode.make_launchers(owner.pid)
            command = [sys.executable, *supernode.server_words(folder, owner.pid)]
            with subprocess.Popen(command, env=os.environ | {"TMPDIR": name}) as process:
                yield ForkServer(owner, process, folder)
                owner.kill()


def test_a_fork_is_the_command_itself_and_the_fork_server_ends_with_its_owner(fork_server: ForkServer):
    asked = fork_server.call("--help", COLUMNS="60")
    itself = subprocess.run(
        [str(supernode.BIN / "flwr-clientapp"), "--help"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "60"},
    )
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, itself.stdout, itself.stderr)
    wrong = fork_server.call("--nonsense")
    assert wrong.returncode == 2
    assert "error" in wrong.stderr
    assert threads(fork_server.process.pid) == 1  # forking is safe
    assert stat.S_IMODE(fork_server.folder.stat().st_mode) == 0o700

    # a command that waits for a SuperNode which is not there; its launcher is killed, as all of a node's processes are
    words = ("--insecure", "--runtime-api-address", "127.0.0.1:9", "--token", "none")
    with subprocess.Popen([str(fork_server.folder / "flwr-clientapp"), *words], stdout=subprocess.DEVNULL) as waiting:
        assert until(lambda: any(threads(fork) > 1 for fork in children(fork_server.process.pid)))
        waiting.kill()
    assert until(lambda: not children(fork_server.process.pid))

    fork_server.owner.kill()
    assert fork_server.process.wait(60) == 0
    assert not fork_server.folder.exists()


def test_without_a_fork_server_a_launcher_becomes_the_command(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-IS", processes.__file__, "launch", str(tmp_path / "none"), "/bin/echo", "itself"], stdout=-1
    ) as one:
        assert one.communicate()[0] == b"itself\n"


def threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    """Those that live: one that has ended is taken note of a little later."""
    command = ["ps", "--ppid", str(pid), "-o", "pid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if "Z" not in line]


STARTER = """
import subprocess, sys, time
command = [sys.executable, "-I", sys.argv[1], "supervise"]
supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
for _ in range(2):  # each with a child in a session of its own, as Flower's processes have
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    supervisor.stdin.write(f"+{child.pid}\\n".encode())
    print(child.pid, flush=True)
ended = subprocess.Popen(["sleep", "600"], start_new_session=True)
supervisor.stdin.write(f"+{ended.pid}\\n-{ended.pid}\\n".encode())
print(ended.pid, flush=True)
supervisor.stdin.flush()
time.sleep(600)
"""


def test_everything_ends_with_a_starter_that_is_killed():
    starter = subprocess.Popen(
        [sys.executable, "-S", "-c", STARTER, processes.__file__], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    *begun, taken_back = (int(starter.stdout.readline()) for _ in range(3))
    try:
        assert until(lambda: all(len(processes.descendants(pid)) == 1 for pid in begun))
        family = [pid for one in begun for pid in (one, *processes.descendants(one))]
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        assert until(lambda: not any(map(is_there, family)))
        assert is_there(taken_back)
    finally:
        starter.stdout.close()
        os.kill(taken_back, signal.SIGKILL)


def test_temporary_folders_of_dead_runs_go_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, other, elsewhere = tmp_path / f"{PREFIX}dead", tmp_path / f"{PREFIX}not-ours", tmp_path / "elsewhere"
    for folder in (dead, other, elsewhere):
        folder.mkdir()
    (dead / LOCK).touch()
    (elsewhere / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    with temp_folder() as first:
        assert not dead.exists()
        assert stat.S_IMODE(first.stat().st_mode) == 0o700
        with temp_folder() as second:
            assert first.exists()
            assert second != first
    assert not first.exists()
    assert other.exists()
    assert elsewhere.exists()
