"""A ClientApp in a line, for tests of strategies: what its nodes train and report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

Arrays = Mapping[str, np.ndarray]
Reports = Callable[[int], Mapping[str, Any]]
Tests = Callable[[int, Arrays], Mapping[str, Any]]


def move_by_place(place: int, arrays: Arrays) -> Arrays:
    """The first node adds 1 to the model, the second 2, ..."""
    return {name: array + np.float32(1 + place) for name, array in arrays.items()}


def make_app(
    train: Reports,
    test: Tests | None = None,
    move: Callable[[int, Arrays], Arrays] = move_by_place,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Nodes train by `move` and report `train`; they test by `test`. Each gets the node's partition."""
    app = ClientApp(mods=list(mods))

    def opened(message: Message, context: Context) -> tuple[int, dict[str, np.ndarray]]:
        arrays = message.content["arrays"].items()
        return int(context.node_config["partition-id"]), {name: array.numpy() for name, array in arrays}

    @app.train()
    def _(message: Message, context: Context) -> Message:
        place, arrays = opened(message, context)
        trained = ArrayRecord({name: Array(array) for name, array in move(place, arrays).items()})
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord(dict(train(place)))}), reply_to=message)

    if test is not None:

        @app.evaluate()
        def _(message: Message, context: Context) -> Message:
            metrics = MetricRecord(dict(test(*opened(message, context))))
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def everybody(nodes: int) -> dict[str, Any]:
    """The settings of a strategy that asks all nodes in each round."""
    return {"min_train_nodes": nodes, "min_available_nodes": nodes, "min_evaluate_nodes": nodes}
