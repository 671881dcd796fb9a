"""A client's side of a round: train, measure facts, answer with the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit.facts import measure
from fedmerit.learn.base import GroupLearner, Learner
from fedmerit.types import Model, Samples


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
    begun = perf_counter()
    full = [job for job in jobs if len(job.samples)]
    trained = iter(_train(learner, full))
    seconds = (perf_counter() - begun) / max(len(full), 1)  # clients trained at once share the time
    updates = [_difference(next(trained), job.start) if len(job.samples) else np.zeros_like(job.start) for job in jobs]
    return [
        Answer(update, measure(job.samples, needs, seconds), seconds) for job, update in zip(jobs, updates, strict=True)
    ]


def _difference(trained: Model, model: Model) -> NDArray[np.float32]:
    if trained.shape != model.shape:
        raise ValueError(f"the learner returned a model of shape {trained.shape}, it received {model.shape}")
    return trained - model


def group_size(learner: Learner) -> int:
    """How many clients the learner wants at once."""
    return learner.together if isinstance(learner, GroupLearner) else 1


def _train(learner: Learner, jobs: Sequence[Job]) -> list[Model]:
    if len(jobs) > 1 and isinstance(learner, GroupLearner):
        columns = ([job.start for job in jobs], [job.samples for job in jobs], [job.seed for job in jobs])
        return learner.train_together(*columns, [job.epochs for job in jobs])
    return [learner.train(job.start, job.samples, job.seed, *([job.epochs] if job.epochs else [])) for job in jobs]
