"""The door of a fleet on Flower: nodes that were refused, and nodes that do not answer and are not waited for again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

log = logging.getLogger("flwr")
LONGER = 4
"""How many times as many rounds a node stays away after each further time that it let a deadline pass."""


@dataclass
class Door:
    """Who is outside, and why; `index` counts the times that the fleet looked for nodes.

    A node that lets a deadline pass is greeted without waiting. It is back when it answers: after the first time at
    once, then not before 4, 16, ... further looks.
    """

    index: int = 0
    mute: dict[int, int] = field(default_factory=dict)
    """Nodes that did not answer in time, and from which look on they are greeted."""
    strikes: dict[int, int] = field(default_factory=dict)
    greeted: dict[str, int] = field(default_factory=dict)
    """Greetings on their way: the message, and its node."""
    refused: dict[int, str] = field(default_factory=dict)

    def was_mute(self, node: int) -> None:
        """It did not answer in time."""
        strikes = self.strikes[node] = self.strikes.get(node, 0) + 1
        self.mute[node] = self.index if strikes == 1 else self.index + LONGER ** (strikes - 1)

    def due(self) -> list[int]:
        """The mute nodes to be greeted now."""
        waiting = set(self.greeted.values())
        return sorted(node for node, since in self.mute.items() if since <= self.index and node not in waiting)

    def forget_all_but(self, connected: Collection[int]) -> None:
        """Nodes that are gone come back with other numbers."""
        for of_nodes in (self.mute, self.strikes, self.refused):
            for node in [node for node in of_nodes if node not in connected]:
                of_nodes.pop(node, None)
        self.greeted = {name: node for name, node in self.greeted.items() if node in connected}

    def refuse(self, node: int, reason: str) -> None:
        """Told once in the log, not at every look."""
        if self.refused.get(node) != reason:
            log.warning("fedmerit: node %d is refused: %s", node, reason)
        self.refused[node] = reason
