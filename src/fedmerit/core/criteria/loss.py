"""Fair weights by the loss of the received model on a client's rows: q-FFL's criterion and step, and AFL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLIP, LARGEST, LOSS
from fedmerit.core.parts import ACCOUNTED, FACTS_ONLY, Doc, Words, part
from fedmerit.core.stages.clip import clip_fact
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Vector
from fedmerit.errors import ConfigError

LONGEST_STEP = 1e9
"""Bound of a step of the ascent, so that a claimed loss near the largest number does not overflow."""


@dataclass(frozen=True, slots=True)
class QFedAvgStep:
    """Scale the updates by q-FedAvg's step [q-FFL, Alg. 2].

    With L = 1 / lr, Delta_k = F_k^q L (w - w_k) and h_k = q F_k^(q-1) ||L (w - w_k)||^2 + L F_k^q, the paper's next
    model is w - sum_k Delta_k / sum_k h_k. That is the mean of the updates u_k = w_k - w weighted by
    p_k = F_k^q / sum_j F_j^q (`LossPower`), times the factor that this stage measures:

        1 / (1 + q L sum_k p_k ||u_k||^2 / F_k)

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(1, (0, 1), Updates(np.eye(2, dtype=np.float32)), {LOSS: np.array([1.0, 0.5])})
    >>> QFedAvgStep(q=1.0).factor(cohort, lr=0.5)
    0.27272727272727276
    """

    q: float
    lr: float | None = None

    phase: ClassVar[Phase] = "bound"
    name: ClassVar[str] = "q-fedavg"
    needs: ClassVar[Words] = frozenset({"server model", "weighted mean"})
    takes: ClassVar[Words] = frozenset({"whole updates"})
    why: ClassVar[Mapping[str, str]] = {
        "whole updates": "LossPower scales the updates by q-FedAvg's step; use another criterion",
        "accounted": "q-FedAvg's step depends on the norms of all updates; use another criterion",
    }

    def factor(self, cohort: Cohort, lr: float) -> float:
        """The factor of the weighted mean, in 0..1; a client without loss has no part in it."""
        losses = cohort.facts[LOSS]
        positive = losses > 0
        if not positive.any():
            return 1.0
        powers = (losses / losses.max()) ** self.q  # divided by the largest: no power overflows
        ratios = np.divide(powers * np.square(cohort.updates.norms), losses, out=np.zeros(len(losses)), where=positive)
        return float(1.0 / (1.0 + self.q * ratios.sum() / powers.sum() / lr))

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Measure the fact `clip`, the same for every client."""
        lr = self.lr or view.host.client_lr(view.index) or view.host.lr
        if lr is None:
            raise ConfigError("q-FedAvg needs the clients' learning rate (got none); set lr of LossPower")
        return Measured({CLIP: clip_fact(cohort, np.full(len(cohort.ids), self.factor(cohort, lr)))})


@part("criterion", "LossPower")
class LossPower:
    """F_k ** q, where F_k is the loss of the received model on the client's rows; q-FedAvg's weights and step [q-FFL].

    q      power of the loss; 0: all clients alike
    lr     the clients' learning rate, 1 / L in the paper; None: that of the run
    """

    q: Annotated[float, Interval(ge=0), Doc("power of the loss; 0: all clients alike")] = 1.0
    lr: Annotated[float | None, Interval(gt=0), Doc("the clients' learning rate; default: that of the run")] = None

    name: ClassVar[str] = "LossPower"
    family: ClassVar[Family] = Family.MODEL
    required_facts: ClassVar[tuple[str, ...]] = (LOSS,)
    degree: ClassVar[bool] = False
    about: ClassVar[str] = (
        "loss: of the received model on the client's rows, to a power; higher loss counts more (q-FFL)"
    )
    gives: ClassVar[Words] = ACCOUNTED

    @property
    def stages(self) -> tuple[QFedAvgStep, ...]:
        """The paper's step."""
        return (QFedAvgStep(self.q, self.lr),)

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Larger losses, larger values."""
        with np.errstate(over="ignore"):
            return np.minimum(cohort.facts[LOSS] ** self.q, LARGEST)


@part("criterion", "Agnostic")
class Agnostic:
    """Mixture weights lambda of agnostic federated learning, by projected gradient ascent on the losses [AFL, Alg. 1].

        lambda = projection on the simplex of lambda + eta * N / n * (losses of the round's n clients, of N)

    The weights of a round are those before its ascent; lambda begins with 1 / N. The factor N / n keeps the gradient
    unbiased if only some clients take part.
    """

    eta: Annotated[float, Interval(ge=0), Doc("step of the ascent towards clients with a high loss")] = 0.1

    name: ClassVar[str] = "Agnostic"
    family: ClassVar[Family] = Family.MODEL
    required_facts: ClassVar[tuple[str, ...]] = (LOSS,)
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "agnostic weight: rises round by round for the clients with the highest loss (AFL)"
    phase: ClassVar[Phase] = "measure"
    gives: ClassVar[Words] = FACTS_ONLY

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """The client's entry of lambda before this round."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Measure the entries of lambda, and store lambda after the ascent."""
        clients = len(view.host.names)
        before = view.own_of(f"stage:{self.name}").get("mixture", np.full(clients, 1 / clients))
        places, gradient = list(cohort.ids), np.zeros(clients)
        gradient[places] = cohort.facts[LOSS] * (clients / len(places))
        after = project_to_simplex(before + np.minimum(self.eta * gradient, LONGEST_STEP))
        return Measured({self.name: before[places]}, (), {"mixture": after})


def project_to_simplex(values: Vector) -> Vector:
    """The nearest point with entries of at least 0 that sum to 1 (Duchi et al. 2008).

    >>> project_to_simplex(np.array([0.5, 0.7, -1.0])).round(3).tolist()
    [0.4, 0.6, 0.0]
    """
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.asarray(np.maximum(values - threshold, 0.0))
