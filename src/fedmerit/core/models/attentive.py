"""Attentive message passing: each client has its own model at the server, mixed with similar ones [FedAMP]."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.host import Host
from fedmerit.core.models.shared import (
    Assignment,
    Job,
    Moved,
    all_together,
    keep_first_model,
    no_rewards,
    test_personal,
)
from fedmerit.core.objectives import Objective
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.state import RoundResult, Tested, View
from fedmerit.core.types import EMPTY, ClientId, Matrix, Model, Rows, Training
from fedmerit.core.updates import Updates


@part("models", "attentive")
class AttentiveModels:
    """A model w_i per client, trained near a mixture u_i of all clients' models [FedAMP, Alg. 1 and 2].

        a_ij = alpha A'(||w_i - w_j||^2) = alpha / sigma exp(-||w_i - w_j||^2 / sigma)     for j other than i
        u_i  = (1 - sum_j a_ij) w_i + sum_j a_ij w_j
        w_i  = argmin_w F_i(w) + lam / (2 alpha) ||w - u_i||^2

    The client approximates the last line by its local epochs, starting from its w_i. Every client's last model counts,
    also if it did not take part in the last round. Weights and criteria are not used. With alpha above
    sigma / (clients - 1) the weight of a client's own model can fall below 0.

    alpha   step of the mixing: how much clients move towards each other
    sigma   squared distance over which similarity falls
    lam     lambda: how strongly training is pulled towards the mixture, relative to alpha

    >>> models = np.array([[0.0], [0.0], [9.0]], np.float32)
    >>> AttentiveModels(alpha=0.4, sigma=1.0).mixing(models).round(2).tolist()
    [[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]
    """

    alpha: Annotated[float, Interval(gt=0), Doc("step of the mixing: how much clients move towards each other")] = 1.0
    sigma: Annotated[float, Interval(gt=0), Doc("squared distance over which similarity falls")] = 10.0
    lam: Annotated[float, Interval(ge=0), Doc("lambda: pull towards the mixture, relative to alpha")] = 0.1

    needs: ClassVar[Words] = frozenset(
        {"pulled training", "personal storage", "answers in their round", "weighted mean", "whole updates"}
        | {"plain step", "fixed weighting"}
    )
    why: ClassVar[Mapping[str, str]] = {
        "shared model": "every client has its own model; use a recipe with one model",
        "server model": "every client has its own model; remove the part, or use a recipe with one model",
        "shared test": "every client is tested on its own model",
        "pulled training": "the learner needs a method `train_pulled`; use TorchLearner",
        "weighted mean": "models are mixed by similarity, not aggregated; remove recipe.server.aggregator",
        "accounted": "clients receive mixtures of other clients' models without noise; use a recipe with one model",
        "fixed weighting": "a search tests one model on all clients; remove it, or use a recipe with one model",
    }
    start, group, send_rewards = keep_first_model, all_together, no_rewards

    def training_mode(self, index: int) -> Training:
        """Train the client's own model, pulled towards the mixture that was sent."""
        return Training(pull=self.lam / self.alpha, sends_local=True)

    def mixing(self, models: Rows) -> Matrix:
        """Coefficient of model j in u_i; rows sum to 1."""
        similar = self.alpha / self.sigma * np.exp(-Updates(models).squared_distances / self.sigma)
        np.fill_diagonal(similar, 0.0)
        return np.asarray(similar + np.diag(1 - similar.sum(axis=1)))

    def assign(self, clients: Sequence[ClientId], view: View) -> Assignment:
        """Give each client its mixture; the first model to clients that have not trained yet."""
        stored: Mapping[str, Model] = view.own_of("models").get("clients", EMPTY)
        places = {int(client): place for place, client in enumerate(stored)}
        mixed = [client for client in clients if client in places]
        models = [view.model]
        if mixed:
            rows = np.stack(list(stored.values()))
            models += list(Updates(rows).combine(self.mixing(rows)[[places[client] for client in mixed]]))
        numbers = {client: number for number, client in enumerate(mixed, start=1)}
        return Assignment(tuple(models), {client: numbers.get(client, 0) for client in clients})

    def move(self, job: Job, assignment: Assignment) -> Moved:
        """Store the models that the round's clients trained; the server has no other model."""
        stored = dict(job.view.own_of("models").get("clients", EMPTY))
        for place, client in enumerate(job.cohort.ids):
            stored[str(client)] = assignment.models[assignment.model_of[client]] + job.cohort.updates.row(place)
        return Moved(job.view.model, {"models": {"clients": stored}}, job.candidates[0] if job.candidates else None)

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Let every client test its own model."""
        return test_personal(result.state.model, host, objectives)
