"""Processes on one machine: temporary folders, the launcher and the supervisor.

This file imports nothing from fedmerit, so that it also runs by its path, without site packages, in hundredths of a
second:

    python -IS processes.py launch SOCKET COMMAND WORD ...    # let a fork server run a command, see supernode.py
    python -I processes.py supervise                          # end processes when the process that started them ends

The socket is in a folder that only the current user can enter, and each end asks the kernel for the user of the other.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX, LOCK = "fedmerit-", "in-use"
CREDENTIALS = struct.Struct("3i")
BEGUN = b"+"
KILLED = 137
"""The exit code of a command that ended without one, as after SIGKILL."""


def is_supported() -> bool:
    """Whether the system has SO_PEERCRED and pidfd_open, as Linux does."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(os, "pidfd_open")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder; raise BlockingIOError if another process has locked it. The lock ends with the process."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove_dead_folders() -> None:
    """Remove fedmerit's temporary folders whose process was killed; skip symbolic links and other users' folders."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # removed by another process, or in use
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid() and (folder / LOCK).is_file():
                with locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temp_folder() -> Iterator[Path]:
    """Make a folder that only the current user can read, and remove it at the end.

    The folders of killed processes are removed first.
    """
    remove_dead_folders()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, locked(Path(name)):
        yield Path(name)


def check_peer(connection: socket.socket) -> None:
    """Raise PermissionError unless the process at the other end of a socket belongs to the same user."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise PermissionError(f"the other end of the socket belongs to user {user}, not to user {os.getuid()}")


def launch(path: str, command: str, words: list[str]) -> int:
    """Let the fork server at this socket run a command with our streams, folder and environment; return its exit code.

    If no fork server of the same user answers, this process executes the command itself.
    """
    name, environment = os.path.basename(command), dict(os.environ)
    request = {"name": name, "words": words, "folder": os.getcwd(), "environment": environment}
    begun = False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        check_peer(connection)
        socket.send_fds(connection, [b"."], [0, 1, 2])
        connection.sendall(json.dumps(request).encode() + b"\n")
        begun = connection.recv(1) == BEGUN
        code = connection.recv(1) if begun else b""
        if code:
            with suppress(OSError):
                connection.recv(1)  # no data follows; the connection closes when the command has ended
            return code[0]
    if not begun:
        os.execv(command, [command, *words])
    return KILLED


def descendants(pid: int) -> list[int]:
    """Find all descendants of a process; Flower starts some of them in separate sessions."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    family = [pid]
    for ancestor in family:  # the list grows during the loop
        family += [child for child, parent in parents.items() if parent == ancestor]
    return family[1:]


def end_family(pid: int) -> None:
    """Send SIGKILL to the leader of a session, its group and all descendants."""
    children = descendants(pid)
    with suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(pid, signal.SIGKILL)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def supervise(lines: Iterable[str]) -> None:
    """Track processes by lines `+PID` and `-PID`; after the last line, end those that were added and not removed.

    The lines are read from a pipe, which also ends when the process that writes to it is killed.
    """
    begun: set[int] = set()
    for line in lines:
        sign, pid = line[0], int(line[1:])
        begun.add(pid) if sign == "+" else begun.discard(pid)
    for pid in begun:
        with suppress(ProcessLookupError):
            if os.getsid(pid) == pid:  # otherwise the id was reused by a process that leads no session
                end_family(pid)


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        sys.exit(launch(sys.argv[2], sys.argv[3], sys.argv[4:]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervise(sys.stdin)
