"""Controls: control variates against client drift on heterogeneous data: SCAFFOLD and FedDyn.

Each client k adds a vector, its `correction`, to every gradient. The server keeps the state of all clients: one vector
`shared` and one per client. Clients need no memory: a client that returns on another machine continues where it was.
The cost is one vector as long as the model per client that ever took part, in memory and in every checkpoint, and a
second vector in each download.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.types import EMPTY, ClientId, Cohort, Model, Own, Vector
from fedmerit.errors import ConfigError

CORRECTION = "correction"
"""Vector sent to a client, which adds it to its gradients."""
SLOPE = "slope"
"""Vector sent by a client, if any: its mean direction, (start - end) / (lr steps).

It includes the correction and everything else that was added to the gradient."""
NEEDS: Words = frozenset({"shared test", "weighted mean", "whole updates", "answers in their round", "control vectors"})
CONTROL_WHY: Mapping[str, str] = {
    "shared test": 'it corrects clients towards one global model; use train.algorithm = "sgd", or another recipe',
    "weighted mean": 'clients\' control vectors are summed without a bound; use the mean, or train.algorithm = "sgd"',
    "accounted": 'clients receive control vectors of other clients without noise; use train.algorithm = "sgd"',
    "plain step": 'it has its own step; use train.algorithm = "scaffold", or remove recipe.server.optimizer',
    "fixed weighting": 'it has its own step, which a search does not know; use train.algorithm = "scaffold"',
}


class Control(Protocol):
    """A control: the vectors sent with the model, and the server's use of the replies.

    >>> Scaffold().vectors(client=3, own={})
    {}
    """

    @property
    def name(self) -> str:
        """Name in `train.algorithm`."""

    @property
    def moves_model(self) -> bool:
        """Whether the server also changes the model after the optimizer."""

    def vectors(self, client: ClientId, own: Own) -> Mapping[str, Model]:
        """Return the vectors for a client's download; empty before the first correction."""

    def after(self, model: Model, cohort: Cohort, weights: Vector, clients: int, own: Own) -> tuple[Model, Own]:
        """Return the model and the state after a round.

        model     the model after the optimizer
        weights   earned weights of the cohort, which sum to 1
        clients   the number of clients in the federation
        own       the state before the round
        """


@part("control", "scaffold")
class Scaffold:
    """SCAFFOLD with its option II [Karimireddy 2020, Alg. 1]: client k descends along g - c_k + c.

    With s_k = (x - y_k) / (lr steps), where it started from x and ended at y_k:

        c_k = c_k - c + s_k
        c   = c + n / N sum_k w_k (s_k - c)     over the n clients of the round, of N

    The paper's weights are 1/n, and c stays the mean of all c_k. Here they are the earned ones: a client without weight
    does not change the corrections of the remaining clients. The server's learning rate is the optimizer's.
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
        """Return the model unchanged, and new controls of the round's clients."""
        if SLOPE not in cohort.vectors:
            raise ConfigError(
                f"SCAFFOLD needs a learner that returns a vector {SLOPE!r} (got {list(cohort.vectors)}): TorchLearner"
            )
        slopes, shared = cohort.vectors[SLOPE], _shared(own, model)
        corrections = dict(own.get("clients", EMPTY))
        for place, client in enumerate(cohort.ids):
            corrections[str(client)] = _of(own, client, model) - shared + slopes.row(place)
        share = np.float32(len(cohort.ids) / clients)
        return model, {"shared": shared + share * (slopes.combine(weights) - shared), "clients": corrections}


@part("control", "feddyn")
class FedDyn:
    """FedDyn [Acar 2021, Alg. 1]: client k descends along g - l_k + alpha (y - x), l_k its gradient at its last model.

    With its update d_k = y_k - x:

        l_k = l_k - alpha d_k
        h   = h - alpha n / N sum_k w_k d_k     over the n clients of the round, of N
        x   = x + sum_k w_k d_k - h / alpha

    The paper's weights are 1/n; here they are the earned ones. Clients send only the update. The state stores -l_k.
    """

    alpha: Annotated[float, Interval(gt=0), Doc("pull towards the received model")] = 0.01

    name: ClassVar[str] = "feddyn"
    moves_model: ClassVar[bool] = True
    needs: ClassVar[Words] = NEEDS | {"plain step", "fixed weighting"}
    why: ClassVar[Mapping[str, str]] = CONTROL_WHY

    def vectors(self, client: ClientId, own: Own) -> Mapping[str, Model]:
        """-l_k."""
        corrections = own.get("clients", EMPTY)
        return {CORRECTION: corrections[str(client)]} if str(client) in corrections else {}

    def after(self, model: Model, cohort: Cohort, weights: Vector, clients: int, own: Own) -> tuple[Model, Own]:
        """Return the model minus h / alpha, and new controls of the round's clients."""
        alpha, corrections = np.float32(self.alpha), dict(own.get("clients", EMPTY))
        for place, client in enumerate(cohort.ids):
            corrections[str(client)] = _of(own, client, model) + alpha * cohort.updates.row(place)
        share = np.float32(len(cohort.ids) / clients)
        shared = _shared(own, model) - alpha * share * cohort.updates.combine(weights)
        return np.asarray(model - shared / alpha, np.float32), {"shared": shared, "clients": corrections}


def _shared(own: Own, like: Model) -> Model:
    shared: Model = own["shared"] if "shared" in own else np.zeros_like(like)
    return shared


def _of(own: Own, client: ClientId, like: Model) -> Model:
    """Control of a client; zeros before its first round."""
    vector: Model | None = own.get("clients", EMPTY).get(str(client))
    return np.zeros_like(like) if vector is None else vector
