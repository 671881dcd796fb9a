"""Ours: the root of the share of the rows times the cosine of the client's first three updates.

`early`: the cosine to the aggregate; free. `early-server`: its geometric mean with the cosine to the update that the
server trains on its own rows. `discounted`: the recipe with weights rows * min(1, cosine to the server / median).
"""

import numpy as np

from benchmarks.weighbench.method import Method, cosines
from fedmerit import discounted
from fedmerit.core.seeds import derive


def early(cell):
    """Mean cosine to the aggregate; later rounds are left out, where clients differ mostly by noise."""
    return np.mean([np.maximum(cosines(u, cell.shares @ u), 0) for _, u in cell.run[:3]], axis=0)


def early_server(cell):
    """Mean cosine to the server's own update."""
    train = cell.task.learner.train
    own = [train(model.copy(), cell.server, derive(1, "own", at)) - model for at, (model, _) in enumerate(cell.run[:3])]
    found = [np.maximum(cosines(updates, one), 0) for (_, updates), one in zip(cell.run[:3], own, strict=True)]
    return np.mean(found, axis=0)


METHODS = {
    "rows x early cosine": Method(lambda cell: cell.shares * early(cell)),
    "early (ours)": Method(lambda cell: np.sqrt(cell.shares) * early(cell)),
    "early-server (ours)": Method(lambda cell: np.sqrt(cell.shares * early(cell) * early_server(cell)), server=True),
    "discounted (ours)": Method(weighting=lambda cell: discounted(), server=True),
}
