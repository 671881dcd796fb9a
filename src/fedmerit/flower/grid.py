"""Exchanges on a Grid: send messages, then collect replies until all have arrived or the timeout is over.

An unreadable reply drops its node, not the round. This module also has a grid that is safe for
Flower's own strategies. It uses only Flower's public interface, because `Merit` must work on future versions.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fedmerit.core.collect.wait import Wait
from fedmerit.core.showing import printable
from fedmerit.core.types import ClientId
from fedmerit.flower.messages import read_replies, reason_of, release_arrays

POLL_SECONDS, POLL_RATIO, MAX_POLL_SECONDS = 0.2, 4.0, 3.0
"""The pause between polls is `POLL_RATIO` times the duration of the last poll, clipped to the two limits.

A poll sends one request for each awaited reply, and each request writes to the SuperLink's database. With many nodes, a
longer pause leaves the SuperLink time to serve them. The maximum is Flower's own pause.
"""
PUSH_TRIES = 10
"""Attempts to push messages to a SuperLink that restarts during the push."""
T = TypeVar("T")
UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError),
    *(RecursionError, MemoryError, DecodeError),
)
"""Errors that Flower raises if a node's bytes are not a valid message; a lost connection raises other errors."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Result of one exchange: what was read of each answer, reasons of failures, seconds until each answer."""

    answers: dict[ClientId, Any]
    failed: Mapping[ClientId, str]
    seconds: Mapping[ClientId, float]
    gone: Sequence[ClientId] = ()
    """Failed clients whose node is disconnected, according to the grid."""
    mute: Sequence[ClientId] = ()
    """Failed clients that did not answer before the timeout."""
    unanswered: Mapping[ClientId, str] = field(default_factory=dict)
    """Message ids of late clients, which the exchange no longer waits for."""


def push(grid: Grid, messages: Sequence[Message]) -> list[str]:
    """Push messages and return their ids, "" for a message that could not be sent.

    A SuperLink that restarts during a push has lost the session and refuses the remaining messages. They are then
    pushed again with the same ids, and the SuperLink stores each once.
    """
    for _ in range(PUSH_TRIES - 1):
        try:
            return list(grid.push_messages(messages)) if messages else []
        except Exception as error:
            if type(error).__name__ != "ObjectPushError":  # by name: the class is not part of Flower's public interface
                raise
        time.sleep(POLL_SECONDS)
    return list(grid.push_messages(messages))


def pull(grid: Grid, message_id: str) -> Message | str | None:
    """Pull the reply to a message: the reply, the reason why it is unreadable, or None before it has arrived.

    Replies are pulled one at a time. Flower confirms a batch before it reads it, so one unreadable reply would lose the
    remaining ones.
    """
    try:
        replies = list(grid.pull_messages([message_id]))
    except UNREADABLE as error:
        return reason_of(error)
    return next((reply for reply in replies if reply.metadata.reply_to_message_id == message_id), None)


def poll(grid: Grid, waiting: dict[str, T], is_over: Callable[[], bool]) -> Iterator[tuple[T, Message | str]]:
    """Pull repeatedly until no message waits for its reply, or until no reply has arrived and the exchange is over.

    Yields what `waiting` has under the message's id, which is removed, and the reply or the reason why it is
    unreadable. Each reply is yielded before the next one is pulled, so that a caller can bound the memory that replies
    take.
    """
    while waiting:
        begun, before = time.monotonic(), len(waiting)
        for message_id in list(waiting):
            reply = pull(grid, message_id)
            if reply is not None:
                yield waiting.pop(message_id), reply
        if len(waiting) == before:
            seconds = time.monotonic() - begun
            if is_over():
                return
            time.sleep(min(max(POLL_SECONDS, POLL_RATIO * seconds), MAX_POLL_SECONDS))


