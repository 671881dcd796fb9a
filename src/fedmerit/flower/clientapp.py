"""The ClientApp: train, test models, accept rewards.

The state of the node's context stores the client's personal model. `facts` and `clip_mod` are for your own Flower apps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedmerit.core.facts import ATTRIBUTE, OF_TRAINING, SAMPLES, measure
from fedmerit.core.host import predict_rows
from fedmerit.core.learner import base_hash
from fedmerit.core.models.rewards import Acceptance, wrong_reward
from fedmerit.core.objectives import find_objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.targets import count_losses, has_losses, right_rows
from fedmerit.core.types import Model, Samples
from fedmerit.errors import ConfigError
from fedmerit.fleet.client import WIRES, Job, as_sent, deceive, train_clients
from fedmerit.flower.kept import keep_update, reveal_shares, share_secrets, upload_masked, upload_update
from fedmerit.flower.messages import (
    ARRAYS,
    REWARDED,
    TRAINED,
    VECTOR,
    InvalidRecord,
    array,
    arrays_in,
    as_mixtures,
    as_reward,
    pack,
    setting,
    tag_of,
    to_arrays,
    to_vector,
)
from fedmerit.flower.policy import keep_policy, log_unknown_requests
from fedmerit.tasks.registry import ClientHalf

PERSONAL, TAG = "personal model", "personal tag"
"""Keys of the context's state: the client's personal model, and the tag of its version."""

OF_LABELS = ("labels", "coverage", "balance")


def make_client_app(half: Callable[[Context], ClientHalf]) -> ClientApp:
    """Make a ClientApp; `half` loads the data and the learner of a node, and should cache them."""
    app = ClientApp(mods=[keep_policy(half)])
    app.lifespan()(log_unknown_requests)

    def replying(answer: Callable[[ClientHalf, RecordDict, Context], RecordDict]) -> ClientAppCallable:
        return lambda message, context: Message(answer(half(context), message.content, context), reply_to=message)

    app.query("hello")(replying(hello))
    app.train()(replying(train_client))
    app.train("reward")(replying(accept_reward))
    app.train("upload")(replying(upload_update))
    app.train("share")(replying(share_secrets))
    app.train("masked")(replying(upload_masked))
    app.train("unmask")(replying(reveal_shares))
    app.evaluate()(replying(test_models))
    app.evaluate("audit")(replying(audit_model))
    return app


def hello(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Reply with the node's client id, its name, the version of its personal model and the hash of its base."""
    known = {"client": half.data.id, "name": half.data.name, "personal": personal_tag(context)}
    return pack(config=known | {"base": base_hash(half.learner)})


def personal_model(context: Context) -> Model | None:
    """The client's personal model, if it has one."""
    record = context.state.get(PERSONAL)
    return np.asarray(record["model"].numpy(), dtype=np.float32) if isinstance(record, ArrayRecord) else None


def personal_tag(context: Context) -> int:
    """The version of the client's personal model; 0 without one."""
    record = context.state.get(TAG)
    return int(cast(int, record["tag"])) if isinstance(record, ConfigRecord) else 0


def _keep_personal(context: Context, model: Model, tag: int) -> None:
    """Replace the personal model, unless training diverged."""
    if np.isfinite(model).all():
        context.state[PERSONAL], context.state[TAG] = pack({"model": model})[ARRAYS], ConfigRecord({"tag": tag})


def _model_in(content: RecordDict, context: Context, name: str = "model") -> Model:
    """The model in the message; without one, the client's personal model."""
    personal = None if name in arrays_in(content) else personal_model(context)
    return np.asarray(array(content, name), dtype=np.float32) if personal is None else personal


