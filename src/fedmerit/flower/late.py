"""Late answers on a Grid: messages that were not waited for any longer, and what came of them after all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedmerit.core.types import ClientId
from fedmerit.flower.exchange import pull


@dataclass(frozen=True, slots=True)
class LateMessage:
    """A message without an answer yet: to which node, and of which round where the answer is still of use."""

    node: int
    name: str
    index: int | None = None
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class StaleAnswer:
    """What a client answered to an earlier round, and how long it took."""

    index: int
    content: RecordDict
    seconds: float


@dataclass
class LateAnswers:
    """Who is late, and whose answer came in the meantime; with `used`, answers to training are kept for a round."""

    used: bool = False
    waiting: dict[ClientId, LateMessage] = field(default_factory=dict)
    arrived: dict[ClientId, StaleAnswer] = field(default_factory=dict)

    def __contains__(self, client: ClientId) -> bool:
        return client in self.waiting

    def hear(self, grid: Grid, nodes: Mapping[ClientId, int]) -> list[ClientId]:
        """Look for answers; who has answered, or has a new node, can be asked again and is returned."""
        if not self.waiting:
            return []
        replies, broken = pull(grid, [late.name for late in self.waiting.values()])
        there = {reply.metadata.reply_to_message_id: reply for reply in replies}
        back = []
        for client, late in list(self.waiting.items()):
            reply = there.get(late.name)
            if reply is None and late.name not in broken and nodes.get(client) == late.node:
                continue
            del self.waiting[client]
            back.append(client)
            if self.used and late.index is not None and reply is not None and not reply.has_error():
                self.arrived[client] = StaleAnswer(late.index, reply.content, time.monotonic() - late.since)
        return back

    def take(self, index: int) -> dict[ClientId, StaleAnswer]:
        """The answers to rounds before this one, each once."""
        taken = {client: answer for client, answer in self.arrived.items() if answer.index < index}
        self.arrived = {client: answer for client, answer in self.arrived.items() if client not in taken}
        return taken
