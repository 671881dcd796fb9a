"""Cluster models: several models on the server; each client trains the one that fits its rows best [IFCA]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.host import Host, Judges
from fedmerit.core.models.grouping import numbered
from fedmerit.core.models.shared import Assignment, Job, Moved, audit, no_rewards
from fedmerit.core.objectives import Objective
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import Draws, derive
from fedmerit.core.server.server import Batch
from fedmerit.core.state import RoundResult, State, Tested, View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Evaluation, Groups, Model, Note, Own, Training

PURPOSE = "hypothesis"
"""Seed purpose of first models and of the warm-up; its old name stays, because seeds depend on it."""
NO_ANSWER = "it did not report which model fits its rows best"


@part("models", "clusters")
class ClusterModels:
    """Keep `count` models; in each round a client trains the one with the least loss on its training rows [IFCA].

        j_i = argmin_j loss_i(w_j)
        w_j = w_j + sum over the clients i with j_i = j of weight_i update_i

    Weights are earned among the clients that chose the same model and sum to 1 there [IFCA, Alg. 1, model averaging]; a
    model that nobody chose stays unchanged, with its optimizer's state. Each model starts from a separate draw.

    Untrained models hardly differ for a client: all clients may choose the same one in round 1, which then stays the
    best for all. In the first `warmup_rounds`, 0 in the paper, the models are assigned at random to the round's
    clients, equally often.

    count           the number of models
    warmup_rounds   first rounds with random assignment

    >>> ClusterModels(3).count
    3
    """

    count: Annotated[int, Interval(ge=2), Doc("the number of models")] = 2
    warmup_rounds: Annotated[int, Interval(ge=0), Doc("first rounds with random assignment; the paper's is 0")] = 0

    gives: ClassVar[Words] = frozenset({"server model"})
    needs: ClassVar[Words] = frozenset({"losses", "evaluation", "answers in their round"})
    send_rewards = no_rewards
    why: ClassVar[Mapping[str, str]] = {
        "shared model": "each client trains one of several models; remove one of the two",
        "accounted": "the model that a client chooses has no noise; use a recipe with one model",
    }

    def start(self, model: Model, host: Host, draws: Draws) -> tuple[Model, Own, tuple[Note, ...]]:
        """Return the first model, and further ones from separate draws; entries beyond its length are shared."""
        assert host.first_model is not None  # a host with clusters has one
        further = {}
        for number in range(1, self.count):
            drawn = host.first_model(derive(draws.run_seed, PURPOSE, number))
            further[str(number)] = np.concatenate([drawn, model[len(drawn) :]])
        return model, {"others": further}, ()

    def assign(self, clients: Sequence[ClientId], view: View) -> Assignment:
        """Assign each client its best model; in the first rounds a random one."""
        models = all_models(view.model, view.own_of("models"))
        if view.index > self.warmup_rounds:
            return best_models(models, view.host.clients, clients)
        order = view.draws.generator(PURPOSE).permutation(len(clients))
        dealt = {clients[place]: turn % len(models) for turn, place in enumerate(order)}
        return Assignment(models, {client: dealt[client] for client in clients})

    def training_mode(self, index: int) -> Training:
        """Train the model that was sent."""
        return Training()

    def group(self, cohort: Cohort, assignment: Assignment, view: View) -> Groups:
        """Group the clients that trained the same model."""
        return Groups(numbered(np.array([assignment.model_of[client] for client in cohort.ids], dtype=np.intp)))

    def move(self, job: Job, assignment: Assignment) -> Moved:
        """Apply the server chain to each model that clients chose, with that model's state."""
        cohort, view, server = job.cohort, job.view, job.recipe.server
        if not server.applies(cohort):
            return Moved(view.model)
        models, chosen, notes = list(assignment.models), job.candidates[0], list[Note]()
        server_states = dict(view.own_of("server"))
        assert chosen.weights is not None  # clients came
        for places in job.groups.members:
            number = assignment.model_of[cohort.ids[places[0]]]
            members, own = cohort.keep(places), server_states.get(str(number), EMPTY)
            candidate = replace(chosen, weights=chosen.weights.take(places))
            assert candidate.weights is not None  # just made
            batch = Batch.of(members, [candidate], view, own)
            aggregate = server.aggregator(batch, candidate.weights.weights)
            stepped = server.step(batch, candidate, aggregate, members, models[number], own)
            models[number], server_states[str(number)] = stepped.model, stepped.own
            notes += stepped.notes
        further = {str(number): model for number, model in enumerate(models) if number}
        states = {"models": {"others": further}, "server": {key: own for key, own in server_states.items() if own}}
        return Moved(models[0], states, chosen, notes=tuple(notes))

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Test every client with the model that it chooses now; a client that cannot choose gets the first."""
        clients = range(len(host.names))
        chosen = best_models(models_in(result.state), host.clients, clients)
        tested = host.clients.evaluate(chosen.models)
        audits = [audit(objectives, model, host) for model in chosen.models]
        taken = np.array([chosen.model_of.get(client, 0) for client in clients], dtype=np.intp)
        correct = np.stack([one.correct for one in tested])[taken, np.arange(len(taken))]
        audited = {client: audits[taken[client]][client] for client in clients if client in audits[taken[client]]}
        return Tested(Evaluation(correct, tested[0].sizes), audited)


def all_models(model: Model, own: Own) -> tuple[Model, ...]:
    """Return the first model and the remaining ones, in order."""
    further = own.get("others", EMPTY)
    return (model, *(further[key] for key in sorted(further, key=int)))


def models_in(state: State) -> tuple[Model, ...]:
    """Return the server's models; one if a recipe has no clusters."""
    return all_models(state.model, state.own.get("models", EMPTY))


def best_models(models: tuple[Model, ...], judges: Judges, clients: Sequence[ClientId]) -> Assignment:
    """Assign each client the model with the least loss on its training rows; the first of equals."""
    answers = judges.evaluate(models, "training", clients, losses=True)
    losses, sizes = np.stack([answer.losses for answer in answers if answer.losses is not None]), answers[0].sizes
    model_of = {client: int(losses[:, client].argmin()) for client in clients if sizes[client]}
    failed = {client: NO_ANSWER for client in clients if client not in model_of}
    return Assignment(models, model_of, failed, sum(model.nbytes for model in models) * len(clients))
