"""The client's side on Flower: a ClientApp that trains, tests, takes rewards and keeps its own model in its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedmerit.fleet.client import Job, answers
from fedmerit.flower.records import (
    ARRAYS,
    array,
    as_part,
    pack,
    setting,
)
from fedmerit.learn.base import ChanceLearner, Learner
from fedmerit.objectives import Answers, find_objective
from fedmerit.rewards import Acceptance, wrong_part
from fedmerit.seeds import derive
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.task import Task
from fedmerit.types import ClientId, Model, Samples

OWN = "own model"
"""Where the client's own model lies in its state."""


@dataclass(frozen=True, slots=True)
class ClientSide:
    """What one client holds: its place in the federation, its rows, and how it learns."""

    id: ClientId
    name: str
    train: Samples
    test: Samples
    validation: Samples
    learner: Learner

    @classmethod
    def of(cls, task: Task, client: ClientId) -> ClientSide:
        """One client of a task."""
        data = task.federation
        if not 0 <= client < len(data.names):
            raise ValueError(f"partition-id {client} is none of the {len(data.names)} clients of the task")
        test, validation = (_samples(data, split, client) for split in (data.test, data.validation))
        return cls(client, data.names[client], data.samples(client), test, validation, task.learner)

    def rows(self, on: str) -> Samples:
        """The rows that a server asks about."""
        return self.validation if on == "validation" else self.test


def _samples(data: Federation, split: Split, client: ClientId) -> Samples:
    rows = split.rows(client)
    attributes = {name: column[rows] for name, column in split.attributes.items()}
    return Samples(split.x[rows], split.y[rows], data.classes, attributes)


def make_client_app(side: Callable[[Context], ClientSide]) -> ClientApp:
    """A ClientApp; `side` finds what the node of a context holds, and should remember it."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        mine = side(context)
        config = {"client": mine.id, "name": mine.name, "own": own_model(context) is not None}
        return Message(pack(config=config), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(train_client(side(context), message.content, context), reply_to=message)

    @app.train("reward")
    def reward(message: Message, context: Context) -> Message:
        return Message(take_reward(side(context), message.content, context), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(test_models(side(context), message.content, context), reply_to=message)

    @app.evaluate("audit")
    def audit(message: Message, context: Context) -> Message:
        return Message(audit_model(side(context), message.content, context), reply_to=message)

    return app


def own_model(context: Context) -> Model | None:
    """The client's own model, where it has one."""
    record = context.state.get(OWN)
    return np.asarray(record["model"].numpy(), dtype=np.float32) if isinstance(record, ArrayRecord) else None


def _keep_own(context: Context, model: Model) -> None:
    """From now on; unless training ran away: then the client stays with what it has."""
    if np.isfinite(model).all():
        context.state[OWN] = pack({"model": model})[ARRAYS]


def _start(content: RecordDict, context: Context) -> Model:
    """The client's own model where the server asks for that and there is one, else the model that came along."""
    own = own_model(context) if setting(content, "own", str) else None
    return np.asarray(array(content, "model"), dtype=np.float32) if own is None else own


def train_client(side: ClientSide, content: RecordDict, context: Context) -> RecordDict:
    """Train, and answer with the update and the facts asked for."""
    index, seed, epochs = (setting(content, name, int) for name in ("round", "seed", "epochs"))
    needs, own = setting(content, "needs", list), setting(content, "own", str)
    start = _start(content, context)
    job = Job(start, side.train, derive(seed, "train", index, side.id), epochs or None)
    (answer,) = answers(side.learner, [job], needs)
    if own == "keep":
        _keep_own(context, start + answer.update)
    elif own == "reset" and own_model(context) is None:
        _keep_own(context, start)
    return pack({"update": answer.update}, {"own": own_model(context) is not None}, answer.facts)


def take_reward(side: ClientSide, content: RecordDict, context: Context) -> RecordDict:
    """Test the own model without and with the reward, and take it or leave it."""
    own, part = own_model(context), as_part(content)
    reason = "it has no model of its own to add a reward to" if own is None else wrong_part(part, len(own))
    if own is None or reason:
        return pack(config={"reason": reason}, metrics={"accepted": 0})
    offered = part.added_to(own)
    before, after = (_accuracy(side, model) for model in (own, offered))
    accepted = Acceptance(setting(content, "sigma", float))(before, after)
    if accepted:
        _keep_own(context, offered)
    return pack(config={"reason": ""}, metrics={"accepted": int(accepted), "before": before, "after": after})


def _accuracy(side: ClientSide, model: Model) -> float:
    rows = side.validation
    return float((side.learner.predict(model, rows.x) == rows.y).mean()) if len(rows) else float("nan")


def test_models(side: ClientSide, content: RecordDict, context: Context) -> RecordDict:
    """How many of its rows the client gets right with each model, or with its own."""
    rows, number = side.rows(setting(content, "on", str)), setting(content, "models", int)
    own = own_model(context) if setting(content, "own", str) else None
    models = [own] if own is not None else [np.asarray(array(content, str(place))) for place in range(number)]
    right = [int((side.learner.predict(model, rows.x) == rows.y).sum()) if len(rows) else 0 for model in models]
    return pack(metrics={"correct": right, "size": [len(rows)]})


def audit_model(side: ClientSide, content: RecordDict, context: Context) -> RecordDict:
    """Objectives of a model on the client's test rows; only these numbers leave the client."""
    own, rows = own_model(context) if setting(content, "own", str) else None, side.test
    model = np.asarray(array(content, "model"), dtype=np.float32) if own is None else own
    predicted = side.learner.predict(model, rows.x)[np.newaxis]
    chances = side.learner.chances(model, rows.x)[np.newaxis] if isinstance(side.learner, ChanceLearner) else None
    told = Answers(rows.y, rows.classes, rows.attributes, predicted, chances)
    names = setting(content, "objectives", list)
    return pack(metrics={name: float(find_objective(name)(told)[0]) for name in names} if len(rows) else {})
