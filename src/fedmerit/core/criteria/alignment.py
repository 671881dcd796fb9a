"""Alignment: the cosine of a client's update and the server's own [FLTrust]."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np

from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.stages.stages import Measured, Phase, exclude
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Vector


@part("criterion", "Alignment")
class Alignment:
    """max(0, cos(update_k, update of the server)), the server's own trained on its rows from the same model [FLTrust].

    FLTrust also gives each update the norm of the server's; `Clip` bounds norms here. With `gate` the cosine is no
    weight: a client with a cosine of 0 or less is excluded, and all others have 1. Few rows of a server say whether an
    update goes the right way, but not how much it is worth: as a weight, the cosine costs rare clients accuracy.

    >>> Alignment(gate=True).required_facts
    ()
    """

    gate: Annotated[bool, Doc("1 for a cosine above 0 and exclusion otherwise, in place of the cosine")] = False

    name: ClassVar[str] = "Alignment"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "alignment: cosine of the update and the server's own on its rows, at least 0 (FLTrust)"
    phase: ClassVar[Phase] = "measure"
    needs: ClassVar[Words] = frozenset({"server training", "shared model"})
    why: ClassVar[Mapping[str, str]] = {"server training": "set task.server = 1000"}

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As the server measured it."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The server trains the model on its own rows, and compares updates with its own."""
        cosines = cohort.updates.cosines_to(view.server_update())
        if not self.gate:
            return Measured({self.name: np.maximum(cosines, 0.0)})
        against = {
            client: f"its update does not go along with the server's own (cosine {cosine:.2f})"
            for client, cosine in zip(cohort.ids, cosines.tolist(), strict=True)
            if cosine <= 0
        }
        return exclude(cohort, self.name, against)
