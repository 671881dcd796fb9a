"""Stages: measurements and bounds that the server applies to a cohort before it weighs the clients."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedmerit.core.facts import EXCLUDED, NORM
from fedmerit.core.parts import declared, part
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Note, Own, Vector

Phase: TypeAlias = Literal["claims", "measure", "bound"]


class Measured(NamedTuple):
    """Result of a stage: facts about the cohort's clients, notes, and its state for the next round."""

    facts: Mapping[str, Vector] = EMPTY
    notes: tuple[Note, ...] = ()
    own: Own = EMPTY


@runtime_checkable
class Stage(Protocol):
    """A measurement or bound on the clients of a round; it runs only if at least one client answered.

    phase   `claims`: bound claims; `measure`: measure on the server; `bound`: bound updates, after clients without a
            valid criterion value are dropped
    """

    @property
    def phase(self) -> Phase: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Return facts by name with a value per client, notes, and the stage's state."""


def exclude(cohort: Cohort, name: str, reasons: Mapping[ClientId, str], own: Own = EMPTY) -> Measured:
    """Measure a criterion that is 0 for clients with a reason to exclude them, else 1; a note tells each reason."""
    excluded = np.array([client in reasons for client in cohort.ids], dtype=np.bool_)
    before = cohort.facts.get(EXCLUDED, np.zeros(len(excluded)))
    notes = [
        Note("excluded", f"{client}: {name}", f"has weight 0: {reasons[client]}", client)
        for client in cohort.ids
        if client in reasons
    ]
    facts: dict[str, Vector] = {name: np.where(excluded, 0.0, 1.0), EXCLUDED: np.where(excluded, 1.0, before)}
    return Measured(facts, tuple(notes), own)


def stages_of(roots: Sequence[Any]) -> Iterator[Stage]:
    """Yield the stages that parts need, each after the stages that it needs."""
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
        """Measure the fact `norm`."""
        return Measured({NORM: cohort.updates.norms})


def median_norm(cohort: Cohort, history: History) -> float:
    """Median of the latest nonzero norm of every client so far; 0 if all are 0.

    If no part remembers norms (`UpdateNorms`), the median of the round. Attackers may be the majority of one round, but
    not of all clients.

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(2, (0, 1), Updates(np.array([[10.0], [10.0]], dtype=np.float32)), {})
    >>> past = {NORM: {1: (10.0,), 2: (1.0,), 3: (1.0,), 4: (2.0, 1.0)}}
    >>> median_norm(cohort, History()), median_norm(cohort, History(recent=past))
    (10.0, 1.0)
    """
    before = {client: past[-1] for client, past in history.recent.get(NORM, EMPTY).items()}
    norms = np.array([*(before | dict(zip(cohort.ids, cohort.updates.norms.tolist(), strict=True))).values()])
    moved = norms[norms > 0]
    return float(np.median(moved)) if len(moved) else 0.0
