"""The starter of a node: a process that has imported Flower already, and forks its ClientApps instead of starting them.

Flower starts `flwr-clientapp` for each message, and most of that process's seconds go into imports of Flower's own. A
starter pays for them once. What it forks is Flower's own command, unchanged, in the environment of the shim that asked
(shim.py), and ends when that shim is killed. It ends itself with the process `owner`, which is the SuperNode, and what
it began ends as it would without it; or, leading a group of its own for a whole federation, it takes all of it along.
It stays with one thread, so that forking is safe.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedmerit.flower import shim
from fedmerit.flower.channel import Broken, begun, peer, private_folder, remove_dead

COMMANDS: Mapping[str, tuple[str, str]] = {
    "flwr-clientapp": ("flwr.supernode.cli", "flwr_clientapp"),
    "flwr-serverapp": ("flwr.superlink.cli", "flwr_serverapp"),
    "flower-superexec": ("flwr.supercore.cli", "flower_superexec"),
    "flower-supernode": ("flwr.supernode.cli", "flower_supernode"),
    "flower-superlink": ("fedmerit.flower.superlink", "patient_superlink"),
    "flwr": ("flwr.cli.app", "app"),
}
"""Flower's own scripts: the function that each calls; the SuperLink is ours, which waits for its database."""
BIN = Path(sys.executable).parent
SOCKET = "starter"
LIGHT = ("flwr.supernode.cli.flwr_clientapp", "fedmerit.flower.node")
"""What every message needs, and no more: torch and the task stay with the resident worker."""
WHOLE = (
    *LIGHT,
    *("flwr.cli.app", "flwr.superlink.main", "flwr.superlink.cli", "flwr.supernode.main", "flwr.supercore.cli"),
    *("flwr.supernode.start_client_internal", "flwr.superlink.runtime.run_serverapp"),
    *("torch", "sklearn.datasets", "fedmerit.flower.app"),
)
"""What all processes of a federation on one machine need, torch included: its nodes need no workers."""
MOST_BYTES = 2**24
REAPED = 5.0
"""Seconds after which what has ended is taken note of at the latest."""


def make_folder(owner: int, names: Iterable[str] = ("flwr-clientapp",), number: int = 0) -> Path:
    """A new folder for the PATH of what the process `owner` starts, with a shim for each of these commands."""
    remove_dead(private_folder())
    folder = private_folder() / f"{owner}-{begun(owner)}-bin{number}"
    folder.mkdir(mode=0o700)
    for name in names:
        words = [sys.executable, "-IS", shim.__file__, str(folder / SOCKET), str(BIN / name)]
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    return folder


def serve(folder: Path, owner: int, modules: Iterable[str] = LIGHT) -> socket.socket | None:
    """Fork what shims ask for until the process `owner` ends; in each fork, return its connection."""
    watched = os.pidfd_open(owner)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen(128)
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # forks share what we imported as long as nobody writes to it, the collector included
        while True:
            ready, _, _ = select.select([listener.fileno(), watched], [], [], REAPED)
            _reap()
            if watched in ready:
                break
            if listener.fileno() not in ready:
                continue
            connection, _ = listener.accept()
            with suppress(Broken, OSError):
                peer(connection)
                if os.fork() == 0:
                    os.close(watched)
                    return connection
            connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # of a whole federation: all that we forked is in this group, and nobody else
        os.killpg(0, signal.SIGKILL)
    return None


def _reap() -> None:
    """Take note of forks that have ended, so that they leave no entry behind."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(connection: socket.socket) -> None:
    """In a fork: take the shim's place, run its command, and tell it the code."""
    request = _read(connection)
    module, function = COMMANDS[request["name"]]
    connection.sendall(shim.BEGUN)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    sys.argv = [request["name"], *request["words"]]
    code = 1
    try:
        code = _code(getattr(importlib.import_module(module), function)())
    except SystemExit as error:
        code = _code(error.code)
        raise
    finally:
        with suppress(OSError):  # left open: the shim waits until we have ended
            connection.sendall(shim.HEADER.pack(code & 0xFF))


def _read(connection: socket.socket) -> dict[str, Any]:
    """A shim's request; its standard streams, folder and environment become ours."""
    head, streams, _, _ = socket.recv_fds(connection, shim.HEADER.size, 3)
    (length,) = shim.HEADER.unpack(head)
    if length > MOST_BYTES or len(streams) != 3:
        raise Broken(f"a request has three streams and at most {MOST_BYTES} bytes")
    packed = b""
    while len(packed) < length:
        part = connection.recv(length - len(packed))
        if not part:
            raise Broken("the shim went away")
        packed += part
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    request: dict[str, Any] = json.loads(packed)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request


def _code(value: object) -> int:
    """As Python makes a code of what a script returns."""
    return value if isinstance(value, int) else int(value is not None)


def _end_with(connection: socket.socket) -> None:
    """A shim says nothing more: when its end closes it was killed, and so are we, as the command would be."""
    with suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    taken = serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or LIGHT)
    if taken is not None:
        become(taken)
