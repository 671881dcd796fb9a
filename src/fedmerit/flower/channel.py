"""A channel between a node's ClientApps and its resident worker: a Unix socket in a folder that only their user enters.

What travels are frames, a length and that many bytes, which hold Flower's own serialisation of messages; nothing is
unpickled. Both ends ask the kernel whose process the other is.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import struct
import tempfile
from pathlib import Path

HEADER = struct.Struct("!Q")
MOST_BYTES = 2**32
"""Of one frame; Flower's messages end at 2 GiB."""
ANSWER, FAILED, BEAT = b"a", b"f", b"."
"""What a worker says: an answer follows, it has none, or it still works on it."""
CREDENTIALS = struct.Struct("3i")


class Broken(Exception):
    """The channel cannot be used; its text says why."""


def is_possible() -> bool:
    """Whether this system can say whose process is at the other end, and tell when one ends: Linux can."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(os, "pidfd_open")


def private_folder() -> Path:
    """Our user's folder for sockets, made where it is missing; one that others could have made or enter is refused."""
    folder = Path(tempfile.gettempdir()) / f"fedmerit-nodes-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise Broken(f"{folder} must be a folder of our own user that nobody else may enter (mode 0700)")
    return folder


def begun(pid: int) -> str:
    """When a process began, in the kernel's ticks: numbers of processes come again, pairs do not."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]


def socket_of(owner: int, run: int) -> Path:
    """Where the worker of a run listens, on the node whose SuperExec is the process `owner`."""
    return private_folder() / f"{owner}-{begun(owner)}-{run}"


def remove_dead(folder: Path) -> None:
    """Remove sockets, and starters' folders, whose owner is gone: who is killed leaves them behind."""
    for path in folder.glob("*-*-*"):
        owner, since, _ = path.name.split("-")
        try:
            gone = begun(int(owner)) != since
        except OSError:
            gone = True
        if gone and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif gone:
            path.unlink(missing_ok=True)


def peer(connection: socket.socket) -> int:
    """The process at the other end; it must be our own user's."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise Broken(f"the other end is a process of user {user}, not of ours, {os.getuid()}")
    return int(pid)


def send_frame(connection: socket.socket, data: bytes) -> None:
    """One frame."""
    connection.sendall(HEADER.pack(len(data)))
    connection.sendall(data)


def read_frame(connection: socket.socket) -> bytes:
    """One frame, whole; Broken where the other end went away, or claims too much."""
    (length,) = HEADER.unpack(_read(connection, HEADER.size))
    if length > MOST_BYTES:
        raise Broken(f"a frame has at most {MOST_BYTES} bytes; this one claims {length}")
    return _read(connection, length)


def _read(connection: socket.socket, length: int) -> bytes:
    """Exactly so many bytes; memory is taken as they come, not as they are claimed."""
    parts, missing = list[bytes](), length
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise Broken("the other end went away")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
