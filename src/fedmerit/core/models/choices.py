"""Choices: which of the server's models each client takes, how these move, and how clients are tested on them [IFCA].

The first model is the state's own; the others, and what steps remember of them, are named parts of the state, so that
a run that is resumed has them to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmerit.core.host import Fleet, Judges, Predict, Server
from fedmerit.core.models.grouping import Groups, numbered
from fedmerit.core.objectives import Objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.seeds import derive, generator
from fedmerit.core.server.aggregation import Aggregation, Candidate, aggregate
from fedmerit.core.stages.validation import Audit, audit
from fedmerit.core.state import State
from fedmerit.core.types import ClientId, Cohort, Evaluation, Model, Replies

PART, MODEL = "hypothesis/", "model"
"""Begins the names of the state's parts that belong to the models after the first: `hypothesis/1/model` ..."""
UNANSWERED = "it did not say which of the models fits its rows best"


@dataclass(frozen=True, slots=True)
class Choices:
    """The server's models, the place of the one that each client takes, and the bytes that asking them took.

    Who did not answer has no place. Where the server has one model, everybody takes it and nobody is asked.

    >>> Choices((np.zeros(1), np.ones(1)), {4: 1, 5: 0, 6: 1}).groups([4, 5, 6]).labels.tolist()
    [0, 1, 0]
    """

    models: tuple[Model, ...]
    places: Mapping[ClientId, int]
    bytes_down: int = 0

    def groups(self, ids: Sequence[ClientId]) -> Groups:
        """Clients that took the same model are one group."""
        return Groups(numbered(np.array([self.places[client] for client in ids], dtype=np.intp)))

    def without_mute(self, replies: Replies, asked: Sequence[ClientId]) -> Replies:
        """The replies, in which those who chose no model are named among the failed."""
        mute = {client: UNANSWERED for client in asked if client not in self.places}
        return replace(replies, failed={**replies.failed, **mute}) if mute else replies


def with_hypotheses(recipe: Recipe, state: State, server: Server, seed: int) -> State:
    """The state with as many models as the recipe has, each after the first with a draw of its own.

    What a model has beyond its own length, by which inputs are centred, is the same in all.
    """
    if recipe.hypotheses is None or len(models_in(state)) == recipe.hypotheses.count:
        return state
    parts = dict(state.parts)
    for number in range(1, recipe.hypotheses.count):
        model = server.first_model(derive(seed, "hypothesis", number))
        parts[_name(number, MODEL)] = np.concatenate([model, state.model[len(model) :]])
    return replace(state, parts=parts)


def models_in(state: State) -> tuple[Model, ...]:
    """The server's models, in their order."""
    others = sorted(int(name.split("/")[1]) for name in state.parts if name.startswith(PART) and name.endswith(MODEL))
    return (state.model, *(state.parts[_name(number, MODEL)] for number in others))


def choose(state: State, judges: Judges, clients: Sequence[ClientId]) -> Choices:
    """Each of these clients takes the model with the least loss on its training rows; of equals, the first."""
    models = models_in(state)
    if len(models) == 1:
        return Choices(models, dict.fromkeys(clients, 0))
    answers = judges.evaluate(models, "training", clients, losses=True)
    losses, sizes = np.stack([answer.losses for answer in answers if answer.losses is not None]), answers[0].sizes
    places = {client: int(losses[:, client].argmin()) for client in clients if sizes[client]}
    return Choices(models, places, sum(model.nbytes for model in models) * len(clients))


def choose_or_deal(recipe: Recipe, state: State, judges: Judges, clients: Sequence[ClientId], seed: int) -> Choices:
    """The choices of a round's clients; in the first rounds, where the recipe says so, a draw in their place."""
    index = state.history.rounds + 1
    if recipe.hypotheses is None or index > recipe.hypotheses.dealt:
        return choose(state, judges, clients)
    models, random = models_in(state), generator(seed, "hypothesis", index)
    dealt = {clients[one]: turn % len(models) for turn, one in enumerate(random.permutation(len(clients)))}
    return Choices(models, {client: dealt[client] for client in clients})


def move(
    choices: Choices | None,
    recipe: Recipe,
    cohort: Cohort,
    groups: Groups,
    candidates: Sequence[Candidate],
    state: State,
    judges: Judges,
    random: np.random.Generator,
    seed: int,
    clients: int,
    predict: Predict | None = None,
) -> Aggregation:
    """`aggregate`; where clients chose among several models, that of each group on the model that it chose."""
    if choices is None or len(choices.models) == 1 or not candidates:
        model, parts, search = state.model, state.parts, state.search
        return aggregate(
            recipe, cohort, groups, candidates, model, parts, search, judges, random, seed, clients, predict
        )
    alone, candidate = replace(recipe, hypotheses=None), candidates[0]
    models, parts = list(choices.models), dict(state.parts)
    for places in groups.members:
        number = choices.places[cohort.ids[places[0]]]
        own = [name for name in parts if (name.startswith(_name(number)) if number else not name.startswith(PART))]
        known = {name.removeprefix(_name(number)): parts[name] for name in own if name != _name(number, MODEL)}
        moved = aggregate(
            alone,
            cohort.keep(places),
            Groups(np.zeros(len(places), dtype=np.intp)),
            [replace(candidate, weights=candidate.weights.take(places))],
            *(models[number], known, state.search, judges, random, seed, clients),
        )
        models[number] = moved.model
        parts = {name: part for name, part in parts.items() if name not in own}
        parts |= {_name(number, name): part for name, part in moved.parts.items()}
        parts |= {_name(number, MODEL): moved.model} if number else {}
    return Aggregation(candidate, models[0], state.search, parts=parts)


def evaluate_chosen(state: State, fleet: Fleet, objectives: Sequence[Objective]) -> tuple[Evaluation, Audit]:
    """Every client on its test rows, with the model that it chooses now; who cannot choose, with the first."""
    clients = range(len(fleet.server.names))
    choices = choose(state, fleet, clients)
    tested = fleet.evaluate(choices.models)
    audits = [audit(objectives, model, fleet, personal=False) for model in choices.models]
    taken = np.array([choices.places.get(client, 0) for client in clients], dtype=np.intp)
    correct = np.stack([one.correct for one in tested])[taken, np.arange(len(taken))]
    audited = {client: audits[taken[client]][client] for client in clients if client in audits[taken[client]]}
    return Evaluation(correct, tested[0].sizes), audited


def _name(number: int, part: str = "") -> str:
    return f"{PART}{number}/{part}" if number else part
