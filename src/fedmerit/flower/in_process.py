"""InProcessGrid: a Flower Grid without processes or network, for tests and debugging."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, cast

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """A Grid without processes or network, for tests and debugging: it calls the ClientApp directly.

    The ClientApp gets a copy of each message, and the server a copy of each reply, as over a network. Nodes 1000, 1001,
    ... have the partitions 0, 1, ..., or the node configurations `configs`, which Flower passes with `--node-config`.
    Each node keeps its state between messages.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Any] | None = None,
        configs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        for name in ("_task_id", "_run_id", "_node_id"):
            if getattr(TaskIdentity, name) is None:  # messages need an identity, and only Flower's processes have one
                setattr(TaskIdentity, name, 1)
        self._app, self._replies, self._run = app, dict[str, Message | None](), Run.create_empty(run_id=1)
        self._numbers = count(1)  # message ids are never reused: a reply may wait here while more are sent
        self._contexts = {
            1000 + place: Context(
                run_id=1,
                node_id=1000 + place,
                node_config=dict(configs[place]) if configs else {"partition-id": place, "num-partitions": nodes},
                state=RecordDict(),
                run_config=cast(Any, dict(run_config or {})),
            )
            for place in range(nodes)
        }

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message to a node."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver each message and store its reply; return the message ids."""
        ids = []
        for message in messages:
            message_id = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = message_id
            self._replies[message_id] = self.deliver(message)
            ids.append(message_id)
        return ids

    def deliver(self, message: Message) -> Message | None:
        """Return the node's reply, or an error reply if its app raises; a subclass may lose it and return None."""
        context = self._contexts.get(message.metadata.dst_node_id)
        if context is None:
            return Message(error=Error(code=ErrorCode.NODE_UNAVAILABLE, reason="node unavailable"), reply_to=message)
        try:
            return deepcopy(self._app(deepcopy(message), context))
        except Exception as error:  # a ClientApp may raise anything; Flower's nodes answer with an error, too
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__}: {cause}"
            return Message(error=Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages, each once."""
        replies = (self._replies.pop(message_id, None) for message_id in list(message_ids))
        return [reply for reply in replies if reply is not None]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull."""
        return self.pull_messages(self.push_messages(messages))
