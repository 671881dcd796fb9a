"""The ClientApp of a node: each message goes to the node's resident worker; where there is none, it is answered here.

Flower starts a process for each message. This file, and what it imports, is all that such a process needs while a
worker holds torch, the rows and the model: see resident.py. Whatever goes wrong on the way to the worker, the message
is answered here, to the same bits.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
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
from fedmerit.flower.channel import ANSWER, BEAT, Broken, is_possible, peer, read_frame, send_frame, socket_of

RESIDENT = "resident"
"""Of a node's own configuration: `resident=false` answers every message in a process of its own."""
PATIENCE = 120.0
"""Seconds without a sign of life after which a worker is given up; one that computes gives one every few seconds."""
log = logging.getLogger("flwr")
_started: list[subprocess.Popen[bytes]] = []
"""Workers outlive us; kept, because a Popen that is let go while its process runs complains."""


class NodeApp(ClientApp):
    """A ClientApp that hands its messages to the node's resident worker."""

    def __call__(self, message: Message, context: Context) -> Message:
        """The worker's reply, with the state that it left; ours where it has none."""
        reply = ask(message, context, os.getppid()) if wants_resident(context) else None
        if reply is not None:
            return reply
        from fedmerit.flower.app import client as here  # all that a worker would have imported

        return here(message, context)


client = NodeApp()


def wants_resident(context: Context) -> bool:
    """Whether this node keeps a worker; it does unless its configuration says `resident=false`."""
    wanted = context.node_config.get(RESIDENT, True)
    if not isinstance(wanted, bool):
        raise ConfigError(f"{RESIDENT} of --node-config is true or false; got {wanted!r}")
    return wanted and is_possible()


def ask(message: Message, context: Context, owner: int, patience: float = PATIENCE) -> Message | None:
    """The reply of the worker that lives as long as the process `owner`; None, and a line in the log, without one."""
    try:
        request = message_to_proto(message).SerializeToString(), context_to_proto(context).SerializeToString()
        with reach(socket_of(owner, context.run_id), owner, patience) as connection:
            try:
                answer, state = _exchange(connection, request)
            except TimeoutError:  # it hangs, and would for the next message, too; the other end is this process still
                with suppress(ProcessLookupError):
                    os.kill(peer(connection), signal.SIGKILL)
                raise
    except (Broken, OSError, ValueError, EncodeError, DecodeError) as error:
        log.warning(
            "fedmerit: the resident worker did not answer, this process does: %s", error or type(error).__name__
        )
        return None
    context.state = state.state
    return answer


def _exchange(connection: socket.socket, request: tuple[bytes, bytes]) -> tuple[Message, Context]:
    for part in request:
        send_frame(connection, part)
    while (word := read_frame(connection)) == BEAT:
        pass
    if word != ANSWER:
        raise Broken("it could not answer this message")
    answer, context = read_frame(connection), read_frame(connection)
    return message_from_proto(ProtoMessage.FromString(answer)), context_from_proto(ProtoContext.FromString(context))


def reach(path: Path, owner: int, patience: float) -> socket.socket:
    """A connection to the worker that listens there; where none does, one is started."""
    connection = _connected(path, patience)
    if connection is not None:
        return connection
    command = [sys.executable, "-P", "-m", "fedmerit.flower.resident", str(path), str(owner)]
    # in our group, as all of a SuperNode's processes are: who ends the group ends the worker
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _started.append(worker)
    ends = time.monotonic() + patience
    while (connection := _connected(path, patience)) is None:
        if worker.poll() is not None:
            raise Broken(f"it ended at once, with code {worker.returncode}")
        if time.monotonic() > ends:
            worker.kill()
            raise Broken(f"it did not begin to listen within {patience:g} s")
        time.sleep(0.02)
    return connection


def _connected(path: Path, patience: float) -> socket.socket | None:
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
