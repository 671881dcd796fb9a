"""A client's part of a round: train, measure facts, answer with the update."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks.attack import AnswerAttack, Coalition
from fedmerit.core.facts import LOSS, SECONDS, measure
from fedmerit.core.learner import BatchedLearner, ExtrasLearner, Learner, PulledLearner, ScheduledLearner
from fedmerit.core.seeds import derive
from fedmerit.core.targets import has_losses, row_losses
from fedmerit.core.types import Model, Samples, read_only
from fedmerit.core.updates import Updates

WIRES: Mapping[str, np.dtype[np.floating[Any]]] = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16)}
"""Types of the numbers that clients send, by the name in `run.wire`."""


@dataclass(frozen=True, slots=True)
class Job:
    """Training job of a client: start from this model on its rows; epochs or lr None: the learner's settings.

    With `local_model` (model, pull, sends) it trains its local model, pulled towards `start`: in addition to `start`,
    or with `sends` alone, and then the update is that of the local model.
    """

    start: Model
    samples: Samples
    seed: int
    epochs: int | None = None
    extras: Mapping[str, Model] = field(default_factory=dict)
    lr: float | None = None
    local_model: tuple[Model, float, bool] | None = None

    @property
    def sends_local(self) -> bool:
        """Whether the local model is sent."""
        return self.local_model is not None and self.local_model[2]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a client, and its duration; `extras` are the vectors that its learner sends in addition to the update.

    `local_model` is the client's local model after the round, which is not sent.
    """

    update: NDArray[np.float32]
    facts: dict[str, float]
    seconds: float
    extras: Mapping[str, Model]
    local_model: Model | None = None


def train_clients(learner: Learner, jobs: Sequence[Job], facts: Sequence[str]) -> list[Answer]:
    """Train these clients; return updates and facts. A client without rows trains nothing and reports samples = 0.

    Rows are in memory that all clients share, so a learner must not write to them. It gets copies of the model and of
    the vectors, so that in-place training changes nothing else.
    """
    jobs = [replace(job, start=read_only(job.start), samples=job.samples.read_only()) for job in jobs]
    full = [
        replace(job, start=job.start.copy(), extras={name: vector.copy() for name, vector in job.extras.items()})
        for job in jobs
        if len(job.samples) and not job.sends_local
    ]
    with shared_rows():
        losses = [mean_loss(learner, job) if LOSS in facts else 0.0 for job in jobs]
        begun = perf_counter()
        trained = iter(_train_all(learner, full))
        local_models = [_train_local(learner, job) for job in jobs]
    training = sum(len(job.samples) > 0 for job in jobs)
    seconds = (perf_counter() - begun) / max(training, 1)  # clients that are trained together share the time
    models = [
        next(trained)
        if len(job.samples) and not job.sends_local
        else (
            local if job.sends_local and local is not None else job.start,
            {name: np.zeros_like(job.start) for name in extra_names(learner)},
        )
        for job, local in zip(jobs, local_models, strict=True)
    ]
    return [
        Answer(
            _difference(model, job.start),
            measure(job.samples, facts, {SECONDS: seconds, LOSS: loss}),
            seconds,
            extras,
            local_model,
        )
        for job, (model, extras), loss, local_model in zip(jobs, models, losses, local_models, strict=True)
    ]


def _train_local(learner: Learner, job: Job) -> Model | None:
    """Train the client's local model, pulled towards the shared one; unchanged if the client has no rows."""
    if job.local_model is None:
        return None
    model, pull, _ = job.local_model
    at_rate = learner_at(learner, job.lr)
    if not isinstance(at_rate, PulledLearner):
        raise ValueError("a local model needs a learner with a method `train_pulled`; use TorchLearner")
    if not len(job.samples):
        return model
    return at_rate.train_pulled(model.copy(), job.start, pull, job.samples, derive(job.seed, "beside"), job.epochs)


@contextmanager
def shared_rows() -> Iterator[None]:
    """Silence torch's warning about read-only rows, which it only reads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        yield


def deceive(answer: Answer, coalition: Coalition | None, classes: int, seed: int, index: int) -> Answer:
    """Return what a client sends in place of its answer if it attacks on its own; `seed` is for this round only."""
    if coalition is None or index < coalition.from_round or not isinstance(coalition.attack, AnswerAttack):
        return answer
    update, facts = coalition.attack.answer(answer.update, answer.facts, classes, np.random.default_rng(seed))
    return replace(answer, update=update, facts=facts)


def as_sent(answer: Answer, wire: str) -> Answer:
    """Round what a client sends to the type that it is sent in, a key of `WIRES`; the server computes in float32.

    Both fleets round here, so that a simulation has the bits of a deployment. Values beyond the type's range become
    infinite, and the server then drops the client.
    """
    if wire == "float32":
        return answer
    vectors = {"update": answer.update, **answer.extras}
    with np.errstate(over="ignore"):
        rounded = {name: vector.astype(WIRES[wire]).astype(np.float32) for name, vector in vectors.items()}
    return replace(answer, update=rounded.pop("update"), extras=rounded)


def sent_bytes(vectors: Iterable[Updates], wire: str) -> int:
    """Bytes of vectors that clients sent in this type."""
    return sum(len(rows) * rows.length for rows in vectors) * WIRES[wire].itemsize


def mean_loss(learner: Learner, job: Job) -> float:
    """Mean loss of the received model on the client's rows; 0 without rows."""
    if not has_losses(learner):
        raise ValueError("the fact `loss` needs a learner with a method `predict_proba`; add it, or use TorchLearner")
    if not len(job.samples):
        return 0.0
    return float(row_losses(learner, job.start, job.samples.x, job.samples.y).mean())


def _difference(trained: Model, model: Model) -> NDArray[np.float32]:
    if trained.shape != model.shape:
        raise ValueError(f"the learner must return a model of shape {model.shape} (got {trained.shape})")
    return trained - model


def extra_names(learner: Learner) -> tuple[str, ...]:
    """Names of the vectors that the learner sends in addition to the update."""
    return learner.extras if isinstance(learner, ExtrasLearner) else ()


def group_size(learner: Learner) -> int:
    """Number of clients that the learner trains at once."""
    return learner.clients_at_once if isinstance(learner, BatchedLearner) else 1


def learner_at(learner: Learner, lr: float | None = None) -> Learner:
    """Return the learner with the round's learning rate, if the server sent one."""
    if lr is None:
        return learner
    if not isinstance(learner, ScheduledLearner):
        raise ValueError("the server sent a learning rate, but this learner has no method `at_rate`; add it")
    return learner.at_rate(lr)


def _train_all(learner: Learner, jobs: Sequence[Job]) -> list[tuple[Model, Mapping[str, Model]]]:
    rates = {job.lr for job in jobs}
    if len(rates) > 1:
        return [one for job in jobs for one in _train_all(learner, [job])]
    learner = learner_at(learner, *rates)
    if isinstance(learner, ExtrasLearner) and (learner.extras or any(job.extras for job in jobs)):
        return [learner.train_with(job.start, job.extras, job.samples, job.seed, job.epochs) for job in jobs]
    if any(job.extras for job in jobs):
        raise ValueError("the server sent control vectors, but this learner has no method `train_with`; add it")
    if len(jobs) > 1 and isinstance(learner, BatchedLearner):
        columns = ([job.start for job in jobs], [job.samples for job in jobs], [job.seed for job in jobs])
        return [(model, {}) for model in learner.train_batched(*columns, [job.epochs for job in jobs])]
    return [
        (learner.train(job.start, job.samples, job.seed, *([job.epochs] if job.epochs else [])), {}) for job in jobs
    ]
