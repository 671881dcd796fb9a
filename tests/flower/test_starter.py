"""The fork server of a node: Flower's commands forked, with words, streams and codes; it ends with its owner."""

from __future__ import annotations

import os
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

pytestmark = pytest.mark.skipif(not processes.is_supported(), reason="the fork server needs Linux")


@dataclass
class Made:
    """A fork server, the process that it lives for, and its folder."""

    owner: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes]
    folder: Path

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "flwr-clientapp"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    tmp_path_factory.getbasetemp()  # made before we move where temporary folders go
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", name)
        with subprocess.Popen(["sleep", "600"]) as owner:
            folder = supernode.make_launchers(owner.pid)
            command = [sys.executable, *supernode.server_words(folder, owner.pid)]
            with subprocess.Popen(command, env=os.environ | {"TMPDIR": name}) as process:
                yield Made(owner, process, folder)
                owner.kill()


def test_a_fork_is_the_command_itself_and_the_fork_server_ends_with_its_owner(made: Made):
    asked = made.call("--help", COLUMNS="60")
    itself = subprocess.run(
        [str(supernode.BIN / "flwr-clientapp"), "--help"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "60"},
    )
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, itself.stdout, itself.stderr)
    wrong = made.call("--nonsense")
    assert wrong.returncode == 2
    assert "error" in wrong.stderr
    assert threads(made.process.pid) == 1  # forking is safe
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700

    # a command that waits for a SuperNode which is not there; its launcher is killed, as all of a node's processes are
    words = ("--insecure", "--runtime-api-address", "127.0.0.1:9", "--token", "none")
    with subprocess.Popen([str(made.folder / "flwr-clientapp"), *words], stdout=subprocess.DEVNULL) as waiting:
        assert until(lambda: any(threads(fork) > 1 for fork in children(made.process.pid)))
        waiting.kill()
    assert until(lambda: not children(made.process.pid))

    made.owner.kill()
    assert made.process.wait(60) == 0
    assert not made.folder.exists()


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


def until(condition: object, seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:  # type: ignore[operator]
        time.sleep(0.05)
    return bool(condition())  # type: ignore[operator]
