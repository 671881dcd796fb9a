"""A fenced Grid: a reply whose bytes make no message costs its node alone, also where Flower's strategies pull it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from test_merit import NODES, SETTINGS, make_app, record

from fedmerit import DS, LD, Recipe, device_aware, fedavg
from fedmerit.flower import InProcessGrid, Merit
from fedmerit.flower.grid import SafeGrid

BAD = 2


class Losing(InProcessGrid):
    """A grid that reads replies as Flower does: one that makes no message raises, and takes those beside it along."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        if any(one.metadata.src_node_id == 1000 + BAD for one in replies):
            raise ValueError("Unknown object \x1b[2J")
        return replies

    def deliver(self, message: Message) -> Message:
        reply = super().deliver(message)
        reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        return reply


@pytest.mark.parametrize("recipe", [fedavg(), device_aware(DS, LD)], ids=["fedavg", "a search"])
def test_under_merit_it_costs_its_node_alone_too(recipe: Recipe):
    with pytest.raises(ValueError, match="Unknown object"):
        FedAvg(**SETTINGS).start(Losing(make_app(recipe), NODES), record(np.arange(9.0)), num_rounds=1)
    strategy = Merit(recipe, **SETTINGS)
    result = strategy.start(Losing(make_app(recipe), NODES), record(np.arange(9.0)), num_rounds=2)
    assert list(result.evaluate_metrics_clientapp) == [1, 2]
    for one in strategy.records:
        assert sorted(one.ids) == [place for place in range(NODES) if place != BAD]
        (reason,) = one.dropped.values()
        assert reason.endswith("its reply cannot be read: ValueError: Unknown object \\x1b[2J")


def test_a_safe_grid_waits_no_longer_than_it_is_told():
    class Mute(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return super().pull_messages([name for name in message_ids if name != "1"])

    grid = SafeGrid(Mute(make_app(fedavg()), NODES))
    content = RecordDict({"arrays": record(np.arange(9.0))})
    asked = [Message(content, dst_node_id=node, message_type="evaluate") for node in grid.get_node_ids()]
    answers = list(grid.send_and_receive(asked, timeout=0.1))
    assert sorted(one.metadata.reply_to_message_id for one in answers) == ["2", "3", "4", "5"]
    assert list(grid.send_and_receive([])) == []
