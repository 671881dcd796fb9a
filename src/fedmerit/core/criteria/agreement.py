"""Agreement: whether a client's first updates go along with the server's own as much as the median's do."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedmerit.core.criteria.contribution import EARLY_ANSWERS
from fedmerit.core.parts import Words, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort, Family, Vector


@part("criterion", "Agreement")
class Agreement:
    """min(1, a_k / median a), a_k the mean of max(0, cos(update_k, server's own update)) over k's first three answers.

    As a factor of the rows it is one-sided: there is nothing to win by looking better than the median, and honest
    clients differ too little for it to matter. A client whose labels are wrong moves the model another way from the
    start and loses its weight. Clients that attack later are not noticed: use `robust`. Only updates and the server's
    rows are used; no further number leaves a client. Measured by WeighBench.

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(1, (0, 1, 2), Updates(np.zeros((3, 1), np.float32)), {"Agreement": np.array([0.4, 0.2, 0.1])})
    >>> Agreement()(cohort, History()).tolist()
    [1.0, 1.0, 0.5]
    """

    name: ClassVar[str] = "Agreement"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "agreement: below 1 where the first updates go along with the server's less than the median"
    phase: ClassVar[Phase] = "measure"
    remembers: ClassVar[tuple[str, ...]] = ("Agreement",)
    needs: ClassVar[Words] = frozenset({"server training", "shared model"})
    why: ClassVar[Mapping[str, str]] = {"server training": "set task.server = 200"}

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for everybody if half of the clients go against the server: then the median says nothing."""
        means = cohort.facts[self.name]
        median = float(np.median(means))
        return np.minimum(means / median, 1.0) if median > 0 else np.ones(len(means))

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The mean cosine after this answer, which stays after the third one."""
        recent = view.history.recent.get(self.name, EMPTY)
        before = np.array([recent[client][-1] if client in recent else 0.0 for client in cohort.ids])
        answers = np.array([view.history.participations.get(client, 0) for client in cohort.ids])
        counts = (answers < EARLY_ANSWERS) & cohort.answered
        if not counts.any():
            return Measured({self.name: before})  # the server need not train its own update
        cosines = np.maximum(cohort.updates.cosines_to(view.server_update()), 0.0)
        return Measured({self.name: np.where(counts, before + (cosines - before) / (answers + 1), before)})
