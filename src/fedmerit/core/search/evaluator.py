"""Candidate evaluator: clients test a round's candidate models, each once; the cost is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.models.shared import Job
from fedmerit.core.objectives import Objective, direction
from fedmerit.core.search.search import Candidate, CandidateResult, Choice, SearchReport
from fedmerit.core.server.server import Batch, MixingOptimizer, mix
from fedmerit.core.types import EMPTY, ClientId, Evaluation, Model, SplitName

ROWS_PER_PASS = 8
"""Weightings per exchange and per aggregation pass: fixed, so that the bits do not depend on which are requested."""


class CandidateEvaluator:
    """Candidates of one round, each a weighting of the updates and a step, and the clients that test them.

    A candidate's aggregate is computed once; candidates may share it. If every step is a sum of the aggregate and the
    last step, clients receive these vectors and build the models themselves. The results are in `evaluations`, by
    candidate, and in `before`, for the model before the round if requested.

    Stages with `bound_answers` (Claims) bound the answers.
    """

    def __init__(self, batch: Batch, job: Job, on: SplitName) -> None:
        assert batch.view is not None  # a round has one
        self._view, self._batch, self._job, self._on = batch.view, batch, job, on
        clients, candidates = batch.view.host.clients, job.candidates
        self._clients, self._server = clients, job.recipe.server
        self._own = batch.view.own_of("server")
        state = self._own.get("optimizer", EMPTY)
        self._move: Model | None = state.get("move")
        optimizers = [one.weighting.optimizer or self._server.optimizer for one in candidates]
        mixing = [one.mixture(state) for one in optimizers if isinstance(one, MixingOptimizer)]
        self._mixtures = mixing if len(mixing) == len(candidates) else None
        rows = [np.zeros(0) if one.weights is None else one.weights.weights for one in candidates]
        self._rows, self._row_of = _each_once(np.stack(rows))
        self._pass: tuple[int, NDArray[np.float32]] | None = None
        self._bounds = [one.bound_answers for one in job.recipe.all_stages if hasattr(one, "bound_answers")]
        self.before: Evaluation | None = None
        self.evaluations: dict[int, Evaluation] = {}
        self.exchange_of: dict[int, int] = {}
        self.exchanges = self.models_sent = self.tests = self.bytes_down = 0
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._row_of)

    def aggregate(self, place: int) -> Model:
        """Return a candidate's aggregate; all weightings of a pass are computed together."""
        number, row = divmod(self._row_of[place], ROWS_PER_PASS)
        if self._pass is None or self._pass[0] != number:
            rows = self._rows[number * ROWS_PER_PASS : (number + 1) * ROWS_PER_PASS]
            self._pass = number, self._server.aggregator(self._batch, rows)
        return self._pass[1][row]  # type: ignore[no-any-return]

    def ask(
        self,
        places: Sequence[int],
        clients: Sequence[ClientId] | None = None,
        *,
        before: bool = False,
        losses: bool = False,
    ) -> None:
        """Ask these clients, or all, about these candidates and, if requested, the model `before` the round.

        With `losses` they also report the loss on their rows.
        """
        for chunk in self._exchanges(places):
            models = self._models(chunk, before)
            begun = perf_counter()
            answers = self._clients.evaluate(models, self._on, clients, losses=losses)
            for bound in self._bounds:
                answers = [bound(answer) for answer in answers]
            if (measure := self._view.host.measure) is not None:
                answers = [self._with_values(*pair, measure) for pair in zip(models, answers, strict=True)]
            client_count = len(self._clients.judges() if clients is None else clients)
            self.seconds += perf_counter() - begun
            self.exchanges += 1
            self.models_sent += len(models)
            self.tests += len(models) * client_count
            self.bytes_down += model_bytes(models) * client_count
            if before:
                self.before = answers[-1]
                before = False
            for place, evaluation in zip(chunk, answers, strict=False):
                self.evaluations[place] = evaluation
                self.exchange_of.setdefault(place, self.exchanges)

    def _with_values(self, model: Model, answer: Evaluation, measure: Objective) -> Evaluation:
        """Add the measure at each client that answered; errors with a minus, so that higher is better."""
        asked = [int(client) for client in np.flatnonzero(answer.sizes)]
        audited = self._clients.audit(model, [measure], personal=False, on=self._on, clients=asked)
        values = np.full(len(answer.sizes), np.nan)
        for client, of_client in audited.items():
            values[client] = direction(measure.name) * of_client[measure.name]
        return replace(answer, values=values)

    def choice(self, place: int, quality: float | None = None) -> Choice:
        """Return the choice of a candidate, with the results of all of them."""
        results = [self._result(i, one, i == place) for i, one in enumerate(self._job.candidates) if one.weights]
        report = SearchReport(
            tuple(results), self.exchanges, self.models_sent, self.tests, self.bytes_down, self.seconds, quality
        )
        tested = self.evaluations[place] if quality is not None and self._on == "test" else None
        return Choice(place, self.aggregate(place), quality, tested, report)

    def _result(self, place: int, candidate: Candidate, chosen: bool) -> CandidateResult:
        evaluation = self.evaluations.get(place)
        by_loss = evaluation is not None and evaluation.losses is not None
        sign = 1 if self._view.host.measure is None else direction(self._view.host.measure.name)
        quality = None if evaluation is None else evaluation.loss if by_loss else sign * evaluation.quality
        return CandidateResult(candidate.label, candidate.same, quality, self.exchange_of.get(place), chosen)

    def _exchanges(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Split the candidates, in order, into chunks of at most ROWS_PER_PASS weightings."""
        chunk: list[int] = []
        for place in places:
            if len({self._row_of[one] for one in (*chunk, place)}) > ROWS_PER_PASS:
                yield chunk
                chunk = []
            chunk.append(place)
        if chunk:
            yield chunk

    def _stepped(self, place: int) -> Model:
        """Return the model of a candidate whose step is not a sum of vectors."""
        candidate, aggregate = self._job.candidates[place], self.aggregate(place)
        return self._server.optimize(self._batch, candidate, aggregate, self._view.model, self._own)[0]

    def _models(self, places: Sequence[int], before: bool) -> Sequence[Model]:
        """Return the candidates' models, then the one before the round if requested."""
        if self._mixtures is None:
            return [self._stepped(place) for place in places] + [self._view.model] * before
        rows = list(dict.fromkeys(self._row_of[place] for place in places))
        first = {row: next(place for place in places if self._row_of[place] == row) for row in rows}
        moves = () if self._move is None else (self._move,)
        coefficients = []
        for place in places:
            lr, momentum = self._mixtures[place]
            along = tuple(lr if self._row_of[place] == row else 0.0 for row in rows)
            coefficients.append((*along, *([momentum] * len(moves))))
        coefficients += [(0.0,) * (len(rows) + len(moves))] * before
        basis = (*(self.aggregate(first[row]) for row in rows), *moves)
        return Mixtures(self._view.model, basis, tuple(coefficients))


def _each_once(weightings: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Return the distinct rows in order of first occurrence, and the row of each candidate."""
    numbers: dict[bytes, int] = {}
    row_of = [numbers.setdefault(row.tobytes(), len(numbers)) for row in weightings]
    firsts = [row_of.index(number) for number in range(len(numbers))]
    return weightings[firsts], row_of


@dataclass(frozen=True, slots=True, eq=False)
class Mixtures(Sequence[Model]):
    """The models start + sum_i coefficients[k][i] * basis[i], computed on access.

    >>> import numpy as np
    >>> one = np.ones(2, np.float32)
    >>> models = Mixtures(one, (one,), ((0.0,), (1.0,), (2.0,)))
    >>> [model.tolist() for model in models], models.nbytes
    ([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], 16)
    """

    start: Model
    basis: tuple[Model, ...]
    coefficients: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.coefficients)

    @overload
    def __getitem__(self, place: int) -> Model: ...
    @overload
    def __getitem__(self, place: slice) -> Mixtures: ...
    def __getitem__(self, place: int | slice) -> Model | Mixtures:
        if isinstance(place, slice):
            return Mixtures(self.start, self.basis, self.coefficients[place])
        return mix(self.start, self.basis, self.coefficients[place])

    def __iter__(self) -> Iterator[Model]:
        return (mix(self.start, self.basis, row) for row in self.coefficients)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: each vector once."""
        return self.start.nbytes + sum(vector.nbytes for vector in self.basis)


def model_bytes(models: Sequence[Model]) -> int:
    """Bytes on the wire of models that are sent together.

    >>> import numpy as np
    >>> model_bytes([np.zeros(2, np.float32)] * 3)
    24
    """
    return models.nbytes if isinstance(models, Mixtures) else sum(model.nbytes for model in models)
