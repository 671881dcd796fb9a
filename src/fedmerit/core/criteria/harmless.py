"""Harmless clients: backward elimination of clients without which the loss on the server's rows is lower."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedmerit.core.facts import EXCLUDED, SAMPLES
from fedmerit.core.parts import Words, part
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.stages.stages import Measured, Phase, exclude, median_norm
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Matrix, Rows, Vector
from fedmerit.errors import ConfigError

MOST_LOSS = 10.0
"""Bound of a row's loss, that of a probability of 0.005 %: no single row decides."""
ERRORS = 2.0
"""Standard errors of a mean difference that chance exceeds in about 2 % of cases."""
CLIP_TIMES = 2.0
"""Updates are clipped to this many median norms, as `robust` aggregates them."""


@part("criterion", "Harmless")
class Harmless:
    """0 for clients without whose update the model has a lower loss on the server's rows; else 1.

    The model is that of FedAvg with updates clipped to two median norms. For each client, the losses of the
    server's rows with and without its update are compared: it harms where their mean difference is above two
    standard errors of that mean. The more harmful half of these clients is excluded, then the rest are compared again,
    until none is found, because two attackers hide each other and one makes honest clients look harmful. Clients that
    another criterion excluded do not count.

    >>> Harmless().required_facts
    ('samples',)
    """

    name: ClassVar[str] = "Harmless"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = (SAMPLES,)
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "harmless: 0 for a client without which the loss on the server's rows is lower, else 1"
    phase: ClassVar[Phase] = "measure"
    needs: ClassVar[Words] = frozenset({"server rows", "losses", "shared model"})
    why: ClassVar[Mapping[str, str]] = {
        "server rows": "set task.server = 1000, or give Merit a function `server_evaluate`"
    }

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As the server measured it."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The values, the fact `excluded`, and a note for each client that harms."""
        norms, median = cohort.updates.norms, median_norm(cohort, view.history)
        updates = cohort.updates.mix(clip_factors(norms, CLIP_TIMES * median))
        shares = np.where(cohort.facts.get(EXCLUDED, np.zeros(len(norms))) > 0, 0.0, cohort.facts[SAMPLES])
        reasons = {}
        while np.count_nonzero(shares) > 1:
            places = np.flatnonzero(shares)
            parts = np.tile(shares, (len(places) + 1, 1))  # all clients, then all but one
            parts[np.arange(len(places)) + 1, places] = 0.0
            losses = _row_losses(view.model + updates.combine(parts / parts.sum(axis=1, keepdims=True)), view)
            harms = losses[0] - losses[1:]
            means, deviations = harms.mean(axis=1), harms.std(axis=1) / np.sqrt(harms.shape[1])
            sure = np.flatnonzero(means > ERRORS * deviations)
            if not len(sure):
                break
            worst = sure[np.argsort(-means[sure], kind="stable")][: max(1, len(sure) // 2)]
            text = "the loss on the server's rows is {:.3g} lower without its update, {:.1f} standard errors"
            for place, harm, error in zip(places[worst], means[worst], deviations[worst], strict=True):
                reasons[cohort.ids[place]] = text.format(harm, harm / error if error else np.inf)
            shares[places[worst]] = 0.0
        return exclude(cohort, self.name, reasons)


def _row_losses(models: Rows, view: View) -> Matrix:
    """Loss of each model on each of the server's rows, at most `MOST_LOSS`."""
    predict = view.host.predict_many or view.host.predict
    assert predict is not None  # the word "server rows" was checked
    found = predict(models)
    outputs = found.predicted if found.target.kind == "number" else found.probabilities
    if outputs is None:
        raise ConfigError("Harmless needs probabilities of the server's rows (got none); use a learner that gives them")
    losses = np.array([found.target.losses(of_model, found.y) for of_model in outputs], dtype=np.float64)
    return np.minimum(np.nan_to_num(losses, nan=MOST_LOSS), MOST_LOSS)
