"""The resident worker of a node: a process that keeps torch, the rows and the learner, and answers message by message.

The first ClientApp of a run starts it (node.py). It answers one run, so that another finds files and code as they are
then; it ends with the process that starts the node's ClientApps, which ends with its SuperNode, or when nobody has
asked it anything for `IDLE` seconds. It computes what a process per message would, in the same environment, to the same
bits.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from fedmerit.flower.channel import (
    ANSWER,
    BEAT,
    FAILED,
    Broken,
    peer,
    private_folder,
    read_frame,
    remove_dead,
    send_frame,
)

IDLE = 600.0
"""Seconds after which a worker that nobody asks ends."""
PULSE = 2.0
"""Seconds between two signs of life."""
log = logging.getLogger("flwr")


def serve(path: Path, owner: int, idle: float = IDLE) -> None:
    """Listen there and answer, one message after the other, as long as the process `owner` lives."""
    if path.parent != private_folder():
        raise Broken(f"{path} is not in {private_folder()}")
    watched = os.pidfd_open(owner)  # before we listen: an owner that is gone by now never asks
    remove_dead(path.parent)
    path.unlink(missing_ok=True)  # of a worker that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(idle)
        mine = path.lstat().st_ino
        threading.Thread(target=_end_with, args=(watched, path, mine), daemon=True).start()
        try:
            while True:
                connection, _ = listener.accept()
                with connection, suppress(Broken, OSError):  # who asked is gone, or not of our user: nobody to tell
                    connection.settimeout(None)
                    peer(connection)
                    answer(connection)
        except TimeoutError:
            pass
        finally:
            _remove(path, mine)


def answer(connection: socket.socket) -> None:
    """Read a message and its context, say every few seconds that we live, and send the reply and the context after."""
    request = read_frame(connection), read_frame(connection)
    done, lock = threading.Event(), threading.Lock()

    def live() -> None:
        while not done.wait(PULSE):
            with lock, suppress(OSError):
                if not done.is_set():
                    send_frame(connection, BEAT)

    threading.Thread(target=live, daemon=True).start()
    try:
        frames = [ANSWER, *compute(*request)]
    except Exception as error:  # whatever a task raises, the process that asked raises it again, for Flower to see
        log.warning("fedmerit: the resident worker failed: %s: %s", type(error).__name__, error)
        frames = [FAILED]
    with lock:
        done.set()
        for frame in frames:
            send_frame(connection, frame)


def compute(message: bytes, context: bytes) -> tuple[bytes, bytes]:
    """The reply to a message and the context after it, all in Flower's serialisation."""
    from flwr.common.serde import context_from_proto, context_to_proto, message_from_proto, message_to_proto
    from flwr.proto.message_pb2 import Context as ProtoContext
    from flwr.proto.message_pb2 import Message as ProtoMessage

    from fedmerit.flower.app import client  # after we listen: this takes seconds

    kept = context_from_proto(ProtoContext.FromString(context))
    reply = client(message_from_proto(ProtoMessage.FromString(message)), kept)
    return message_to_proto(reply).SerializeToString(), context_to_proto(kept).SerializeToString()


def _end_with(watched: int, path: Path, mine: int) -> None:
    """Wait until that process ends; then end, whatever the rest of us is at."""
    select.select([watched], [], [])
    _remove(path, mine)
    os._exit(0)


def _remove(path: Path, mine: int) -> None:
    """The socket, unless it is another worker's by now."""
    with suppress(OSError):
        if path.lstat().st_ino == mine:
            path.unlink()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
