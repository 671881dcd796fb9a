"""Controls: what keeps clients with unlike data from drifting apart while they train: SCAFFOLD and FedDyn.

Each client k adds a vector of its own, its `correction`, to every gradient. The server keeps what these are made of in
the state, in `control` for all and `control:17` for client 17, so that clients need not remember anything: a
checkpoint holds all of it, and a client that comes back, on whatever machine, goes on where it was. That costs one
vector as long as the model per client that ever took part, in memory and in every checkpoint, and a second vector
beside the model in each download.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmerit.core.types import NOTHING, ClientId, Cohort, Model, Vector
from fedmerit.errors import ConfigError

CONTROL = "control"
CORRECTION = "correction"
"""The vector that goes down: a client adds it to its gradients."""
SLOPE = "slope"
"""The vector that comes up, where one does: the mean of the directions that a client went, (start - end) / (lr steps).

With the correction in it, as with everything else that was added to the gradient."""


class Control(Protocol):
    """What goes out beside the model, and what the server makes of the replies.

    >>> Scaffold().extras({}, client=3)
    {}
    """

    @property
    def name(self) -> str:
        """As `train.algorithm` says it."""

    @property
    def moves_model(self) -> bool:
        """Whether the server also changes the model that the recipe made."""

    def extras(self, parts: Mapping[str, Model], client: ClientId) -> Mapping[str, Model]:
        """The vectors for a client's download; none before there is anything to correct."""

    def after(
        self, model: Model, parts: Mapping[str, Model], cohort: Cohort, weights: Vector, clients: int
    ) -> tuple[Model, Mapping[str, Model]]:
        """The model, and the controls of all clients, after a round.

        model     what the recipe made of the round
        parts     the state before it
        weights   what the cohort's clients earned, 1 together
        clients   the number of clients in the federation
        """


@dataclass(frozen=True, slots=True)
class Scaffold:
    """SCAFFOLD with its option II [Karimireddy 2020, Alg. 1]: client k goes down g - c_k + c.

    With s_k = (x - y_k) / (lr steps), where it started from x and ended at y_k:

        c_k = c_k - c + s_k
        c   = c + n / N sum_k w_k (s_k - c)     over the n clients of the round, of N

    The paper's weights are 1/n, and c stays the mean of all c_k. Here they are those earned: a client without weight
    does not move the others' corrections either. The server's learning rate is `recipe.step`'s.
    """

    name: str = "scaffold"
    moves_model: bool = False

    def extras(self, parts: Mapping[str, Model], client: ClientId) -> Mapping[str, Model]:
        """c - c_k."""
        if CONTROL not in parts:
            return {}
        return {CORRECTION: parts[CONTROL] - _of(parts, client, parts[CONTROL])}

    def after(
        self, model: Model, parts: Mapping[str, Model], cohort: Cohort, weights: Vector, clients: int
    ) -> tuple[Model, Mapping[str, Model]]:
        """The model as it is, and new controls of the round's clients."""
        if SLOPE not in cohort.extras:
            raise ConfigError(f"SCAFFOLD needs a learner that sends back a vector {SLOPE!r}; see TorchLearner")
        slopes, shared = cohort.extras[SLOPE], _shared(parts, model)
        controls = dict(_controls(parts))
        for place, client in enumerate(cohort.ids):
            controls[_key(client)] = _of(parts, client, model) - shared + slopes.row(place)
        share = np.float32(len(cohort.ids) / clients)
        controls[CONTROL] = shared + share * (slopes.combine(weights) - shared)
        return model, controls


@dataclass(frozen=True, slots=True)
class FedDyn:
    """FedDyn [Acar 2021, Alg. 1]: client k goes down g - l_k + alpha (y - x), where l_k is its gradient where it ended.

    With its update d_k = y_k - x:

        l_k = l_k - alpha d_k
        h   = h - alpha n / N sum_k w_k d_k     over the n clients of the round, of N
        x   = x + sum_k w_k d_k - h / alpha

    The paper's weights are 1/n; here they are those earned. Nothing but the update comes up. `control:k` is -l_k.
    """

    alpha: float = 0.01
    name: str = "feddyn"
    moves_model: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"train.alpha is above 0; got {self.alpha}")

    def extras(self, parts: Mapping[str, Model], client: ClientId) -> Mapping[str, Model]:
        """-l_k."""
        return {CORRECTION: parts[_key(client)]} if _key(client) in parts else {}

    def after(
        self, model: Model, parts: Mapping[str, Model], cohort: Cohort, weights: Vector, clients: int
    ) -> tuple[Model, Mapping[str, Model]]:
        """The model minus h / alpha, and new controls of the round's clients."""
        alpha, controls = np.float32(self.alpha), dict(_controls(parts))
        for place, client in enumerate(cohort.ids):
            controls[_key(client)] = _of(parts, client, model) + alpha * cohort.updates.row(place)
        share = np.float32(len(cohort.ids) / clients)
        controls[CONTROL] = _shared(parts, model) - alpha * share * cohort.updates.combine(weights)
        return np.asarray(model - controls[CONTROL] / alpha, np.float32), controls


def apply_control(
    control: Control | None,
    model: Model,
    parts: Mapping[str, Model],
    cohort: Cohort,
    weights: Vector | None,
    clients: int,
) -> tuple[Model, Mapping[str, Model]]:
    """`control.after`; the model as it is without a control, the controls as they were where nobody was weighed."""
    if control is None:
        return model, NOTHING
    return (model, _controls(parts)) if weights is None else control.after(model, parts, cohort, weights, clients)


def _key(client: ClientId) -> str:
    return f"{CONTROL}:{client}"


def _controls(parts: Mapping[str, Model]) -> Mapping[str, Model]:
    """Of the parts of a state, those of a control."""
    return {name: part for name, part in parts.items() if name.partition(":")[0] == CONTROL}


def _shared(parts: Mapping[str, Model], like: Model) -> Model:
    return parts[CONTROL] if CONTROL in parts else np.zeros_like(like)


def _of(parts: Mapping[str, Model], client: ClientId, like: Model) -> Model:
    """A client's control; zeros before its first round."""
    return parts[_key(client)] if _key(client) in parts else np.zeros_like(like)
