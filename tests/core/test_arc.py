"""ARC: the longest updates are clipped to the norm of the longest of the others [ARC]."""

import numpy as np
import pytest
from helpers import small_task

from fedmerit import DS, Recipe, federate
from fedmerit.core.stages.arc import Arc


@pytest.mark.parametrize(
    ("share", "clients", "clipped"),
    [(0.2, 10, 3), (0.3, 10, 4), (0.4, 10, 4), (0.1, 10, 1), (0.0, 10, 0), (0.25, 4, 1), (0.4, 3, 1)],
)
def test_as_many_as_the_paper_says_are_clipped(share: float, clients: int, clipped: int):
    norms = np.arange(1.0, clients + 1)
    assert clipped == int(2 * share * (clients - share * clients) + 1e-9)  # k = floor(2 f / n (n - f))
    assert Arc(share).limit(norms) == clients - clipped
    assert (norms > Arc(share).limit(norms)).sum() == clipped


def test_a_run_records_what_is_left_of_each_update():
    run = federate(small_task(), Recipe((DS,), stages=(Arc(0.4),)), rounds=1, fraction=1.0)
    left = {one.id: one.facts["clip"] for one in run.explain(1)}
    norms = {client: norm for _, client, norm, _ in run.ledger.observations()}
    assert min(left.values()) < 1
    assert {client for client, part in left.items() if part < 1} == {max(norms, key=norms.__getitem__)}