def train_client(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Train the model, and reply with the update and the facts that the server requested."""
    index, seed, attack, epochs = (setting(content, name, int) for name in ("round", "seed", "attack", "epochs"))
    personal, uploads, wire = (setting(content, name, str) for name in ("personal", "uploads", "wire"))
    if wire not in WIRES:
        raise InvalidRecord(f"setting 'wire' must be {' or '.join(WIRES)} (got {wire!r:.80})")
    lr, fact_names = setting(content, "lr", float), setting(content, "facts", list)
    start = _model_in(content, context)
    vectors = {
        name.removeprefix(VECTOR): np.asarray(array(content, name), dtype=np.float32)
        for name in arrays_in(content)
        if name.startswith(VECTOR)
    }
    job = Job(start, half.data.train, seed, epochs or None, vectors, lr or None)
    (answer,) = train_clients(half.learner, [job], fact_names)
    answer = as_sent(deceive(answer, half.coalition, half.data.train.classes, attack, index), wire)
    if personal == "keep":
        _keep_personal(context, start + answer.update, tag_of(index, TRAINED))
    elif personal == "reset" and "model" in arrays_in(content):
        _keep_personal(context, start, tag_of(index, TRAINED))
    if uploads != "now":
        update = answer.update.astype(WIRES[wire], copy=False)
        keys = keep_update(half, context, index, update, masked=uploads == "masked")
        return pack(config={"personal": personal_tag(context), **keys}, metrics=answer.facts)
    arrays = {"update": answer.update} | {VECTOR + name: vector for name, vector in answer.extras.items()}
    sent = {name: vector.astype(WIRES[wire], copy=False) for name, vector in arrays.items()}
    return pack(sent, {"personal": personal_tag(context)}, answer.facts)


def accept_reward(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Test the personal model without and with the reward, then accept or reject the reward."""
    personal, reward = personal_model(context), as_reward(content)
    reason = "it has no personal model" if personal is None else wrong_reward(reward, len(personal))
    if personal is None or reason:
        return pack(config={"reason": reason}, metrics={"accepted": 0})
    offered = reward.added_to(personal)
    before, after = (_accuracy(half, model) for model in (personal, offered))
    accepted = Acceptance(setting(content, "sigma", float))(before, after)
    if accepted:
        _keep_personal(context, offered, tag_of(setting(content, "round", int), REWARDED))
    return pack(config={"reason": ""}, metrics={"accepted": int(accepted), "before": before, "after": after})


def _accuracy(half: ClientHalf, model: Model) -> float:
    """Accuracy on the client's validation rows; NaN without any."""
    rows = half.data.validation
    return float(right_rows(half.learner, model, rows.x, rows.y).mean()) if len(rows) else float("nan")


def test_models(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Count the correct rows of each model, or of the personal model; sum the losses if requested."""
    rows, number = _rows_in(half, content), setting(content, "models", int)
    models: Iterable[Model] = as_mixtures(content) or [_model_in(content, context, str(i)) for i in range(number)]
    with_losses = setting(content, "losses", bool)
    if with_losses and not has_losses(half.learner):
        raise InvalidRecord("losses need a learner with a method `predict_proba`")
    counted = [_count(half, model, rows, with_losses) for model in models]
    losses = {"losses": [loss for _, loss in counted]} if with_losses else {}
    return pack(metrics={"correct": [right for right, _ in counted], "size": [len(rows)], **losses})


def _rows_in(half: ClientHalf, content: RecordDict) -> Samples:
    """The rows that a message is about."""
    splits = {"training": half.data.train, "validation": half.data.validation}
    return splits.get(setting(content, "on", str), half.data.test)


def _count(half: ClientHalf, model: Model, rows: Samples, with_losses: bool) -> tuple[int, int]:
    """Count the correct rows of a model, and sum its losses."""
    if not len(rows) or not with_losses:
        return int(right_rows(half.learner, model, rows.x, rows.y).sum()) if len(rows) else 0, 0
    right, losses = count_losses(half.learner, model, rows.x, rows.y)
    return int(right.sum()), int(losses.sum(dtype=np.int64))


def audit_model(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Compute objectives of a model on the client's rows; only these numbers leave the client."""
    model, rows = _model_in(content, context), _rows_in(half, content)
    predictions = predict_rows(half.learner, rows, [model])
    names = setting(content, "objectives", list)
    return pack(metrics={name: float(find_objective(name)(predictions)[0]) for name in names} if len(rows) else {})


def facts(y: Any, classes: int, recipe: Recipe | None = None, **attributes: Any) -> dict[str, float]:
    """Compute the facts that a ClientApp adds to its MetricRecord, for the `Merit` strategy.

    y           labels of the client's training rows: a tensor, an array, a pandas column or a list
    classes     number of classes of the task
    recipe      compute the facts that this recipe needs; default: all that can be computed from labels
    attributes  further facts: a column per row (`age_group=column`), or one number, text or boolean of the client
                itself (`age=34`, `job="nurse"`), for criteria such as `fact:age in 20..35`

    An app adds `seconds` and `loss` itself if the recipe needs them.

    >>> facts([0, 0, 1, 2], classes=4)
    {'labels': 3.0, 'coverage': 0.75, 'balance': 0.0}

    In a ClientApp: `MetricRecord({"num-examples": len(y), **facts(y, classes=10)})`.
    """
    labels = np.asarray(y, dtype=np.int64).reshape(-1)
    values = {name: np.asarray(value) for name, value in attributes.items()}
    columns = {name: value for name, value in values.items() if value.ndim}
    own = {name: value.item() for name, value in values.items() if not value.ndim}
    single = {name: str(value).lower() if isinstance(value, bool) else value for name, value in own.items()}
    required = [*OF_LABELS, *(ATTRIBUTE + name for name in columns)] if recipe is None else recipe.client_facts
    names = [name for name in required if name not in (SAMPLES, *OF_TRAINING)]
    return measure(Samples(np.empty((len(labels), 0)), labels, classes, columns, single), names)


def clip_mod(clip: float) -> Mod:
    """Make a Flower mod that clips the norm of an update on the client: `ClientApp(mods=[clip_mod(1.0)])`.

    A server that clips to the same norm then changes nothing. Use it for a fixed clip only: an adaptive clip needs the
    unclipped norms.
    """
    if not 0 < clip < np.inf:
        raise ConfigError(f"clip, the largest norm of an update, must be greater than 0 (got {clip}). Try 1.0.")

    def clipped(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Clip the update in the reply to a training message; leave other replies unchanged."""
        sent = list(message.content.array_records.values())
        start = to_arrays(to_vector(sent[0]), sent[0]) if len(sent) == 1 else None  # a copy: apps may train in place
        reply = call_next(message, context)
        if message.metadata.message_type != MessageType.TRAIN or reply.has_error():
            return reply
        trained = list(reply.content.array_records.items())
        if start is None or len(trained) != 1:
            raise ValueError(
                "clip_mod needs one ArrayRecord in the message and one in the reply "
                f"(got {len(sent)} and {len(trained)})"
            )
        reply.content[trained[0][0]] = clipped_model(start, trained[0][1], clip)
        return reply

    return clipped


def clipped_model(start: ArrayRecord, trained: ArrayRecord, clip: float) -> ArrayRecord:
    """Clip the update to the norm `clip`, over all arrays together.

    start + update * min(1, clip / |update|), where update = trained - start.
    """
    before = to_vector(start)
    update = to_vector(trained, start) - before
    factor = clip_factors(np.array([np.linalg.norm(update.astype(np.float64))]), clip)[0]
    return trained if factor == 1 else to_arrays(before + np.float32(factor) * update, start)
