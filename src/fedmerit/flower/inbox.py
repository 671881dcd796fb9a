"""Inbox: the training replies of one round of a Flower strategy, read as they arrive."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from fedmerit.core.facts import SAMPLES
from fedmerit.core.types import Model, Replies
from fedmerit.core.updates import Updates
from fedmerit.fleet.blocks import Block
from fedmerit.flower.grid import error_text
from fedmerit.flower.messages import InvalidRecord, reason_of, release_arrays, to_vector, vector_bytes


class Inbox:
    """Turn each reply into a row of updates: in memory, or in a file if they exceed a quarter of the RAM.

    messages  the training messages; each accepts one reply
    start     the model that was sent: an update is the trained model minus this one
    like      the model's arrays, which a reply must have too
    weight    the name of the metric with the number of rows
    """

    def __init__(self, messages: Sequence[Message], start: Model, like: ArrayRecord, weight: str) -> None:
        self._messages, self._start, self._like, self._weight = messages, start, like, weight
        self._block = Block.of_updates(len(messages), len(start))
        self._waiting: dict[str, int] | None = None
        self._rows: dict[int, int] = {}
        self._facts: dict[int, Mapping[str, Any]] = {}
        self._failed: dict[int, str] = {}
        self._bytes = 0
        self.contents: dict[int, RecordDict] = {}
        """The valid replies, by node."""

    def read(self, reply: Message, *, release: bool = False) -> None:
        """Read a reply, unless it was read before; `release` removes its arrays, which then are only in the row."""
        if self._waiting is None:  # messages get their ids when they are sent
            self._waiting = {one.metadata.message_id: one.metadata.dst_node_id for one in self._messages}
        node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            return
        row = self._block.array[len(self._rows)]
        try:
            self._facts[node] = self._read(reply, row)
            row -= self._start
            self._rows[node], self.contents[node] = len(self._rows), reply.content
            self._bytes += sum(vector_bytes(arrays) for arrays in reply.content.array_records.values())
        except Exception as error:  # whatever a node sent, it is dropped and the round continues
            self._failed[node] = reason_of(error)
        if release and not reply.has_error():
            release_arrays(reply.content)

    def _read(self, reply: Message, row: Model) -> dict[str, Any]:
        """Return the facts that a node reported, and write its model to the row."""
        if reply.has_error():
            raise InvalidRecord(error_text(reply))
        arrays, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise InvalidRecord(
                f"a reply must have one ArrayRecord and one MetricRecord (got {len(arrays)} and {len(metrics)})"
            )
        facts = dict(metrics[0])
        if self._weight in facts:
            facts[SAMPLES] = facts[self._weight]
        to_vector(arrays[0], self._like, row)
        return facts

    def replies(self) -> Replies:
        """All replies, by node; a node without a reply has failed."""
        waiting = {one.metadata.dst_node_id for one in self._messages} - self._rows.keys() - self._failed.keys()
        failed = {**self._failed, **dict.fromkeys(sorted(waiting), "no answer")}
        ids = tuple(sorted(self._rows))
        places = np.array([self._rows[node] for node in ids], dtype=np.intp)
        updates = Updates(self._block.array, places, self._block.release if self._block.on_disk else None)
        return Replies(ids, updates, tuple(self._facts[node] for node in ids), failed, bytes_up=self._bytes)
