"""The server chain: from weighted updates to the next model.

    aggregate = aggregator(updates, weights)      mean, median, noisy sum ...
    model     = optimizer(model, aggregate)       SGD, momentum, Adam ...
    model     = control(model, cohort)            SCAFFOLD, FedDyn

Each part owns its state between rounds; a part that a recipe does not have is not called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLIP
from fedmerit.core.parts import PURE, Doc, Words, part
from fedmerit.core.server.controls import Control
from fedmerit.core.state import View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Matrix, Model, Note, Own, Rows, Summed, Vector
from fedmerit.core.updates import Updates

if TYPE_CHECKING:
    from fedmerit.core.search.search import Candidate


SERVER_MODEL: Words = frozenset({"server model"})
OPTIMIZER_WHY: Mapping[str, str] = {
    "server model": "clients with personal models update them locally; remove the optimizer",
    "plain step": "remove recipe.server.optimizer",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Weighted sum of a round's updates, and sum_k w_k ||update_k||^2, which measures their disagreement."""

    update: Model
    mean_square: float = 0.0


class ServerOptimizer(Protocol):
    """Step from the model and a round's aggregate to the next model.

    >>> SGD()(np.ones(2, np.float32), Aggregate(np.full(2, 0.5, np.float32)))[0].tolist()
    [1.5, 1.5]
    """

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Return the next model and the optimizer's state; `index` counts rounds from 1."""


@runtime_checkable
class MixingOptimizer(ServerOptimizer, Protocol):
    """An optimizer that adds multiples of the aggregate and of the last step.

    Clients build candidate models from these factors, so that few vectors are sent.
    """

    def mixture(self, own: Own) -> tuple[float, float]:
        """Return (lr, momentum) of the next step."""


@part("optimizer", "sgd")
class SGD:
    """Plain step: model + lr * update; with lr = 1 the step of every recipe of the four papers.

    lr   server learning rate

    >>> ones = np.ones(1, np.float32)
    >>> SGD(lr=0.5)(ones, Aggregate(ones))[0].tolist()
    [1.5]
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0
    why = OPTIMIZER_WHY

    @property
    def gives(self) -> Words:
        """With lr = 1 it adds nothing to the aggregate."""
        return PURE | {"plain step"} if self.lr == 1 else PURE

    @property
    def needs(self) -> Words:
        """With lr = 1 it also fits clients that update personal models locally."""
        return frozenset() if self.lr == 1 else SERVER_MODEL

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep nothing for the next round."""
        return mix(model, (aggregate.update,), (self.lr,)), EMPTY

    def mixture(self, own: Own) -> tuple[float, float]:
        """Return (lr, 0)."""
        return self.lr, 0.0


def mix(start: Model, basis: Sequence[Model], coefficients: Sequence[float]) -> Model:
    """Return start + sum_i coefficients[i] * basis[i], in this order, so that server and clients get the same bits.

    >>> mix(np.ones(1, np.float32), [np.ones(1, np.float32)], [0.5]).tolist()
    [1.5]
    """
    model = start
    for vector, coefficient in zip(basis, coefficients, strict=False):
        if coefficient:
            model = model + (vector if coefficient == 1 else np.float32(coefficient) * vector)
    return model


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of an aggregator.

    updates     as they are aggregated: multiplied by the fact `clip` if a stage measured it
    seed        for the aggregator's draws
    own         the aggregator's state before the round
    candidates  of the round's search, with their scores
    view        the round; None if an aggregator is called outside of one
    summed      the sum of the updates, if clients reported facts first; then `updates` has no columns
    """

    updates: Updates
    seed: int = 0
    own: Own = field(default_factory=dict)
    candidates: Sequence[Candidate] = ()
    view: View | None = None
    summed: Summed | None = None

    @classmethod
    def of(
        cls, cohort: Cohort, candidates: Sequence[Candidate], view: View, own: Own, summed: Summed | None = None
    ) -> Batch:
        """Return the batch of a cohort, for a server chain with this state."""
        updates = cohort.updates.mix(cohort.facts[CLIP]) if CLIP in cohort.facts else cohort.updates
        return cls(updates, view.draws.seed("aggregate"), own.get("aggregator", EMPTY), candidates, view, summed)


class Kept(NamedTuple):
    """Result of an aggregator after a round: its state, notes, and numbers for the record."""

    own: Own = EMPTY
    notes: tuple[Note, ...] = ()
    numbers: Mapping[str, float] = EMPTY


class Aggregator(Protocol):
    """Combine the updates of a round by their weights into one vector; with (k, n) weightings into k.

    An aggregator that also runs in a round without clients declares `runs_empty = True`.

    >>> updates = Updates(np.array([[1.0], [3.0]], dtype=np.float32))
    >>> Mean()(Batch(updates), np.array([0.75, 0.25])).tolist()
    [1.5]
    """

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Return a vector for each weighting; zeros if all its weights are 0."""


