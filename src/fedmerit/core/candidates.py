"""Trial: a round's candidate models put to the clients, each once, with a count of what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.fleet import Fleet
from fedmerit.core.search import Answer, Backtracking
from fedmerit.core.types import ClientId, Evaluation, Model
from fedmerit.core.updates import Updates

TOGETHER = 8
"""Models per exchange; also how many are made in one pass, so that their bits do not depend on who is asked when."""


class Trial:
    """The candidates of one round: `model` plus each weighting of the updates.

    `reference` is the accuracy that a candidate must not fall below; None: that of `model`, which is then asked for.
    """

    def __init__(
        self,
        fleet: Fleet,
        search: Backtracking,
        model: Model,
        updates: Updates,
        weightings: NDArray[np.float64],
        reference: float | None,
        random: np.random.Generator,
    ) -> None:
        self._fleet, self._search, self._start = fleet, search, model
        self._updates, self._weightings, self._reference = updates, weightings, reference
        clients = len(fleet.names())
        self._turn: Sequence[ClientId] = random.permutation(clients).tolist()
        self._asked = min(search.judges or clients, clients)
        self._made: tuple[int, NDArray[np.float32]] | None = None
        self._before: Evaluation | None = None
        self.evaluations: dict[int, Evaluation] = {}
        self.answers: dict[int, Answer] = {}
        self.exchange_of: dict[int, int] = {}
        self.exchanges = self.tested = self.tests = 0
        self.seconds = 0.0

    @property
    def everybody(self) -> bool:
        """Whether all clients have been asked, so that the answers are exact."""
        return self._asked == len(self._turn)

    def model(self, place: int) -> Model:
        """A candidate's model; all candidates of a pass are made together."""
        part = place // TOGETHER
        if self._made is None or self._made[0] != part:
            rows = self._weightings[part * TOGETHER : (part + 1) * TOGETHER]
            self._made = part, self._start + self._updates.combine(rows)
        return self._made[1][place % TOGETHER]  # type: ignore[no-any-return]

    def ask(self, places: Sequence[int]) -> list[Answer]:
        """The clients' answers; more judges are asked while a candidate is neither better nor worse for sure."""
        panel = None if self.everybody else self._turn[: self._asked]
        self._exchange(places, panel, self._reference is None and self._before is None)
        while self._search.judges and self._search.orders != "all" and self._undecided(places):
            more = self._turn[self._asked : 2 * self._asked]
            self._asked += len(more)
            self._exchange(places, more, True)
        for place in places:
            self.answers[place] = Answer(self.evaluations[place].accuracy, self._good(place))
        return [self.answers[place] for place in places]

    def _exchange(self, places: Sequence[int], clients: Sequence[ClientId] | None, with_reference: bool) -> None:
        for start in range(0, len(places), TOGETHER):
            part = places[start : start + TOGETHER]
            models = [self.model(place) for place in part] + ([self._start] if with_reference else [])
            began = perf_counter()
            told = self._fleet.evaluate(models, self._search.adjust_on, clients)
            self.seconds += perf_counter() - began
            self.exchanges += 1
            self.tested += len(models)
            self.tests += len(models) * len(self._turn if clients is None else clients)
            if with_reference:
                self._before = _joined(self._before, told[-1])
                with_reference = False
            for place, evaluation in zip(part, told, strict=False):
                self.evaluations[place] = _joined(self.evaluations.get(place), evaluation)
                self.exchange_of.setdefault(place, self.exchanges)

    def _good(self, place: int) -> bool:
        if self._search.judges and self._before is not None:
            return self._verdict(place) is True
        reference = self._before.accuracy if self._reference is None and self._before else self._reference
        return reference is not None and self.evaluations[place].accuracy >= reference

    def _undecided(self, places: Sequence[int]) -> bool:
        return not self.everybody and any(self._verdict(place) is None for place in places)

    def _verdict(self, place: int) -> bool | None:
        assert self._before is not None
        share = self._asked / len(self._turn)
        return not_worse(self.evaluations[place], self._before, share, self._search.confidence)


def not_worse(candidate: Evaluation, before: Evaluation, share: float, confidence: float) -> bool | None:
    """Whether the candidate's accuracy is at least that of the model before; None: undecided at this confidence.

    `share` of the clients were asked. The difference d = sum(right_k - right_before_k) / sum(n_k) is a ratio of sums
    over the judges; with e_k = (right_k - right_before_k) - d * n_k its variance is about
    (1 - share) * n / (n - 1) * sum(e_k ** 2) / sum(n_k) ** 2, and 0 when everybody was asked.
    """
    asked = candidate.sizes > 0
    gains, sizes = (candidate.correct - before.correct)[asked].astype(np.float64), candidate.sizes[asked]
    total, judges = int(sizes.sum()), len(sizes)
    if not total:
        return None if share < 1 else False
    difference = gains.sum() / total
    if share >= 1:
        return bool(difference >= 0)
    if judges < 2:
        return None
    spread = np.sqrt((1 - share) * judges / (judges - 1) * np.square(gains - difference * sizes).sum()) / total
    reach = float(scipy.stats.norm.ppf((1 + confidence) / 2)) * spread
    if difference - reach >= 0:
        return True
    return False if difference + reach < 0 else None


def _joined(one: Evaluation | None, other: Evaluation) -> Evaluation:
    """Answers of other clients added to those that there are."""
    if one is None:
        return other
    return Evaluation(one.correct + other.correct, one.sizes + other.sizes)
