"""A Grid without processes or network: ClientApps are called where they are; for tests and for a debugger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, cast

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """Nodes 1000, 1001, ... with partitions 0, 1, ...; each keeps its state between messages.

    `configs` stand for the partitions: a node's own configuration each, as `--node-config` gives it. Messages travel as
    bytes would: what a client changes in a record, the server does not see.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Any] | None = None,
        configs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        _name_this_process()
        self._app, self._replies, self._run = app, dict[str, Message](), Run.create_empty(run_id=1)
        self._numbers = count(1)  # of messages: a reply may be left lying while others are sent
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
        """The run that its messages are of."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that was set; an empty one before."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As Message does it."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Each message is answered at once."""
        ids = []
        for message in messages:
            name = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = name
            self._replies[name] = self.deliver(message)
            ids.append(name)
        return ids

    def deliver(self, message: Message) -> Message:
        """The node's reply, or an error with what it raised."""
        context = self._contexts.get(message.metadata.dst_node_id)
        if context is None:
            return Message(error=Error(code=ErrorCode.NODE_UNAVAILABLE, reason="node unavailable"), reply_to=message)
        try:
            return self._app(message, context)
        except Exception as error:  # a ClientApp may raise anything; Flower's nodes answer with an error, too
            reason = error.__cause__ or error
            return Message(
                error=Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=f"{type(reason).__name__}: {reason}"),
                reply_to=message,
            )

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies, each once."""
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull."""
        return self.pull_messages(self.push_messages(messages))


def _name_this_process() -> None:
    """Messages carry the run and the node they come from; where Flower did not start us, we are node 1 of run 1."""
    for name in ("_task_id", "_run_id", "_node_id"):
        if getattr(TaskIdentity, name) is None:
            setattr(TaskIdentity, name, 1)