def exchange(
    grid: Grid,
    contents: Mapping[int, tuple[int, RecordDict]],
    kind: str,
    timeout: float,
    read: Callable[[RecordDict], Any],
    wait: Wait | None = None,
) -> Exchange:
    """Send one message per client, then pull until all clients have answered or the timeout is over.

    contents  (node, content) by client
    kind      Flower's message type
    timeout   seconds
    read      reads each answer as it arrives, after which its arrays are released; an unreadable answer has failed
    wait      end the exchange when enough clients have answered; the remaining clients are late, not mute

    A reply is assigned to a client by the id of the message that it replies to.
    """
    messages = [Message(content, dst_node_id=node, message_type=kind) for node, content in contents.values()]
    begun = time.monotonic()
    ids = push(grid, messages)
    waiting = {message_id: client for message_id, client in zip(ids, contents, strict=False) if message_id}
    answers: dict[int, Any] = {}
    failed = {client: "its message could not be sent" for client in contents if client not in waiting.values()}
    seconds: dict[int, float] = {}
    gone: list[int] = []

    def enough() -> bool:
        return wait is not None and wait.is_over(len(answers), len(messages), time.monotonic() - begun)

    for client, reply in poll(grid, waiting, lambda: enough() or time.monotonic() - begun > timeout):
        if isinstance(reply, str):
            failed[client] = reply
            continue
        seconds[client] = time.monotonic() - begun
        if reply.has_error():
            failed[client] = printable(error_text(reply))
            gone += [client] if reply.error.code == ErrorCode.NODE_UNAVAILABLE else []
        else:
            fine, unread = read_replies(read, {client: reply.content})
            answers.update(fine)
            failed.update(unread)
            release_arrays(reply.content)
    answers = dict(sorted(answers.items()))
    unanswered = {client: message_id for message_id, client in waiting.items()}
    if enough():
        failed |= dict.fromkeys(unanswered, f"late: no answer within {time.monotonic() - begun:.0f} s")
        return Exchange(answers, failed, seconds, gone, unanswered=unanswered)
    failed |= dict.fromkeys(unanswered, f"no answer within {timeout:g} s")
    return Exchange(answers, failed, seconds, gone, list(unanswered))


def exchange_in_order(
    grid: Grid,
    contents: Mapping[ClientId, tuple[int, RecordDict]],
    kind: str,
    timeout: float,
    read: Callable[[RecordDict], T],
) -> Iterator[tuple[ClientId, T | str, bool]]:
    """Send one message per client, then read the answers in this order, each pulled when its turn comes.

    Yields the client, what was read or the reason of a missing answer, and whether its node is lost. Later answers wait
    at the SuperLink, so that one answer at a time is in memory here. The timeout is for all.
    """
    messages = [Message(content, dst_node_id=node, message_type=kind) for node, content in contents.values()]
    begun = time.monotonic()
    for client, message_id in zip(contents, push(grid, messages), strict=False):
        reply: Message | str | None = None if message_id else "its message could not be sent"
        while reply is None and (reply := pull(grid, message_id)) is None:
            if time.monotonic() - begun > timeout:
                break
            time.sleep(POLL_SECONDS)
        if isinstance(reply, Message) and reply.has_error():
            yield client, printable(error_text(reply)), reply.error.code == ErrorCode.NODE_UNAVAILABLE
        elif isinstance(reply, Message):
            fine, unread = read_replies(read, {client: reply.content})
            yield client, fine[client] if fine else unread[client], False
        else:
            yield client, reply or f"no answer within {timeout:g} s", reply is None


def error_text(reply: Message) -> str:
    """Describe a reply that is an error."""
    reason = reply.error.reason or str(reply.error.code)
    refused = reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION  # the node's policy (policy.py)
    return reason if refused else f"its node answered with an error: {reason}"


def answered_late(
    grid: Grid, waiting: Mapping[ClientId, tuple[int, str]], nodes: Mapping[ClientId, int]
) -> list[ClientId]:
    """Pull and drop late answers; return the clients that answered or have a new node, and so are available again.

    `waiting` has the node and the id of each client's unanswered message.
    """
    return [
        client
        for client, (node, message_id) in waiting.items()
        if pull(grid, message_id) is not None or nodes.get(client) != node
    ]


class SafeGrid:
    """A wrapper of a Grid that turns an unreadable reply into an error reply of its node.

    `receive` is called with each reply as it arrives.

    Flower's `send_and_receive` pulls all replies at once and raises at the first unreadable one. The remaining replies
    are then lost, and the run ends. All other methods are those of the wrapped grid.
    """

    def __init__(self, grid: Grid, receive: Callable[[Message], None] = lambda reply: None) -> None:
        self._grid, self._receive = grid, receive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull until all nodes have answered or the timeout is over."""
        sent, begun = list(messages), time.monotonic()
        ids = push(self._grid, sent)
        waiting = {message_id: message for message_id, message in zip(ids, sent, strict=False) if message_id}
        answers: list[Message] = []

        def is_over() -> bool:
            return timeout is not None and time.monotonic() - begun > timeout

        for message, reply in poll(self._grid, waiting, is_over):
            if isinstance(reply, str):
                error = Error(code=ErrorCode.MESSAGE_UNAVAILABLE, reason=reply)
                answers.append(Message(error=error, reply_to=message))
            else:
                self._receive(reply)
                answers.append(reply)
        return answers
