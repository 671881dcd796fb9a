"""Drive a Flower strategy through `configure_train` and `aggregate_train`, with replies that a law wrote down."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedmerit.checks.rounds import (
    CLIENTS,
    MODEL,
    TEST_ROWS,
    Outcome,
    Reply,
    Round,
    Subject,
    accuracy_and_loss,
    outcome_of,
    predict,
    quiet,
)
from fedmerit.core.facts import LOSS, SAMPLES
from fedmerit.core.recipe import Recipe
from fedmerit.errors import UserError
from fedmerit.flower.in_process import InProcessGrid
from fedmerit.flower.merit import Merit
from fedmerit.flower.messages import to_vector

COUNTER = "steps"
"""The integer array of a model with mixed dtypes."""
MOST_CALLS = 5
"""Calls of `get_node_ids` in one round, after which a strategy waits for nodes that do not exist."""


class TestingGrid(InProcessGrid):
    """Nodes that test models; a strategy that waits for more nodes is an error."""

    calls = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids, unless the strategy keeps asking for them."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise UserError(f"the strategy waits for more than {CLIENTS} nodes; lower its min_available_nodes")
        return super().get_node_ids()


def _test(rows: int, message: Message, context: Context) -> Message:
    (received,) = message.content.array_records.values()
    accuracy, loss = accuracy_and_loss(to_vector(received))
    metrics = MetricRecord({"num-examples": rows, "accuracy": accuracy, "loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def strategy_subject(weighting: Any, metrics: Mapping[str, Any]) -> Subject:
    """Put a strategy under test; every run starts with a copy of it, or with what the function makes."""
    is_made = hasattr(weighting, "aggregate_train") and not isinstance(weighting, type)
    make: Callable[[], Strategy] = partial(copy_of, weighting) if is_made else weighting
    recipe = getattr(make(), "recipe", None)
    return Subject(partial(_run, make, metrics), recipe if isinstance(recipe, Recipe) else None, on_flower=True)


def merit_of(recipe: Recipe) -> Subject:
    """Put a recipe on Flower under test; the server has the rows that laws use."""
    return strategy_subject(Merit(recipe, server_evaluate=lambda models: predict(map(to_vector, models))), {})


def copy_of(strategy: Strategy) -> Strategy:
    """Copy a strategy; a `Merit` is made again with its settings, because its ledger cannot be copied."""
    if type(strategy) is Merit:
        names = ("recipe", "seed", "server_evaluate", "limits", *inspect.signature(FedAvg).parameters)
        return Merit(**{name: getattr(strategy, name) for name in names})
    try:
        return deepcopy(strategy)
    except Exception as error:  # a strategy may hold anything
        raise UserError(
            f"the strategy cannot be copied ({type(error).__name__}: {error}); pass a function that makes it: "
            f"check_weighting(lambda: {type(strategy).__name__}(...))"
        ) from None


def _run(
    make: Callable[[], Strategy],
    metrics: Mapping[str, Any],
    *rounds: Round,
    mixed: bool = False,
    test_rows: int | None = None,
) -> Outcome:
    """Run the rounds; with `test_rows`, the nodes also test the model after each, and report this number of rows."""
    strategy, arrays, app = make(), _record(_named(MODEL, mixed)), ClientApp()
    raised: Exception | None = None
    app.evaluate()(partial(_test, TEST_ROWS if test_rows is None else test_rows))
    with quiet():
        for number, replies in enumerate(rounds, 1):
            grid = TestingGrid(app, CLIENTS)
            asked = strategy.configure_train(number, arrays, ConfigRecord(), grid)
            messages = sorted(asked, key=lambda message: message.metadata.dst_node_id)
            if len(messages) < CLIENTS:
                raise UserError(f"the strategy asks {len(messages)} of {CLIENTS} nodes; set fraction_train=1.0")
            key = getattr(strategy, "weighted_by_key", "num-examples")
            answers = [] if replies is None else _answers(messages, replies, metrics, key)
            try:
                arrays = strategy.aggregate_train(number, answers)[0] or arrays
                if test_rows is not None:
                    tests = strategy.configure_evaluate(number, arrays, ConfigRecord(), grid)
                    strategy.aggregate_evaluate(number, grid.send_and_receive(tests))
            except Exception as error:  # whatever a strategy raises ends the run
                raised = raised or error
    after = {name: array.numpy() for name, array in arrays.items()}
    model = np.concatenate([np.ravel(one) for name, one in after.items() if name != COUNTER])
    form = {name: (one.shape, one.dtype.name) for name, one in after.items()}
    record = strategy.records[-1] if isinstance(strategy, Merit) and strategy.records else None
    return outcome_of(model, form, record, raised)


def _answers(
    messages: list[Message], replies: Mapping[int, Reply], metrics: Mapping[str, Any], key: str
) -> list[Message]:
    """Make the messages of a round: replies, errors, repeated replies, and the reply of a node that was not asked."""
    answers, unasked = [], Message(messages[0].content, dst_node_id=1, message_type=MessageType.TRAIN)
    for client, message in enumerate([*messages, *([unasked] if CLIENTS in replies else [])]):
        message.metadata.__dict__["_message_id"] = f"{client}"  # a grid does this when it sends a message
        reply, (received,) = replies.get(client), message.content.array_records.values()
        if reply is None:
            answers.append(Message(error=Error(0, "an error"), reply_to=message))
            continue
        update = _named(reply.update, COUNTER in received)
        trained = {name: array.numpy() + update[name].astype(array.dtype) for name, array in received.items()}
        reported = {"train_loss": reply.facts.get(LOSS, 1.0), **metrics, **reply.facts}
        named = MetricRecord({key if name == SAMPLES else name: value for name, value in reported.items()})
        for _ in range(1 + reply.twice):
            content = RecordDict({"arrays": _record(reply.arrays(trained)), "metrics": named})
            answers.append(Message(content, reply_to=message))
    return answers


def _named(vector: Any, mixed: bool) -> dict[str, Any]:
    """Split a vector into a matrix of two rows and a bias; with `mixed`, the bias is float64 and there is a counter."""
    arrays = {"layer.weight": vector[:-2].reshape(2, -1), "layer.bias": vector[-2:]}
    return arrays | ({"layer.bias": vector[-2:].astype(np.float64), COUNTER: np.array(3)} if mixed else {})


def _record(arrays: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.array(one, order="C")) for name, one in arrays.items()})
