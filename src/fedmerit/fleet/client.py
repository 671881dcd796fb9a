"""A client's side of a round: train from the parcel, measure facts, answer with the update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmerit.facts import measure
from fedmerit.learn.base import Learner
from fedmerit.seeds import derive
from fedmerit.types import ClientId, Parcel, Samples


def answer(
    learner: Learner, parcel: Parcel, samples: Samples, needs: Sequence[str], seed: int, index: int, client: ClientId
) -> tuple[NDArray[np.float32], dict[str, float]]:
    """The update and the facts of one client; an empty client trains nothing and says so by samples = 0."""
    facts = measure(samples, needs)
    if not len(samples):
        return np.zeros_like(parcel.model), facts
    trained = learner.train(parcel.model, samples, derive(seed, "train", index, client))
    return trained - parcel.model, facts
