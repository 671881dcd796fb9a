"""The ClientApp of a node, and the worker that answers its messages.

Flower starts a process for each message. This file is all that such a process needs: it hands the message to the
node's worker, a process that keeps torch, the rows and the learner. Whatever goes wrong on the way to the worker, the
message is answered in the process itself, to the same bits.

The first message of a run starts the worker (`python -m fedmerit.flower.node SOCKET OWNER`). It serves one run, so that
the next one reads files and code anew. It ends with the process that starts the node's ClientApps, which ends with its
SuperNode, or after `IDLE_SECONDS` without a message.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.serde import context_from_proto, context_to_proto, message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Context as ProtoContext
from flwr.proto.message_pb2 import Message as ProtoMessage
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from fedmerit.errors import ConfigError
from fedmerit.flower.processes import (
    is_supported,
    path_of,
    peer,
    private_folder,
    read_frame,
    remove_dead_paths,
    send_frame,
)

WORKER = "worker"
"""Key of the node's configuration: `worker=false` answers every message in a process of its own."""
PATIENCE = 120.0
"""Seconds without a sign of life after which a worker is given up; a computing worker gives one every few seconds."""
IDLE_SECONDS, BEAT_SECONDS = 600.0, 2.0
ANSWER, FAILED, BEAT = b"a", b"f", b"."
"""What a worker sends: an answer follows, there is none, or it is still computing."""
log = logging.getLogger("flwr")
_started: list[subprocess.Popen[bytes]] = []
"""Workers outlive us; kept, because a Popen that is garbage-collected while its process runs warns."""


class NodeApp(ClientApp):
    """A ClientApp that hands its messages to the node's worker."""

    def __call__(self, message: Message, context: Context) -> Message:
        """The worker's reply, with the state that it left; our own where the worker has none."""
        reply = ask_worker(message, context, os.getppid()) if wants_worker(context) else None
        if reply is not None:
            return reply
        from fedmerit.flower.app import client as here  # all that a worker would have imported

        return here(message, context)


client = NodeApp()


def wants_worker(context: Context) -> bool:
    """Whether this node uses a worker; it does unless its configuration says `worker=false`."""
    wanted = context.node_config.get(WORKER, True)
    if not isinstance(wanted, bool):
        raise ConfigError(f"{WORKER} of --node-config must be true or false (got {wanted!r})")
    return wanted and is_supported()


def ask_worker(message: Message, context: Context, owner: int, patience: float = PATIENCE) -> Message | None:
    """The reply of the worker that lives as long as the process `owner`; None, and a warning, without one."""
    try:
        request = message_to_proto(message).SerializeToString(), context_to_proto(context).SerializeToString()
        with reach_worker(path_of(owner, str(context.run_id)), owner, patience) as connection:
            try:
                answer, state = _exchange(connection, request)
            except TimeoutError:  # it hangs, and would for the next message, too
                with suppress(ProcessLookupError):
                    os.kill(peer(connection), signal.SIGKILL)
                raise
    except (OSError, ValueError, EncodeError, DecodeError) as error:
        log.warning("fedmerit: the worker did not answer, this process does: %s", error or type(error).__name__)
        return None
    context.state = state.state
    return answer


def _exchange(connection: socket.socket, request: tuple[bytes, bytes]) -> tuple[Message, Context]:
    for part in request:
        send_frame(connection, part)
    while (word := read_frame(connection)) == BEAT:
        pass
    if word != ANSWER:
        raise ConnectionError("it could not answer this message")
    answer, context = read_frame(connection), read_frame(connection)
    return message_from_proto(ProtoMessage.FromString(answer)), context_from_proto(ProtoContext.FromString(context))


def reach_worker(path: Path, owner: int, patience: float) -> socket.socket:
    """A connection to the worker that listens there; where none does, one is started."""
    connection = _connect(path, patience)
    if connection is not None:
        return connection
    command = [sys.executable, "-P", "-m", "fedmerit.flower.node", str(path), str(owner)]
    # in our process group, as all of a SuperNode's processes are: whoever ends the group ends the worker
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _started.append(worker)
    ends = time.monotonic() + patience
    while (connection := _connect(path, patience)) is None:
        if worker.poll() is not None:
            raise ConnectionError(f"it ended at once, with code {worker.returncode}")
        if time.monotonic() > ends:
            worker.kill()
            raise ConnectionError(f"it did not begin to listen within {patience:g} s")
        time.sleep(0.02)
    return connection


def _connect(path: Path, patience: float) -> socket.socket | None:
    """None where nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience)
        connection.connect(str(path))
        peer(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def serve(path: Path, owner: int) -> None:
    """Be the worker: answer one message after the other, as long as the process `owner` lives."""
    if path.parent != private_folder():
        raise PermissionError(f"{path} is not in {private_folder()}")
    watched = os.pidfd_open(owner)  # before we listen: an owner that is gone by now never asks
    remove_dead_paths()
    path.unlink(missing_ok=True)  # of a worker that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(IDLE_SECONDS)
        inode = path.lstat().st_ino
        threading.Thread(target=_end_with, args=(watched, path, inode), daemon=True).start()
        try:
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):  # whoever asked is gone, or not of our user
                    connection.settimeout(None)
                    peer(connection)
                    answer(connection)
        except TimeoutError:
            pass
        finally:
            _remove(path, inode)


def answer(connection: socket.socket) -> None:
    """Read a message and its context, send signs of life, then the reply and the new context."""
    request = read_frame(connection), read_frame(connection)
    done, lock = threading.Event(), threading.Lock()

    def beat() -> None:
        while not done.wait(BEAT_SECONDS):
            with lock, suppress(OSError):
                if not done.is_set():
                    send_frame(connection, BEAT)

    threading.Thread(target=beat, daemon=True).start()
    try:
        frames = [ANSWER, *compute(*request)]
    except Exception as error:  # whatever a task raises, the process that asked raises it again, for Flower to see
        log.warning("fedmerit: the worker failed: %s: %s", type(error).__name__, error)
        frames = [FAILED]
    with lock:
        done.set()
        for frame in frames:
            send_frame(connection, frame)


def compute(message: bytes, context: bytes) -> tuple[bytes, bytes]:
    """The reply to a message and the context after it, all in Flower's serialisation."""
    from fedmerit.flower.app import client as app  # after we listen: this takes seconds

    state = context_from_proto(ProtoContext.FromString(context))
    reply = app(message_from_proto(ProtoMessage.FromString(message)), state)
    return message_to_proto(reply).SerializeToString(), context_to_proto(state).SerializeToString()


def _end_with(watched: int, path: Path, inode: int) -> None:
    """Wait until that process ends; then end at once."""
    select.select([watched], [], [])
    _remove(path, inode)
    os._exit(0)


def _remove(path: Path, inode: int) -> None:
    """Remove the socket, unless it is another worker's by now."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
