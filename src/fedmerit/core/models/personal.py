"""Personal models: each client keeps its own, and receives a part of its group's aggregate as a reward [M2F]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.check import check
from fedmerit.core.collect.collect import draw
from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import Host
from fedmerit.core.models.grouping import Grouping, OneGroup
from fedmerit.core.models.rewards import Acceptance, Reward, Whole
from fedmerit.core.models.shared import Assignment, Job, Moved, assign_one, test_personal
from fedmerit.core.objectives import Objective
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import Draws
from fedmerit.core.server.server import Batch
from fedmerit.core.state import History, RoundResult, Tested, View
from fedmerit.core.types import (
    EMPTY,
    ClientId,
    Cohort,
    Download,
    Groups,
    Model,
    Note,
    Own,
    Personal,
    SentRewards,
    SparseUpdate,
    Training,
)

ONE_GROUP, WHOLE = OneGroup(), Whole()


@part("models", "personal")
class PersonalModels:
    """Let each client train and keep a personal model, and add a part of its group's aggregate to it [M2F].

    A client tests its reward on its validation rows and accepts it if its accuracy rises, or falls by a smaller share
    than `sigma`; above 1 every reward is accepted. After round `until` clients continue without rewards.

    grouping   which clients are aggregated together
    reward     the part of the aggregate that a client gets
    sigma      relative fall of accuracy below which a reward is accepted
    training   local training is kept (`keep`), or reset before the reward is added (`reset`)
    initial    share of the clients that train the first model; 0: it stays random
    until      last round with rewards; None: all rounds

    >>> PersonalModels(training="reset", until=5).training_mode(6)
    Training(personal='keep', pull=None, sends_local=False)
    """

    grouping: Annotated[Grouping, Doc("which clients are aggregated together")] = ONE_GROUP
    reward: Annotated[Reward, Doc("the part of the aggregate that a client gets")] = WHOLE
    sigma: Annotated[float, Interval(ge=0), Doc("a reward that lowers accuracy by less than this is accepted")] = 0.05
    training: Annotated[Personal, Doc("local training is kept, or reset before the reward is added")] = "keep"
    initial: Annotated[
        float, Interval(ge=0, le=1), Doc("share of the clients that train the first model; 0: it stays random")
    ] = 0.0
    until: Annotated[int | None, Interval(ge=0), Doc("last round with rewards; default: all rounds")] = None

    assign = assign_one  # the first model, for clients that have none yet
    why: ClassVar[Mapping[str, str]] = {
        "shared model": "every client has its own model; use a recipe with one model",
        "server model": "every client has its own model; remove the part, or use a recipe with one model",
        "shared test": "every client is tested on its own model",
        "validation rows": "clients test rewards on validation rows; set task.validation = 0.1, or sigma = 2",
        "personal storage": "this fleet cannot store personal models; use `fedmerit run` or `fedmerit flower run`",
        "fixed weighting": "a search tests one model on all clients; remove it, or use a recipe with one model",
        "weighted mean": "rewards are parts of the weighted mean of a group's updates; remove recipe.server.aggregator",
        "accounted": "groups and rewards depend on other clients' updates; use a recipe with one model",
    }

    @property
    def remembers(self) -> tuple[str, ...]:
        """The grouping's memory."""
        names: tuple[str, ...] = getattr(self.grouping, "remembers", ())
        return names

    @property
    def needs(self) -> Words:
        """Plain means of whole updates; validation rows if rewards are tested."""
        words = {"personal storage", "answers in their round", "weighted mean", "whole updates", "plain step"}
        return frozenset(
            words | {"fixed weighting"} | ({"validation rows"} if Acceptance(self.sigma).refuses else set())
        )

    def start(self, model: Model, host: Host, draws: Draws) -> tuple[Model, Own, tuple[Note, ...]]:
        """Run the initial phase: a share of the clients train, and their models are averaged [M2F, Alg. 2]."""
        if not self.initial:
            return model, EMPTY, ()
        chosen = draw(self.initial, len(host.names), draws.run_seed, "initial", 0)
        replies = host.clients.train(0, {client: Download(model) for client in chosen}, (SAMPLES,), draws.run_seed)
        cohort, _ = check(replies, (SAMPLES,), View(0, model, History(), host, draws))
        text = f"{len(cohort.ids)} clients trained the first model: {list(cohort.ids)}"
        notes = (Note("initial", "model", text),)
        if not cohort.ids:
            return model, EMPTY, notes
        return model + cohort.updates.combine(np.full(len(cohort.ids), 1 / len(cohort.ids))), EMPTY, notes

    def training_mode(self, index: int) -> Training:
        """Train the client's personal model."""
        return Training("keep" if self._is_over(index) else self.training)

    def group(self, cohort: Cohort, assignment: Assignment, view: View) -> Groups:
        """Group the clients as `grouping` does."""
        return self.grouping(cohort.updates, cohort.ids, view.history.pairs)

    def move(self, job: Job, assignment: Assignment) -> Moved:
        """Aggregate each group; the server has no model to change."""
        view = job.view
        if not job.candidates:
            return Moved(view.model)
        chosen, batch = job.candidates[0], Batch.of(job.cohort, job.candidates, view, view.own_of("server"))
        assert chosen.weights is not None  # clients came
        rows = job.recipe.server.aggregator(batch, job.groups.spread(chosen.weights.weights))
        return Moved(view.model, {}, chosen, rows)

    def send_rewards(self, job: Job, moved: Moved) -> SentRewards:
        """Send each client its part of its group's aggregate, unless it is empty, and collect the answers."""
        cohort, view, chosen = job.cohort, job.view, moved.chosen
        if chosen is None or chosen.weights is None or moved.aggregates is None or self._is_over(view.index):
            return SentRewards()
        rewards: dict[ClientId, SparseUpdate] = {}
        layers = [prod(shape) for shape in view.host.layers(len(view.model))]
        for places, aggregate in zip(job.groups.members, moved.aggregates, strict=True):
            earned = self.reward(aggregate, chosen.weights.weights[places], cohort.updates.keep(places), layers)
            rewards |= {cohort.ids[place]: one for place, one in zip(places, earned, strict=True) if len(one.values)}
        if not rewards:
            return SentRewards()
        return SentRewards(rewards, view.host.clients.send_rewards(view.index, rewards, Acceptance(self.sigma)))

    def test(self, result: RoundResult, host: Host, objectives: Sequence[Objective]) -> Tested:
        """Let every client test its personal model."""
        return test_personal(result.state.model, host, objectives)

    def _is_over(self, index: int) -> bool:
        return self.until is not None and index > self.until
