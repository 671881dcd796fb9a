"""Models: which models exist, which client holds which, and how a round changes them; the protocol, and one model.

`OneModel` is what three of the four papers train, all but M2F. `LocalModel` adds a private model per client [Ditto].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from annotated_types import Interval

from fedmerit.core.host import Host
from fedmerit.core.objectives import Objective
from fedmerit.core.parts import ACCOUNTED, PURE, Doc, Words, part
from fedmerit.core.search.search import NO_SEARCH, Candidate, SearchReport, remember_choice
from fedmerit.core.seeds import Draws
from fedmerit.core.server.server import Batch
from fedmerit.core.state import SERVER, Audit, RoundResult, Tested, View
from fedmerit.core.types import (
    EMPTY,
    NOT_SUMMED,
    ClientId,
    Cohort,
    Evaluation,
    Groups,
    Model,
    Note,
    Own,
    Rows,
    SentRewards,
    Summed,
    Training,
    one_group,
)

if TYPE_CHECKING:
    from fedmerit.core.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Assignment:
    """The server's models, and the number of the model that each selected client trains.

    failed      selected clients that did not report which model fits them
    bytes_down  bytes sent for the question
    """

    models: tuple[Model, ...]
    model_of: Mapping[ClientId, int]
    failed: Mapping[ClientId, str] = field(default_factory=dict)
    bytes_down: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """Input of the server chain: the round's cohort, groups and candidates, and the sum if facts came first."""

    recipe: Recipe
    cohort: Cohort
    groups: Groups
    candidates: Sequence[Candidate]
    view: View
    summed: Summed = NOT_SUMMED