@runtime_checkable
class StatefulAggregator(Aggregator, Protocol):
    """An aggregator with state between rounds."""

    def after(self, batch: Batch, aggregate: Model) -> Kept:
        """Return its state after the round with this aggregate."""


@part("aggregator", "mean")
class Mean:
    """Weighted mean sum_k w_k update_k: FedAvg, and every recipe of the four papers."""

    gives = frozenset({"weighted mean"}) | PURE
    max_norm: ClassVar[float | None] = None

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Use one pass over the updates, unless they were added up as they came."""
        return batch.updates.combine(weights) if batch.summed is None else batch.summed.mean

    def factors(self, candidate: Candidate) -> Vector:
        """Return the weights."""
        return np.zeros(0) if candidate.weights is None else candidate.weights.weights


class Stepped(NamedTuple):
    """The next model, the chain's state, and whether a control moved the model after the optimizer."""

    model: Model
    own: Own
    moved_by_control: bool = False
    notes: tuple[Note, ...] = ()
    numbers: Mapping[str, float] = EMPTY


MEAN, PLAIN_STEP = Mean(), SGD()


@dataclass(frozen=True, slots=True)
class Server:
    """Server chain: an aggregator, an optimizer, and at most one control.

    Its state is {"aggregator", "optimizer", "control"}. The control comes from the clients' learner (`train.algorithm`)
    when a run is prepared.

    aggregator   combines the updates: `Mean()` by default
    optimizer    moves the model along the aggregate: `SGD()` by default
    controls     control variates of SCAFFOLD or FedDyn

    >>> Server().optimizer
    SGD(lr=1.0)
    """

    aggregator: Aggregator = MEAN
    optimizer: ServerOptimizer = PLAIN_STEP
    controls: tuple[Control, ...] = ()

    def vectors(self, client: ClientId, view: View) -> Mapping[str, Model]:
        """Return the vectors that a client receives in addition to the model."""
        own = view.own_of("server").get("control", EMPTY)
        return {name: vector for one in self.controls for name, vector in one.vectors(client, own).items()}

    def applies(self, cohort: Cohort) -> bool:
        """Whether a round with this cohort changes the model."""
        return bool(cohort.ids) or getattr(self.aggregator, "runs_empty", False)

    def optimize(
        self, batch: Batch, candidate: Candidate, aggregate: Model, model: Model, own: Own
    ) -> tuple[Model, Own]:
        """Take one step of the optimizer along a candidate's aggregate; return the model and the optimizer's state."""
        assert batch.view is not None  # a round has one
        weights = candidate.weights
        spread = 0.0 if weights is None else float(weights.weights @ np.square(batch.updates.norms))
        optimizer = candidate.weighting.optimizer or self.optimizer
        return optimizer(model, Aggregate(aggregate, spread), own.get("optimizer", EMPTY), batch.view.index)

    def step(
        self, batch: Batch, candidate: Candidate, aggregate: Model, cohort: Cohort, model: Model, own: Own
    ) -> Stepped:
        """Step from `model` along a candidate's aggregate; `own` is the chain's state before."""
        assert batch.view is not None  # a round has one
        aggregator, weights = self.aggregator, candidate.weights
        aggregated = aggregator.after(batch, aggregate) if isinstance(aggregator, StatefulAggregator) else Kept()
        after, remembered = self.optimize(batch, candidate, aggregate, model, own)
        controlled, by_control = own.get("control", EMPTY), False
        if weights is not None:
            for control in self.controls:
                clients = len(batch.view.host.names)
                after, controlled = control.after(after, cohort, weights.weights, clients, controlled)
                by_control |= control.moves_model
        states = {"aggregator": aggregated.own, "optimizer": remembered, "control": controlled}
        return Stepped(
            after, {name: one for name, one in states.items() if one}, by_control, aggregated.notes, aggregated.numbers
        )
