"""Panel: a round's candidate models put to the clients, each once, with a count of what that cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.host import Judges, Predict
from fedmerit.core.objectives import Predictions
from fedmerit.core.results import Reports, report
from fedmerit.core.search.mixtures import Mixtures, model_bytes
from fedmerit.core.search.votes import bound_sizes
from fedmerit.core.types import ClientId, Evaluation, Model, SplitName, Vector

AT_ONCE = 8
"""Weightings per exchange; also how many are made in one pass, so that their bits do not depend on who is asked when.
"""


class Panel:
    """The candidates of one round, each a weighting of the updates and a step along it, and the clients that judge.

    judges      the clients; `turn` is the order in which they are asked, drawn anew each round
    took_part   those whose updates are weighed
    weightings  (k, n): the weights of each candidate; several candidates may share them
    combine     weightings of the updates -> their aggregates
    step        the model of a candidate's aggregate; where a step is a sum of the aggregate and the `move` of the last
                round, `coefficients` has the two numbers instead, and clients build the models themselves

    last        the place of the candidate that is weighed and stepped as in the round before; None where there is none
    most        a judge's rows count as at most so many medians of the judges' rows; None: as told
    predict     asks the same models about the server's rows, to hold the answers against; None: nobody is held to them

    What the clients answered is in `evaluations`, by candidate, and in `before`, of the model before the round where
    that was asked for.
    """

    def __init__(
        self,
        judges: Judges,
        on: SplitName,
        model: Model,
        weightings: NDArray[np.float64],
        combine: Callable[[NDArray[np.float64]], NDArray[np.float32]],
        random: np.random.Generator,
        *,
        took_part: Sequence[ClientId] = (),
        step: Callable[[int, Model], Model] | None = None,
        coefficients: Sequence[tuple[float, float]] | None = None,
        move: Model | None = None,
        last: int | None = None,
        most: float | None = None,
        predict: Predict | None = None,
    ) -> None:
        self._judges, self._on, self._start = judges, on, model
        self._combine, self._step, self._move = combine, step, move
        self._coefficients = [(1.0, 0.0)] * len(weightings) if coefficients is None and step is None else coefficients
        self._rows, self._row_of = _each_once(weightings)
        self._pass: tuple[int, NDArray[np.float32]] | None = None
        everybody = judges.judges()
        self.turn: Sequence[ClientId] = [everybody[place] for place in random.permutation(len(everybody))]
        self.took_part, self.last, self._most, self._predict = took_part, last, most, predict
        self.before: Evaluation | None = None
        self.evaluations: dict[int, Evaluation] = {}
        self._own: dict[int | None, Predictions] = {}
        self.exchange_of: dict[int, int] = {}
        self.exchanges = self.models_sent = self.tests = self.bytes_down = 0
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._row_of)

    def update(self, place: int) -> Model:
        """A candidate's aggregate of the updates; all weightings of a pass are made together."""
        number, row = divmod(self._row_of[place], AT_ONCE)
        if self._pass is None or self._pass[0] != number:
            self._pass = number, self._combine(self._rows[number * AT_ONCE : (number + 1) * AT_ONCE])
        return self._pass[1][row]  # type: ignore[no-any-return]

    def ask(
        self,
        places: Sequence[int],
        clients: Sequence[ClientId] | None = None,
        *,
        before: bool = False,
        losses: bool = False,
    ) -> None:
        """Ask these clients, or all, about these candidates; and about the model `before` the round where wanted.

        With `losses` they also answer how large the loss on their rows is. Answers are added to those that other
        clients gave earlier.
        """
        for some in self._exchanges(places):
            models = self._models(some, before)
            begun = perf_counter()
            answers = self._judges.evaluate(models, self._on, clients, losses=losses)
            if self._most is not None:
                answers = [bound_sizes(answer, self._most) for answer in answers]
            asked = len(self.turn if clients is None else clients)
            self.seconds += perf_counter() - begun
            self.exchanges += 1
            self.models_sent += len(models)
            self.tests += len(models) * asked
            self.bytes_down += model_bytes(models) * asked
            self._ask_server([*some, *([None] if before else [])], models)
            if before:
                self.before = _joined(self.before, answers[-1])
                before = False
            for place, evaluation in zip(some, answers, strict=False):
                self.evaluations[place] = _joined(self.evaluations.get(place), evaluation)
                self.exchange_of.setdefault(place, self.exchanges)

    @property
    def reports(self) -> Reports | None:
        """What the clients answered beside what the server's rows say; None where these were not asked."""
        answers: list[tuple[int | None, Evaluation | None]] = [(None, self.before), *self.evaluations.items()]
        pairs = [(answer, self._own[place]) for place, answer in answers if answer and place in self._own]
        return report([answer for answer, _ in pairs], [own for _, own in pairs], self.turn)

    def _ask_server(self, places: Sequence[int | None], models: Sequence[Model]) -> None:
        """Each model once; None is the model before the round."""
        if self._predict is not None:
            for at, place in enumerate(places):
                if place not in self._own:
                    self._own[place] = self._predict([models[at]])

    def _exchanges(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """The candidates in their order, as many together as have at most AT_ONCE weightings."""
        some: list[int] = []
        for place in places:
            if len({self._row_of[one] for one in (*some, place)}) > AT_ONCE:
                yield some
                some = []
            some.append(place)
        if some:
            yield some

    def _models(self, places: Sequence[int], before: bool) -> Sequence[Model]:
        """The candidates' models, then the one before the round where wanted."""
        if self._coefficients is None:
            assert self._step is not None  # one of the two is given
            return [self._step(place, self.update(place)) for place in places] + [self._start] * before
        rows = list(dict.fromkeys(self._row_of[place] for place in places))
        first = {row: next(place for place in places if self._row_of[place] == row) for row in rows}
        moves = () if self._move is None else (self._move,)
        coefficients = []
        for place in places:
            length, carry = self._coefficients[place]
            along = tuple(length if self._row_of[place] == row else 0.0 for row in rows)
            coefficients.append((*along, *([carry] * len(moves))))
        coefficients += [(0.0,) * (len(rows) + len(moves))] * before
        basis = (*(self.update(first[row]) for row in rows), *moves)
        return Mixtures(self._start, basis, tuple(coefficients))


def _each_once(weightings: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """The different rows in the order in which they come, and the row of each candidate."""
    numbers: dict[bytes, int] = {}
    row_of = [numbers.setdefault(row.tobytes(), len(numbers)) for row in weightings]
    firsts = [row_of.index(number) for number in range(len(numbers))]
    return weightings[firsts], row_of


def _joined(earlier: Evaluation | None, answers: Evaluation) -> Evaluation:
    """Answers of other clients added to those that there are."""
    if earlier is None:
        return answers
    losses: Vector | None = None
    if earlier.losses is not None and answers.losses is not None:
        losses = earlier.losses + answers.losses
    return Evaluation(earlier.correct + answers.correct, earlier.sizes + answers.sizes, losses)
