"""Panel: a round's candidate models put to the clients, each once, with a count of what that cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.fleet import Judges
from fedmerit.core.types import ClientId, Evaluation, Matrix, Model, SplitName, Vector

AT_ONCE = 8
"""Models per exchange; also how many are made in one pass, so that their bits do not depend on who is asked when."""


class Panel:
    """The candidates of one round, what a step makes of each weighting of the updates, and the clients that judge them.

    `combine` gives the aggregates of the updates under several weightings. `step` gives the model of an aggregate and
    its weights; without it that is `model` + aggregate.
    `turn` is the order in which clients are asked, drawn anew each round. What they answered is in `evaluations`, by
    candidate, and in `before`, of the model before the round where that was asked for.
    """

    def __init__(
        self,
        judges: Judges,
        on: SplitName,
        model: Model,
        combine: Callable[[Matrix], NDArray[np.float32]],
        weightings: NDArray[np.float64],
        random: np.random.Generator,
        step: Callable[[Model, Vector], Model] | None = None,
    ) -> None:
        self._judges, self._on, self._start = judges, on, model
        self._combine, self._weightings = combine, weightings
        self._step = step or (lambda update, weights: model + update)
        self._pass: tuple[int, NDArray[np.float32]] | None = None
        self.turn: Sequence[ClientId] = random.permutation(judges.judges()).tolist()
        self.before: Evaluation | None = None
        self.evaluations: dict[int, Evaluation] = {}
        self.exchange_of: dict[int, int] = {}
        self.exchanges = self.models_sent = self.tests = 0
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._weightings)

    def update(self, place: int) -> Model:
        """A candidate's aggregate of the updates; all candidates of a pass are made together."""
        number = place // AT_ONCE
        if self._pass is None or self._pass[0] != number:
            rows = self._weightings[number * AT_ONCE : (number + 1) * AT_ONCE]
            self._pass = number, self._combine(rows)
        return self._pass[1][place % AT_ONCE]  # type: ignore[no-any-return]

    def model(self, place: int) -> Model:
        """A candidate's model."""
        return self._step(self.update(place), self._weightings[place])

    def ask(self, places: Sequence[int], clients: Sequence[ClientId] | None = None, *, before: bool = False) -> None:
        """Ask these clients, or all, about these candidates; and about the model `before` the round where wanted.

        Answers are added to those that other clients gave earlier.
        """
        for start in range(0, len(places), AT_ONCE):
            some = places[start : start + AT_ONCE]
            models = [self.model(place) for place in some] + ([self._start] if before else [])
            begun = perf_counter()
            answers = self._judges.evaluate(models, self._on, clients)
            self.seconds += perf_counter() - begun
            self.exchanges += 1
            self.models_sent += len(models)
            self.tests += len(models) * len(self.turn if clients is None else clients)
            if before:
                self.before = _joined(self.before, answers[-1])
                before = False
            for place, evaluation in zip(some, answers, strict=False):
                self.evaluations[place] = _joined(self.evaluations.get(place), evaluation)
                self.exchange_of.setdefault(place, self.exchanges)


def _joined(earlier: Evaluation | None, answers: Evaluation) -> Evaluation:
    """Answers of other clients added to those that there are."""
    if earlier is None:
        return answers
    return Evaluation(earlier.correct + answers.correct, earlier.sizes + answers.sizes)
