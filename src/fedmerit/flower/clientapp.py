"""The client's side on Flower: a ClientApp that trains, tests and takes rewards; its state keeps a personal model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedmerit.core.host import predict_rows
from fedmerit.core.learner import Learner
from fedmerit.core.models.rewards import Acceptance, wrong_reward
from fedmerit.core.objectives import find_objective
from fedmerit.core.server.centring import feature_sums
from fedmerit.core.targets import count_losses, has_losses, right_rows
from fedmerit.core.types import Model, Samples
from fedmerit.fleet.client import Job, deceive, train_clients
from fedmerit.flower.arrays import Unfit
from fedmerit.flower.records import (
    ARRAYS,
    EXTRA,
    REWARDED,
    TRAINED,
    array,
    as_mixtures,
    as_reward,
    has_array,
    pack,
    pack_sums,
    sent_extras,
    setting,
    tag_of,
)
from fedmerit.tasks.registry import ClientHalf

PERSONAL, TAG = "personal model", "personal tag"
"""Where the client's personal model lies in its state, and which state of it that is."""


def make_client_app(half: Callable[[Context], ClientHalf]) -> ClientApp:
    """A ClientApp; `half` finds what the node of a context holds, and should remember it."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        mine = half(context).data
        config = {"client": mine.id, "name": mine.name, "personal": personal_tag(context)}
        return Message(pack(config=config), reply_to=message)

    @app.query("sum")
    def sum_features(message: Message, context: Context) -> Message:
        return Message(pack_sums(feature_sums(half(context).data.train.x)), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(train_client(half(context), message.content, context), reply_to=message)

    @app.train("reward")
    def reward(message: Message, context: Context) -> Message:
        return Message(take_reward(half(context), message.content, context), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(test_models(half(context), message.content, context), reply_to=message)

    @app.evaluate("audit")
    def audit(message: Message, context: Context) -> Message:
        return Message(audit_model(half(context), message.content, context), reply_to=message)

    return app


def personal_model(context: Context) -> Model | None:
    """The client's personal model, where it has one."""
    record = context.state.get(PERSONAL)
    return np.asarray(record["model"].numpy(), dtype=np.float32) if isinstance(record, ArrayRecord) else None


def personal_tag(context: Context) -> int:
    """Which state of its personal model the client has; 0 where it has none."""
    record = context.state.get(TAG)
    return int(cast(int, record["tag"])) if isinstance(record, ConfigRecord) else 0


def _keep_personal(context: Context, model: Model, tag: int) -> None:
    """From now on; unless training ran away: then the client stays with what it has."""
    if np.isfinite(model).all():
        context.state[PERSONAL], context.state[TAG] = pack({"model": model})[ARRAYS], ConfigRecord({"tag": tag})


def _asked(content: RecordDict, context: Context, name: str = "model") -> Model:
    """The model that came along; where none did, the client's own."""
    own = None if has_array(content, name) else personal_model(context)
    return np.asarray(array(content, name), dtype=np.float32) if own is None else own


def train_client(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Train, and answer with the update and the facts asked for."""
    index, seed, attack, epochs = (setting(content, name, int) for name in ("round", "seed", "attack", "epochs"))
    facts, own, lr = setting(content, "facts", list), setting(content, "personal", str), setting(content, "lr", float)
    start, sent = _asked(content, context), has_array(content, "model")
    extras = {name: np.asarray(array(content, EXTRA + name), dtype=np.float32) for name in sent_extras(content)}
    budget = setting(content, "budget", float)
    job = Job(start, half.data.train, seed, epochs or None, extras, lr or None, budget or None)
    (answer,) = train_clients(half.learner, [job], facts)
    answer = deceive(answer, half.coalition, half.data.train.classes, attack, index)
    if own == "keep":
        _keep_personal(context, start + answer.update, tag_of(index, TRAINED))
    elif own == "reset" and sent:
        _keep_personal(context, start, tag_of(index, TRAINED))
    vectors = {EXTRA + name: vector for name, vector in answer.extras.items()}
    return pack({"update": answer.update, **vectors}, {"personal": personal_tag(context)}, answer.facts)


def take_reward(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Test the personal model without and with the reward, and take it or leave it."""
    own, reward = personal_model(context), as_reward(content)
    reason = "it has no personal model to add a reward to" if own is None else wrong_reward(reward, len(own))
    if own is None or reason:
        return pack(config={"reason": reason}, metrics={"accepted": 0})
    offered = reward.added_to(own)
    before, after = (_accuracy(half, model) for model in (own, offered))
    accepted = Acceptance(setting(content, "sigma", float))(before, after)
    if accepted:
        _keep_personal(context, offered, tag_of(setting(content, "round", int), REWARDED))
    return pack(config={"reason": ""}, metrics={"accepted": int(accepted), "before": before, "after": after})


def _accuracy(half: ClientHalf, model: Model) -> float:
    rows = half.data.validation
    return float(right_rows(half.learner, model, rows.x, rows.y).mean()) if len(rows) else float("nan")


def _rows(half: ClientHalf, on: str) -> Samples:
    """The rows that a server asks about."""
    rows = {"training": half.data.train, "validation": half.data.validation}
    return rows.get(on, half.data.test)


def test_models(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """How many rows the client gets right with each model, or with its personal one; and the losses, if asked."""
    rows, number = _rows(half, setting(content, "on", str)), setting(content, "models", int)
    models: Iterable[Model] = as_mixtures(content) or [_asked(content, context, str(i)) for i in range(number)]
    if setting(content, "losses", bool):
        return pack(metrics=_losses(half.learner, rows, models) | {"size": [len(rows)]})
    right = [int(right_rows(half.learner, model, rows.x, rows.y).sum()) if len(rows) else 0 for model in models]
    return pack(metrics={"correct": right, "size": [len(rows)]})


def _losses(learner: Learner, rows: Samples, models: Iterable[Model]) -> dict[str, list[int]]:
    """Right rows and the sum of the losses, for each model."""
    if not has_losses(learner):
        raise Unfit("losses need a learner with a method `predict_proba`")
    if not len(rows):
        nothing = [0 for _ in models]
        return {"correct": nothing, "losses": nothing}
    counted = [count_losses(learner, model, rows.x, rows.y) for model in models]
    return {
        "correct": [int(right.sum()) for right, _ in counted],
        "losses": [int(losses.sum(dtype=np.int64)) for _, losses in counted],
    }


def audit_model(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Objectives of a model on the client's test rows; only these numbers leave the client."""
    model, rows = _asked(content, context), half.data.test
    predictions = predict_rows(half.learner, rows, [model])
    names = setting(content, "objectives", list)
    return pack(metrics={name: float(find_objective(name)(predictions)[0]) for name in names} if len(rows) else {})
