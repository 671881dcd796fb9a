"""One exchange on a Grid: messages out, replies in until all are there or time is up; no reply ends it for others."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fedmerit.core.collect.late import Wait
from fedmerit.core.showing import printable
from fedmerit.core.types import ClientId
from fedmerit.flower.records import reason_of

POLL, SPARED, LONGEST = 0.2, 4.0, 3.0
"""Seconds between looks for replies: at least the first, as many times as long as a look took, at most the last.

A look is a request for each reply that is awaited, and each of them writes to the SuperLink's database. With many nodes
a pause of its own length keeps the SuperLink free for them; the most is what Flower itself waits.
"""
UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError),
    *(RecursionError, MemoryError, DecodeError),
)
"""What Flower raises where a node's bytes make no message; a connection that is lost raises others."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of one exchange: contents by client, reasons of who failed, seconds each took."""

    contents: Mapping[ClientId, RecordDict]
    failed: Mapping[ClientId, str]
    seconds: Mapping[ClientId, float]
    gone: Sequence[ClientId] = ()
    """Those of the failed whose node is gone, says the grid."""
    mute: Sequence[ClientId] = ()
    """Those of the failed that did not answer in time."""
    unanswered: Mapping[ClientId, str] = field(default_factory=dict)
    """The messages of those who were not waited for any longer."""


def pull(grid: Grid, names: Sequence[str]) -> tuple[list[Message], dict[str, str]]:
    """Replies that are there, and why others cannot be made of their bytes.

    One at a time: Flower confirms each before it reads it, and one that cannot be read would take the rest along.
    """
    replies: list[Message] = []
    broken: dict[str, str] = {}
    for name in names:
        try:
            replies += grid.pull_messages([name])
        except UNREADABLE as error:
            broken[name] = reason_of(error)
    return replies, broken


def looks(grid: Grid, waiting: Collection[str]) -> Iterator[tuple[list[Message], dict[str, str]]]:
    """What each look for replies brings, as `pull` has it, as long as some are awaited; whoever asks takes them away.

    After a look without a reply there is a pause.
    """
    while waiting:
        begun = time.monotonic()
        replies, broken = pull(grid, list(waiting))
        took = time.monotonic() - begun
        yield replies, broken
        if waiting and not replies:
            time.sleep(min(max(POLL, SPARED * took), LONGEST))


def send(
    grid: Grid, contents: Mapping[int, tuple[int, RecordDict]], kind: str, timeout: float, wait: Wait | None = None
) -> Exchange:
    """Push, then pull until all have answered or time is up; replies belong to the message they reply to.

    With `wait` an exchange ends when enough have answered; the others are late, not mute.
    """
    messages = [Message(content, dst_node_id=node, message_type=kind) for node, content in contents.values()]
    begun = time.monotonic()
    ids = list(grid.push_messages(messages)) if messages else []
    waiting = {name: key for name, key in zip(ids, contents, strict=False) if name}
    got: dict[int, RecordDict] = {}
    failed = {key: "its message could not be sent" for key in contents if key not in waiting.values()}
    seconds: dict[int, float] = {}
    gone: list[int] = []
    over = False
    for replies, broken in looks(grid, waiting):
        for name, reason in broken.items():
            failed[waiting.pop(name)] = reason
        for reply in replies:
            key = waiting.pop(reply.metadata.reply_to_message_id, None)
            if key is None:
                continue  # not an answer to anything that is open: late, repeated or made up
            seconds[key] = time.monotonic() - begun
            if reply.has_error():
                text = f"its node answered with an error: {reply.error.reason or reply.error.code}"
                failed[key] = printable(text)
                gone += [key] if reply.error.code == ErrorCode.NODE_UNAVAILABLE else []
            else:
                got[key] = reply.content
        passed = time.monotonic() - begun
        over = wait is not None and wait.is_over(len(got), len(messages), passed)
        if not replies and (over or passed > timeout):
            break
    unanswered = {key: name for name, key in waiting.items()}
    if over:
        whole = wait is not None and wait.overselect > 1 and len(got) >= wait.needed(len(messages))
        text = "not needed: enough others had answered after" if whole else "late: no answer within"
        failed |= dict.fromkeys(unanswered, f"{text} {time.monotonic() - begun:.0f} s")
        return Exchange(got, failed, seconds, gone, unanswered=unanswered)
    failed |= dict.fromkeys(unanswered, f"no answer within {timeout:g} s")
    return Exchange(got, failed, seconds, gone, list(unanswered))
