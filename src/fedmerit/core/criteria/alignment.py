"""Alignment: the cosine of a client's update and the server's own [FLTrust]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedmerit.core.parts import Words, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Vector


@part("criterion", "Alignment")
class Alignment:
    """max(0, cos(update_k, update of the server)), the server's own trained on its rows from the same model [FLTrust].

    FLTrust also gives each update the norm of the server's; `Clip` bounds norms here.

    >>> Alignment().required_facts
    ()
    """

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
        assert view.host.train is not None  # the word "server training" was checked
        update = view.host.train(view.model, view.draws.seed("server")) - view.model
        return Measured({self.name: np.maximum(cohort.updates.cosines_to(update), 0.0)})
