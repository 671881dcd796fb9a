"""A fence around a Grid: a reply whose bytes make no message costs its node its part, and nobody the round."""

from __future__ import annotations

import time
from collections.abc import Iterable

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedmerit.flower.exchange import looks, pull


class FencedGrid(Grid):
    """Another grid, whose replies are pulled one by one.

    Flower's own pulls all at once and raises what the first unreadable one raises: the others are gone by then, and so
    is the run. Here such a reply is an error of its node, as if it had answered with one.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """As the grid does it."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The grid's."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As Message does it."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The grid's."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The grid's."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid does it."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there and can be read."""
        return pull(self._grid, list(message_ids))[0]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull until all have answered or time is up; who cannot be read has answered with an error."""
        sent, begun = list(messages), time.monotonic()
        names = self.push_messages(sent) if sent else ()
        waiting = {name: message for name, message in zip(names, sent, strict=False) if name}
        answers: list[Message] = []
        for replies, broken in looks(self._grid, waiting):
            for name, reason in broken.items():
                error = Error(code=ErrorCode.MESSAGE_UNAVAILABLE, reason=reason)
                answers.append(Message(error=error, reply_to=waiting.pop(name)))
            answers += [one for one in replies if waiting.pop(one.metadata.reply_to_message_id, None) is not None]
            if not replies and timeout is not None and time.monotonic() - begun > timeout:
                break
        return answers
