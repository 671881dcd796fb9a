"""Controls: what keeps clients with unlike data from drifting apart while they train: SCAFFOLD and FedDyn.

Each client k adds a vector, its `correction`, to every gradient. The server keeps what these are made of in its state,
one vector `shared` and one for each client, so that clients need not remember anything: a client that comes back, on
whatever machine, continues where it was. That costs one vector as long as the model per client that ever took part, in
memory and in every checkpoint, and a second vector in each download.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.types import EMPTY, ClientId, Cohort, Model, Own, Vector
from fedmerit.errors import ConfigError

CORRECTION = "correction"
"""The vector that goes down: a client adds it to its gradients."""
SLOPE = "slope"
"""The vector that comes up, where one does: the mean direction that a client went, (start - end) / (lr steps).

With the correction in it, as with everything else that was added to the gradient."""
NEEDS: Words = frozenset({"shared test", "weighted mean", "whole updates", "answers in their round", "control vectors"})
CONTROL_WHY: Mapping[str, str] = {
    "shared test": 'it corrects clients towards one global model; use train.algorithm = "sgd", or another recipe',
    "weighted mean": 'what clients send in addition is added up unbounded; use the mean, or train.algorithm = "sgd"',
    "accounted": 'clients receive what others sent, without noise; use train.algorithm = "sgd"',
    "plain step": 'it takes its own step; use train.algorithm = "scaffold", or remove recipe.server.optimizer',
    "fixed weighting": 'it takes its own step, which a search does not know; use train.algorithm = "scaffold"',
}


class Control(Protocol):
    """What goes out in addition to the model, and what the server makes of the replies.

    >>> Scaffold().vectors(client=3, own={})
    {}
    """

    @property
    def name(self) -> str:
        """As `train.algorithm` says it."""

    @property
    def moves_model(self) -> bool:
        """Whether the server also changes the model that the optimizer made."""

    def vectors(self, client: ClientId, own: Own) -> Mapping[str, Model]:
        """The vectors for a client's download; none before there is anything to correct."""

    def after(self, model: Model, cohort: Cohort, weights: Vector, clients: int, own: Own) -> tuple[Model, Own]:
        """The model, and the state, after a round.

        model     what the optimizer made of the round
        weights   what the cohort's clients earned, 1 together
        clients   the number of clients in the federation
        own       the state before the round
        """


@part("control", "scaffold")
class Scaffold:
    """SCAFFOLD with its option II [Karimireddy 2020, Alg. 1]: client k goes down g - c_k + c.

    With s_k = (x - y_k) / (lr steps), where it started from x and ended at y_k:

        c_k = c_k - c + s_k
        c   = c + n / N sum_k w_k (s_k - c)     over the n clients of the round, of N

    The paper's weights are 1/n, and c stays the mean of all c_k. Here they are those earned: a client without weight
    does not move the others' corrections either. The server's learning rate is that of the optimizer.
    """

    name: ClassVar[str] = "scaffold"
    moves_model: ClassVar[bool] = False
    needs: ClassVar[Words] = NEEDS
    why: ClassVar[Mapping[str, str]] = CONTROL_WHY

    def vectors(self, client: ClientId, own: Own) -> Mapping[str, Model]:
        """c - c_k."""
        if "shared" not in own:
            return {}
        return {CORRECTION: own["shared"] - _of(own, client, own["shared"])}

    def after(self, model: Model, cohort: Cohort, weights: Vector, clients: int, own: Own) -> tuple[Model, Own]:
        """The model as it is, and new controls of the round's clients."""
        if SLOPE not in cohort.vectors:
            raise ConfigError(f"SCAFFOLD needs a learner that sends back a vector {SLOPE!r}; see TorchLearner")
        slopes, shared = cohort.vectors[SLOPE], _shared(own, model)
        kept = dict(own.get("clients", EMPTY))
        for place, client in enumerate(cohort.ids):
            kept[str(client)] = _of(own, client, model) - shared + slopes.row(place)
        share = np.float32(len(cohort.ids) / clients)
        return model, {"shared": shared + share * (slopes.combine(weights) - shared), "clients": kept}


@part("control", "feddyn")
class FedDyn:
    """FedDyn [Acar 2021, Alg. 1]: client k goes down g - l_k + alpha (y - x), where l_k is its gradient where it ended.

    With its update d_k = y_k - x:

        l_k = l_k - alpha d_k
        h   = h - alpha n / N sum_k w_k d_k     over the n clients of the round, of N
        x   = x + sum_k w_k d_k - h / alpha

    The paper's weights are 1/n; here they are those earned. Nothing but the update comes up. The state keeps -l_k.
    """

    alpha: Annotated[float, Interval(gt=0), Doc("pull towards the received model")] = 0.01

    name: ClassVar[str] = "feddyn"
    moves_model: ClassVar[bool] = True
    needs: ClassVar[Words] = NEEDS | {"plain step", "fixed weighting"}
    why: ClassVar[Mapping[str, str]] = CONTROL_WHY

    def vectors(self, client: ClientId, own: Own) -> Mapping[str, Model]:
        """-l_k."""
        known = own.get("clients", EMPTY)
        return {CORRECTION: known[str(client)]} if str(client) in known else {}

    def after(self, model: Model, cohort: Cohort, weights: Vector, clients: int, own: Own) -> tuple[Model, Own]:
        """The model minus h / alpha, and new controls of the round's clients."""
        alpha, kept = np.float32(self.alpha), dict(own.get("clients", EMPTY))
        for place, client in enumerate(cohort.ids):
            kept[str(client)] = _of(own, client, model) + alpha * cohort.updates.row(place)
        share = np.float32(len(cohort.ids) / clients)
        shared = _shared(own, model) - alpha * share * cohort.updates.combine(weights)
        return np.asarray(model - shared / alpha, np.float32), {"shared": shared, "clients": kept}


def _shared(own: Own, like: Model) -> Model:
    shared: Model = own["shared"] if "shared" in own else np.zeros_like(like)
    return shared


def _of(own: Own, client: ClientId, like: Model) -> Model:
    """A client's control; zeros before its first round."""
    vector: Model | None = own.get("clients", EMPTY).get(str(client))
    return np.zeros_like(like) if vector is None else vector
