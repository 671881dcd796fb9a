"""A client's side of a round: train, measure facts, answer with the update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmerit.facts import measure
from fedmerit.learn.base import GroupLearner, Learner
from fedmerit.types import Model, Samples

Answer = tuple[NDArray[np.float32], dict[str, float]]


def answers(
    learner: Learner, starts: Sequence[Model], samples: Sequence[Samples], needs: Sequence[str], seeds: Sequence[int]
) -> list[Answer]:
    """Updates and facts of clients that start from these models; an empty one trains nothing and says samples = 0."""
    full = [place for place, part in enumerate(samples) if len(part)]
    models = [starts[place] for place in full]
    trained = iter(_train(learner, models, [samples[i] for i in full], [seeds[i] for i in full]))
    return [
        (_difference(next(trained), start) if len(part) else np.zeros_like(start), measure(part, needs))
        for start, part in zip(starts, samples, strict=True)
    ]


def _difference(trained: Model, model: Model) -> NDArray[np.float32]:
    if trained.shape != model.shape:
        raise ValueError(f"the learner returned a model of shape {trained.shape}, it received {model.shape}")
    return trained - model


def group_size(learner: Learner) -> int:
    """How many clients the learner wants at once."""
    return learner.together if isinstance(learner, GroupLearner) else 1


def _train(learner: Learner, models: list[Model], samples: list[Samples], seeds: list[int]) -> list[Model]:
    if len(models) > 1 and isinstance(learner, GroupLearner):
        return learner.train_together(models, samples, seeds)
    return [learner.train(*one) for one in zip(models, samples, seeds, strict=True)]
