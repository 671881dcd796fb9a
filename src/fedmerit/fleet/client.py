"""A client's side of a round: train, measure facts, answer with the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import LOSS, SECONDS, measure
from fedmerit.core.learner import BatchedLearner, Learner, ProbabilisticLearner
from fedmerit.core.types import Model, Samples

LEAST_CHANCE = 1e-12
"""So that one row that a model is sure to get wrong does not make a loss infinite."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a client has to do: train from this model on its rows; epochs None: as the learner is set up."""

    start: Model
    samples: Samples
    seed: int
    epochs: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What it answers, and how long it took."""

    update: NDArray[np.float32]
    facts: dict[str, float]
    seconds: float


def answers(learner: Learner, jobs: Sequence[Job], needs: Sequence[str]) -> list[Answer]:
    """Updates and facts of these clients; an empty one trains nothing and says samples = 0."""
    losses = [mean_loss(learner, job) if LOSS in needs else 0.0 for job in jobs]
    begun = perf_counter()
    full = [job for job in jobs if len(job.samples)]
    trained = iter(_train(learner, full))
    seconds = (perf_counter() - begun) / max(len(full), 1)  # clients trained at once share the time
    updates = [_difference(next(trained), job.start) if len(job.samples) else np.zeros_like(job.start) for job in jobs]
    return [
        Answer(update, measure(job.samples, needs, {SECONDS: seconds, LOSS: loss}), seconds)
        for job, update, loss in zip(jobs, updates, losses, strict=True)
    ]


def mean_loss(learner: Learner, job: Job) -> float:
    """Cross-entropy of the received model on the client's rows; 0 without rows."""
    if not isinstance(learner, ProbabilisticLearner):
        raise ValueError("the fact `loss` needs a learner with a method `chances`")
    if not len(job.samples):
        return 0.0
    chances = learner.predict_proba(job.start, job.samples.x)[np.arange(len(job.samples)), job.samples.y]
    return float(-np.log(np.maximum(chances.astype(np.float64), LEAST_CHANCE)).mean())


def _difference(trained: Model, model: Model) -> NDArray[np.float32]:
    if trained.shape != model.shape:
        raise ValueError(f"the learner returned a model of shape {trained.shape}, it received {model.shape}")
    return trained - model


def group_size(learner: Learner) -> int:
    """How many clients the learner wants at once."""
    return learner.clients_at_once if isinstance(learner, BatchedLearner) else 1


def _train(learner: Learner, jobs: Sequence[Job]) -> list[Model]:
    if len(jobs) > 1 and isinstance(learner, BatchedLearner):
        columns = ([job.start for job in jobs], [job.samples for job in jobs], [job.seed for job in jobs])
        return learner.train_batched(*columns, [job.epochs for job in jobs])
    return [learner.train(job.start, job.samples, job.seed, *([job.epochs] if job.epochs else [])) for job in jobs]
