"""Processes on one machine: private sockets between them, the launcher and the supervisor.

This file imports nothing of fedmerit, so that it also runs by its path, without site packages, in hundredths of a
second:

    python -IS processes.py launch SOCKET COMMAND WORD ...    # have a fork server run a command, see supernode.py
    python -I processes.py supervise                          # end processes when whoever started them is gone

A socket lies in a folder that only our user may enter, and both ends ask the kernel for the user of the other. Frames
are a length and that many bytes; nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

HEADER, CREDENTIALS = struct.Struct("!Q"), struct.Struct("3i")
MAX_FRAME_BYTES = 2**32
"""Flower's own messages have at most 2 GiB."""
BEGUN = b"+"
KILLED = 137
"""The exit code of a command that ended without one: as after SIGKILL."""


def is_supported() -> bool:
    """Whether this system reports the process at the other end of a socket, and the end of a process: Linux does."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(os, "pidfd_open")


def private_folder() -> Path:
    """Our user's folder for sockets, created if missing; one that another user could have made or enter is refused."""
    folder = Path(tempfile.gettempdir()) / f"fedmerit-nodes-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
        raise PermissionError(f"{folder} must be a folder of our own user that nobody else may enter (mode 0700)")
    return folder


def path_of(owner: int, name: str) -> Path:
    """A path in the private folder for something that belongs to the process `owner`."""
    return private_folder() / f"{owner}-{_start_time(owner)}-{name}"


def _start_time(pid: int) -> str:
    """Start time of a process in the kernel's ticks: process ids are reused, these pairs are not."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]


def remove_dead_paths() -> None:
    """Remove sockets and folders whose owner is gone: a killed process leaves them behind."""
    for path in private_folder().glob("*-*-*"):
        owner, since, _ = path.name.split("-")
        try:
            gone = _start_time(int(owner)) != since
        except OSError:
            gone = True
        if gone and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif gone:
            path.unlink(missing_ok=True)


def peer(connection: socket.socket) -> int:
    """The process at the other end, which must be our own user's."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise PermissionError(f"the other end is a process of user {user}, not of ours, {os.getuid()}")
    return int(pid)


def send_frame(connection: socket.socket, data: bytes) -> None:
    """Send one frame."""
    connection.sendall(HEADER.pack(len(data)))
    connection.sendall(data)


def read_frame(connection: socket.socket) -> bytes:
    """Read one whole frame; ConnectionError where the other end went away, or claims too many bytes."""
    (length,) = HEADER.unpack(_read(connection, HEADER.size))
    if length > MAX_FRAME_BYTES:
        raise ConnectionError(f"a frame has at most {MAX_FRAME_BYTES} bytes; this one claims {length}")
    return _read(connection, length)


def _read(connection: socket.socket, length: int) -> bytes:
    """Exactly this many bytes; memory is allocated as they arrive, not as they are claimed."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the other end went away")
        data += part
    return bytes(data)


def launch(path: str, command: str, words: list[str]) -> int:
    """Have the fork server at this socket run a command with our streams, folder and environment; its exit code.

    Where no fork server of our own user answers, this process becomes the command.
    """
    name, environment = os.path.basename(command), dict(os.environ)
    request = {"name": name, "words": words, "folder": os.getcwd(), "environment": environment}
    begun = False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        peer(connection)
        socket.send_fds(connection, [b"."], [0, 1, 2])
        send_frame(connection, json.dumps(request).encode())
        begun = connection.recv(1) == BEGUN
        code = connection.recv(1) if begun else b""
        if code:
            with suppress(OSError):
                connection.recv(1)  # nothing comes; it closes when the command has ended
            return code[0]
    if not begun:
        os.execv(command, [command, *words])
    return KILLED


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on; Flower starts some in sessions of their own."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    family = [pid]
    for one in family:  # grows while we go
        family += [child for child, parent in parents.items() if parent == one]
    return family[1:]


def end_family(pid: int) -> None:
    """SIGKILL to the leader of a session, to its group and to all that it started."""
    children = descendants(pid)
    with suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(pid, signal.SIGKILL)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def supervise(lines: Iterable[str]) -> None:
    """Follow `+PID` and `-PID`; at the end of the lines, end every process that was added and not removed.

    The lines come through a pipe, which also ends when whoever writes to it is killed.
    """
    begun: set[int] = set()
    for line in lines:
        sign, pid = line[0], int(line[1:])
        begun.add(pid) if sign == "+" else begun.discard(pid)
    for pid in begun:
        with suppress(ProcessLookupError):
            if os.getsid(pid) == pid:  # still the process that led a session, not another with its id
                end_family(pid)


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        sys.exit(launch(sys.argv[2], sys.argv[3], sys.argv[4:]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervise(sys.stdin)
