"""Turned clients: those whose answer goes against their own last one, although their answers agreed before."""

from typing import Any, ClassVar

import numpy as np

from fedmerit.core.parts import Words, part
from fedmerit.core.stages.stages import Measured, Phase, exclude
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort, Family, Model, Vector

MIN_AGREEMENTS = 2
"""Comparisons before a client can turn: after the first rounds of a run, honest answers change direction at times."""
OPPOSED = 0.5
"""A client turned if its cosine is below minus this part of the mean of its earlier ones.

Halfway between 0, where answers have nothing in common, and the full reversal of an attacker that multiplies its update
by a negative number. Measured on digits, Adult and Fashion-MNIST with seed 101: the median cosine of an honest client's
consecutive answers is 0.75 to 0.99, and fewer than 7 in 100 are below 0, nearly all of them in the first rounds.
"""


@part("criterion", "Turned")
class Turned:
    """0 for clients that turned, until their answer agrees with the last one before they turned; else 1.

    A client trains on the same rows in every round, so its consecutive updates point in similar directions. An answer
    is compared with the client's last one in the memory, by the cosine. A client turned if at least two earlier
    comparisons agreed (their mean is above 0), and the cosine is now below minus half of that mean. The answer before
    it stays the reference until the cosine with it is above 0 again. So attackers that wait are excluded in the round
    in which they begin, also if they are the majority of that round, and are not compared with clients that have other
    rows. Clients that attack from the first round on, or turn slowly, are left to the other criteria.

    >>> Turned().required_facts
    ()
    """

    name: ClassVar[str] = "Turned"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "turned: 0 for a client whose answer goes against its own earlier answers, else 1"
    phase: ClassVar[Phase] = "measure"
    needs: ClassVar[Words] = frozenset({"last answers"})
    why: ClassVar[dict[str, str]] = {"last answers": 'set recipe.memory = "last-answers"'}

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As it was measured."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The values, the fact `excluded`, and a note for each client that turned."""
        clients: dict[str, Any] = dict(view.own_of(f"stage:{self.name}"))
        memory = view.own_of("memory")
        for place in np.flatnonzero(cohort.answered):
            client = str(cohort.ids[place])
            before: Any = clients.get(client, {"agreements": 0, "mean": 0.0})
            reference = before.get("reference", memory.get(client, EMPTY).get("update"))
            if reference is None:
                continue
            cosine = _cosine(cohort.updates.row(int(place)), reference)
            known = before["agreements"] >= MIN_AGREEMENTS and before["mean"] > 0
            if cosine <= 0 if "reference" in before else known and cosine < -OPPOSED * before["mean"]:
                clients[client] = {"since": view.index, **before, "reference": reference}
            else:
                count = before["agreements"] + 1
                clients[client] = {"agreements": count, "mean": before["mean"] + (cosine - before["mean"]) / count}
        text = "its answers go against its own of the rounds before round {}, which agreed with each other"
        reasons = {int(one): text.format(own["since"]) for one, own in clients.items() if "reference" in own}
        return exclude(cohort, self.name, reasons, clients)


def _cosine(one: Model, other: Model) -> float:
    """Cosine of two updates; 0 if one of them is zero."""
    exact, reference = one.astype(np.float64), other.astype(np.float64)
    scale = float(np.linalg.norm(exact) * np.linalg.norm(reference))
    return float(exact @ reference) / scale if scale > 0 else 0.0
