"""Consistency: what clients claim about their rows, held against what their updates show of them.

With softmax and cross entropy the output layer's bias moves by the sum over steps of (share of the class among the
rows) - (share that the model predicts). So it sums to 0 over the classes, and a class that a client does not hold can
only move down: at most as many classes move up as the client has labels. A client that pushes up one class alone has
neither many labels nor balanced ones. Updates in which this does not hold (no such layer, another loss) say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

import numpy as np

from fedmerit.core.facts import CLAIMED, SAMPLES, SECONDS
from fedmerit.core.history import History
from fedmerit.core.parts import Doc, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.types import Cohort, Family, Matrix, Note, Vector
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.state import View

Evidence: TypeAlias = Literal["labels", "balance", "noise", "seconds"]

ZERO_SUM = 1e-3
"""Biases whose sum is a larger part of their absolute sum are not those of a softmax layer."""
LABELS_PER_PUSHED = 3.0
"""Honest clients push up one class for each so many labels, and seldom fewer."""
PUSHED_BY_BALANCE = 2.5
"""A client with perfect balance pushes up at least one class and so many more, in effect."""
NEAR_MEAN = 0.75
"""An update with many rows behind it lies within so many median distances, divided by `SUSPECT`, of the mean."""
SUSPECT = 0.5
"""Below this a note names the evidence."""


@part("criterion", "Consistency")
class Consistency:
    """How far a client's claims agree with its update: 1 where nothing speaks against them, towards 0 where much does.

    The least of the evidence that is asked for:

    labels      min(1, 3 P / labels), P the classes whose output bias moved up; 0 where P is above the labels claimed
    balance     min(1, E / (1 + 2.5 balance)), E = (sum of p) ** 2 / (sum of p ** 2) the effective number of classes
                moved up, p by how much each was
    noise       of a client that claims more than twice the median rows: min(1, 0.75 d / its distance from the mean of
                the updates), d the median distance: many rows, little noise
    seconds     min(1, 2 t / t'), t its seconds per row, t' their median among the larger half of the clients; clocks
                differ from run to run, so bits do too, and it is not part of the default

    A low value is a reason to look, not a proof: docs/trust.md says how often honest clients get one.

    >>> Consistency().required_facts
    ('samples', 'labels', 'coverage', 'balance')
    """

    evidence: Annotated[tuple[Evidence, ...], Doc("which claims are compared with the update")] = (
        "labels",
        "balance",
        "noise",
    )

    name: ClassVar[str] = "Consistency"
    family: ClassVar[Family] = Family.TRUST
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "consistency: how far claims agree with the update, with its biases and its noise"
    phase: ClassVar[Phase] = "measure"

    def __post_init__(self) -> None:
        if not self.evidence or not set(self.evidence) <= EVIDENCE.keys():
            raise ConfigError(f"evidence is one or more of {', '.join(EVIDENCE)} (got {list(self.evidence)})")

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The claims that it checks."""
        return (SAMPLES, "labels", "coverage", "balance", *((SECONDS,) if "seconds" in self.evidence else ()))

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """0..1, as it was measured."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The least of the evidence, and a note for each client that some evidence speaks against."""
        found = {name: EVIDENCE[name](cohort) for name in self.evidence}
        notes = [
            _note(name, client, cohort, place)
            for name, values in found.items()
            for place, client in enumerate(cohort.ids)
            if values[place] < SUSPECT
        ]
        return Measured({self.name: np.min(np.stack([*found.values()]), axis=0)}, tuple(notes))


def claimed_values(cohort: Cohort, name: str) -> Vector:
    """What clients claimed of a fact, whatever of it counts."""
    return cohort.facts.get(f"{CLAIMED}{name}", cohort.facts[name])


def output_biases(cohort: Cohort) -> Matrix | None:
    """How each client moved the biases of the output layer, the last values of an update; None where they are not.

    How many there are is what most clients say: the median of labels / coverage.
    """
    coverage = claimed_values(cohort, "coverage")
    classes_claimed = claimed_values(cohort, "labels")[coverage > 0] / coverage[coverage > 0]
    classes = int(np.rint(np.median(classes_claimed))) if len(classes_claimed) else 0
    if not 2 <= classes <= cohort.updates.length:
        return None
    biases = np.stack([cohort.updates.row(place)[-classes:] for place in range(len(cohort.ids))]).astype(np.float64)
    sizes = np.abs(biases).sum(axis=1)
    moved = sizes > 0
    zero_sum = np.abs(biases.sum(axis=1)) <= ZERO_SUM * sizes
    return biases if moved.any() and 2 * zero_sum[moved].sum() > moved.sum() else None


def label_evidence(cohort: Cohort) -> Vector:
    """Classes that moved up against the labels claimed."""
    biases, labels = output_biases(cohort), claimed_values(cohort, "labels")
    if biases is None:
        return np.ones(len(labels))
    pushed = (biases > 0).sum(axis=1)
    enough = np.minimum(1.0, LABELS_PER_PUSHED * pushed / np.maximum(labels, 1))
    return np.asarray(np.where(pushed > labels, 0.0, enough))


def balance_evidence(cohort: Cohort) -> Vector:
    """The effective number of classes that moved up against the balance claimed."""
    biases, balance = output_biases(cohort), claimed_values(cohort, "balance")
    if biases is None:
        return np.ones(len(balance))
    up = np.clip(biases, 0.0, None)
    up /= np.maximum(up.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    squares = np.square(up).sum(axis=1)
    effective = np.divide(up.sum(axis=1) ** 2, squares, out=np.zeros(len(squares)), where=squares > 0)
    return np.asarray(np.minimum(1.0, effective / (1 + PUSHED_BY_BALANCE * balance)))


def noise_evidence(cohort: Cohort) -> Vector:
    """The distance from the mean update, for who claims many rows."""
    number, samples = len(cohort.ids), claimed_values(cohort, SAMPLES)
    if number < 3:
        return np.ones(number)
    mean = cohort.updates.combine(np.full(number, 1 / number))
    distances = np.array([np.linalg.norm(cohort.updates.row(place) - mean) for place in range(number)], np.float64)
    near = np.divide(NEAR_MEAN * np.median(distances), distances, out=np.ones(number), where=distances > 0)
    return np.asarray(np.where(samples > 2 * np.median(samples), np.minimum(1.0, near), 1.0))


def seconds_evidence(cohort: Cohort) -> Vector:
    """Seconds per row, against the median of the clients with many rows, whose overhead counts least."""
    samples, seconds = claimed_values(cohort, SAMPLES), claimed_values(cohort, SECONDS)
    rates = seconds / samples
    usual = np.median(rates[samples >= np.median(samples)])
    return np.asarray(np.minimum(1.0, 2 * rates / usual)) if usual > 0 else np.ones(len(rates))


EVIDENCE: Mapping[str, Callable[[Cohort], Vector]] = MappingProxyType(
    {
        "labels": label_evidence,
        "balance": balance_evidence,
        "noise": noise_evidence,
        "seconds": seconds_evidence,
    }
)
"""What claims can be held against."""

CLAIM_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "labels": "claims {labels:g} labels, and its update moves the output bias of another number of classes up",
        "balance": "claims a balance of {balance:.2g}, and its update moves the output bias of few classes up",
        "noise": "claims {samples:g} rows, and its update is far from the mean, as of few rows",
        "seconds": "claims {samples:g} rows, and trained much faster per row than others",
    }
)


def _note(evidence: str, client: int, cohort: Cohort, place: int) -> Note:
    claims = {name: claimed_values(cohort, name)[place] for name in (SAMPLES, "labels", "balance")}
    return Note("inconsistent", f"{client}: {evidence}", CLAIM_TEXTS[evidence].format(**claims), client)
