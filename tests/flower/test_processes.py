"""Processes of a node: fork server and supervisor; no stranger, and nothing left behind."""

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

import pytest

from fedmerit.flower import processes, supernode
from fedmerit.flower.processes import LOCK, PREFIX, temp_folder

pytestmark = pytest.mark.skipif(not processes.is_supported(), reason="the fork server needs Linux")


def until(condition: object, seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:  # type: ignore[operator]
        time.sleep(0.02)
    return bool(condition())  # type: ignore[operator]


def is_there(pid: int | None) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_only_our_own_user_may_be_at_the_other_end(monkeypatch: pytest.MonkeyPatch):
    one, two = socket.socketpair()
    with one, two:
        processes.check_peer(one)
        monkeypatch.setattr(os, "getuid", lambda: 4242)
        with pytest.raises(PermissionError, match="not to user 4242"):
            processes.check_peer(one)


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
            folder = supernode.make_launchers()
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
