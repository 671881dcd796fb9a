"""A shim that stands on a SuperNode's PATH for one of Flower's commands: it asks the node's starter to fork it.

It is run by its file, without site packages, and imports nothing of ours, so it costs hundredths of a second. What it
was given goes to the starter: words, folder, environment, standard input and output. It ends when the command has, with
its code. Where no starter of our own user answers, it becomes the command itself.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from contextlib import suppress

HEADER = struct.Struct("!I")
BEGUN = b"+"
KILLED = 137
"""The code of a command that ended without one: as after SIGKILL."""


def ask(path: str, name: str, words: list[str]) -> int | None:
    """The command's code; None where nobody began it."""
    request = {"name": name, "words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    packed, begun = json.dumps(request).encode(), False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return None
        socket.send_fds(connection, [HEADER.pack(len(packed))], [0, 1, 2])
        connection.sendall(packed)
        begun = connection.recv(1) == BEGUN
        code = connection.recv(HEADER.size) if begun else b""
        if len(code) == HEADER.size:
            with suppress(OSError):
                connection.recv(1)  # nothing comes; it closes when the command has ended
            return int(HEADER.unpack(code)[0])
    return KILLED if begun else None


if __name__ == "__main__":
    where, command, *rest = sys.argv[1:]
    ended = ask(where, os.path.basename(command), rest)
    if ended is None:
        os.execv(command, [command, *rest])
    sys.exit(ended)