@dataclass(frozen=True, slots=True)
class Moved:
    """The models after the server chain.

    model       the shared model, or the first of several
    own         states by the key of `State.own`: `models`, `search`, `server`
    chosen      the chosen candidate; None if the model stays because no client answered
    aggregates  one row per group, only with personal models
    evaluation  of exactly this model, from the search
    numbers     further numbers for the record
    """

    model: Model
    own: Mapping[str, Own] = field(default_factory=dict)
    chosen: Candidate | None = None
    aggregates: Rows | None = None
    evaluation: Evaluation | None = None
    search: SearchReport = NO_SEARCH
    notes: tuple[Note, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


class Models(Protocol):
    """Which models exist and which client holds which."""

    def start(self, model: Model, host: Host, draws: Draws) -> tuple[Model, Own, tuple[Note, ...]]:
        """Return the first model and the state before round 1, from the learner's first model."""

    def assign(self, clients: Sequence[ClientId], view: View) -> Assignment:
        """Assign a model to each selected client."""

    def training_mode(self, index: int) -> Training:
        """Return how clients train in a round."""

    def group(self, cohort: Cohort, assignment: Assignment, view: View) -> Groups:
        """Return which clients are weighed and aggregated together."""

    def move(self, job: Job, assignment: Assignment) -> Moved:
        """Return the models after the server chain."""

    def send_rewards(self, job: Job, moved: Moved) -> SentRewards:
        """Send rewards, and return them with the clients' answers."""

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Let clients test the models after the round, and measure the audited objectives."""


def keep_first_model(self: Any, model: Model, host: Host, draws: Draws) -> tuple[Model, Own, tuple[Note, ...]]:
    """`start` for models that begin with the learner's first model."""
    return model, EMPTY, ()


def assign_one(self: Any, clients: Sequence[ClientId], view: View) -> Assignment:
    """`assign` for a single server model."""
    return Assignment((view.model,), dict.fromkeys(clients, 0))


def all_together(self: Any, cohort: Cohort, assignment: Assignment, view: View) -> Groups:
    """`group` for a model that all clients train."""
    return one_group(cohort)


def move_shared(self: Any, job: Job, assignment: Assignment) -> Moved:
    """`move` for a shared model: the search chooses a candidate, and the server chain is applied to it."""
    server, search, view = job.recipe.server, job.recipe.search, job.view
    if not server.applies(job.cohort):
        return Moved(view.model)
    own = view.own_of("server")
    batch = Batch.of(job.cohort, job.candidates, view, own, job.summed if len(job.summed.total) else None)
    choice = search.choose(batch, job)
    chosen = job.candidates[choice.place]
    stepped = server.step(batch, chosen, choice.aggregate, job.cohort, view.model, own)
    states = {"server": stepped.own, "search": remember_choice(search, chosen.label, choice)}
    evaluation = None if stepped.moved_by_control else choice.evaluation
    return Moved(stepped.model, states, chosen, None, evaluation, choice.report, stepped.notes, stepped.numbers)


def no_rewards(self: Any, job: Job, moved: Moved) -> SentRewards:
    """`send_rewards` without rewards: the next download is the reward."""
    return SentRewards()


@part("models", "one")
class OneModel:
    """All clients train and test one model.

    >>> OneModel().training_mode(1)
    Training(personal=None, pull=None, sends_local=False)
    """

    gives: ClassVar[Words] = PURE | {"shared model", "server model", "shared test"}
    start, assign, group, move, send_rewards = keep_first_model, assign_one, all_together, move_shared, no_rewards

    def training_mode(self, index: int) -> Training:
        """Train the model that was sent."""
        return Training()

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Let every client test the model on its test rows, unless the search already did."""
        model = result.state.model
        evaluation = result.moved.evaluation or host.clients.evaluate([model])[0]
        return Tested(evaluation, audit(objectives, model, host))


@part("models", "pooled")
class PooledModel:
    """Train one model on the rows of all clients in one place: what a federation could reach with all data.

    A simulation moves all training rows to client 0, which trains in every round; test rows stay with their clients.

    >>> PooledModel().needs
    frozenset({'pooled rows'})
    """

    gives: ClassVar[Words] = frozenset({"shared model", "server model", "shared test"})
    needs: ClassVar[Words] = frozenset({"pooled rows"})
    why: ClassVar[Mapping[str, str]] = {
        "pooled rows": "all rows are in one place only in a simulation, with recipe.name = 'pooled' in `fedmerit run`",
        "accounted": "it has no clients to protect; use a recipe with one model",
    }
    start, group, move, send_rewards = keep_first_model, all_together, move_shared, no_rewards
    training_mode, test = OneModel.training_mode, OneModel.test

    def assign(self, clients: Sequence[ClientId], view: View) -> Assignment:
        """Let client 0 train, whichever clients were selected."""
        return Assignment((view.model,), {0: 0})


@part("models", "local")
class LocalModel:
    """Train the shared model w and, with the same number of steps, a local model v per client [Ditto, Alg. 1].

        v = v - lr (grad l(v) + pull (v - w))    from its last v; in its first round from w

    Weights, attacks and checks concern w only; clients are tested on v. With `pull` 0 they train only locally.

    pull   lambda, the strength of the pull towards the shared model

    >>> LocalModel(pull=0.5).training_mode(1)
    Training(personal=None, pull=0.5, sends_local=False)
    """

    pull: Annotated[float, Interval(ge=0), Doc("lambda: 0 is local training; larger is nearer to the shared model")] = (
        0.1
    )

    gives: ClassVar[Words] = ACCOUNTED | {"shared model", "server model"}
    needs: ClassVar[Words] = frozenset({"pulled training", "personal storage", "answers in their round"})
    why: ClassVar[Mapping[str, str]] = {
        "shared test": "each client is tested on its own model",
        "pulled training": "the learner needs a method `train_pulled`; use TorchLearner",
    }
    start, assign, group, move, send_rewards = keep_first_model, assign_one, all_together, move_shared, no_rewards

    def training_mode(self, index: int) -> Training:
        """Train the model that was sent, and the local one."""
        return Training(pull=self.pull)

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Let every client test its local model."""
        return test_personal(result.state.model, host, objectives)


def test_personal(model: Model, host: Host, objectives: Sequence[Objective]) -> Tested:
    """Let every client test its personal model on its test rows; a client without one tests this model."""
    values = host.clients.audit(model, objectives, personal=True) if objectives else EMPTY
    return Tested(host.clients.evaluate_personal(model), dict(values))


def audit(objectives: Sequence[Objective], model: Model, host: Host) -> Audit:
    """Measure every objective of the model: on the server's rows, if any, and on each client's test rows."""
    if not objectives:
        return EMPTY
    values = dict(host.clients.audit(model, objectives, personal=False))
    if host.predict is not None:
        predictions = host.predict([model])
        values[SERVER] = {objective.name: float(objective(predictions)[0]) for objective in objectives}
    return values
