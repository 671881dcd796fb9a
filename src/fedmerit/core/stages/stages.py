"""Stages: what the server measures or bounds of a cohort before it weighs the clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedmerit.core.facts import NORM
from fedmerit.core.parts import declared, part
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort, Note, Own, Vector

Phase: TypeAlias = Literal["claims", "measure", "bound"]


class Measured(NamedTuple):
    """What a stage found: facts of the cohort's clients, notes, and its own state for the next round."""

    facts: Mapping[str, Vector] = EMPTY
    notes: tuple[Note, ...] = ()
    own: Own = EMPTY


@runtime_checkable
class Stage(Protocol):
    """Measures or bounds something of the clients of a round; runs only if a client came.

    phase   `claims`: what clients say is bounded; `measure`: the server measures; `bound`: updates are bounded, after
            clients were dropped for whom a criterion has no number
    """

    @property
    def phase(self) -> Phase: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Facts by name, a value per client; notes; what the stage remembers."""


def stages_of(roots: Sequence[Any]) -> Iterator[Stage]:
    """The stages that parts bring, each after those that it is made of."""
    for root in roots:
        yield from stages_of(declared(root, "stages"))
        if isinstance(root, Stage):
            yield root


@part("stage", "update-norms")
class UpdateNorms:
    """Record the norm of every update, for parts that compare it with the norms of all clients so far."""

    phase: ClassVar[Phase] = "measure"
    name: ClassVar[str] = "update-norms"
    remembers: ClassVar[tuple[str, ...]] = (NORM,)

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The fact `norm`."""
        return Measured({NORM: cohort.updates.norms})


def median_norm(cohort: Cohort, history: History) -> float:
    """The median of the last norm of every client so far, of those that are not 0; 0 where all are.

    Where no part remembers norms (`UpdateNorms`), that of the round. In one round most clients may be attackers; of all
    clients fewer than half are.

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(2, (0, 1), Updates(np.array([[10.0], [10.0]], dtype=np.float32)), {})
    >>> past = {NORM: {1: (10.0,), 2: (1.0,), 3: (1.0,), 4: (2.0, 1.0)}}
    >>> median_norm(cohort, History()), median_norm(cohort, History(recent=past))
    (10.0, 1.0)
    """
    before = {client: kept[-1] for client, kept in history.recent.get(NORM, EMPTY).items()}
    norms = np.array([*(before | dict(zip(cohort.ids, cohort.updates.norms.tolist(), strict=True))).values()])
    moved = norms[norms > 0]
    return float(np.median(moved)) if len(moved) else 0.0
