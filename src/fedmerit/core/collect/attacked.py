"""Simulated coalitions: after the clients trained, each coalition replaces the updates of its members.

The fleet trains attackers like other clients; answers that need nothing of other clients are made there. A coalition
sees the round's updates, and may try answers against the server's rule: `aggregate_round` on a copy of its members'
rows, from the state before the round. Nothing of a try is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks.attack import NOBODY, Attackers, CollusiveAttack, Scene, unknown
from fedmerit.core.collect.collect import Chosen, Collect
from fedmerit.core.host import Fleet, Predict, ServerSetup
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import find_objective
from fedmerit.core.recipe import Recipe
from fedmerit.core.round import aggregate_round
from fedmerit.core.seeds import derive, generator
from fedmerit.core.state import Clock, State, View
from fedmerit.core.types import ClientId, Download, Model, Replies, Rows, Samples, Vector
from fedmerit.errors import ConfigError


@runtime_checkable
class FleetWithRows(Protocol):
    """A fleet that has the clients' rows on this machine, and trains on any rows as a client does."""

    def rows_of(self, clients: Sequence[ClientId]) -> Samples:
        """Return the training rows of these clients."""

    def train_on(self, samples: Samples, download: Download, seed: int) -> Model:
        """Return the update of a client with these rows."""


def with_attackers(collect: Collect, fleet: Fleet, recipe: Recipe) -> Collect:
    """Return the collector of a run on this fleet: with its coalitions, if there are any."""
    attackers: Attackers = getattr(fleet, "attackers", NOBODY)
    acts = [one.fixed or isinstance(one.attack, CollusiveAttack) for one in attackers.coalitions]
    return Attacked(collect, fleet, attackers, recipe) if any(acts) else collect


def output_entries(server: ServerSetup, label: int) -> NDArray[np.intp]:
    """Places of a class's weights in the model: its row of the last matrix, and its entry of the bias that follows.

    >>> from fedmerit import load_task
    >>> server = load_task("digits", clients=4, model="digits-linear").server()  # 10 x 64 weights, 10 biases
    >>> output_entries(server, 3)[[0, 63, 64]].tolist()
    [192, 255, 643]
    """
    shapes, classes = server.layers(), int(server.limits.get("labels", 0))
    starts = np.cumsum([0, *map(prod, shapes)])
    tensors = [start + np.arange(prod(shape)).reshape(shape) for start, shape in zip(starts, shapes, strict=False)]
    last = max((place for place, shape in enumerate(shapes) if len(shape) > 1), default=0)
    if len(shapes[last]) < 2 or not label < classes == shapes[last][0]:
        raise ConfigError(
            f"task.attack: kind eraser needs a model whose last matrix has a row for each class (got layers "
            f"{', '.join(map(str, shapes))}, {classes} classes); use another model or kind"
        )
    return np.concatenate([tensor[label].ravel() for tensor in tensors[last : last + 2] if len(tensor) == classes])


@dataclass(frozen=True)
class Attacked:
    """Collector of a run with coalitions; the inner collector collects what the clients trained."""

    collect_honest: Collect
    fleet: Fleet
    attackers: Attackers
    recipe: Recipe

    def select(self, view: View) -> Chosen:
        """Return the clients that the inner collector draws; with `fixed` coalitions, redrawn by their shares."""
        chosen = self.collect_honest.select(view)
        number, coalitions, members = len(chosen), self.attackers.coalitions, self.attackers.members
        if not any(coalition.fixed for coalition in coalitions):
            return chosen
        order = view.draws.generator("fixed attackers").permutation(len(view.host.names)).tolist()
        drawn = [
            client
            for place, coalition in enumerate(coalitions)
            for client in [one for one in order if members.get(one) == place][: round(coalition.share * number)]
        ]
        drawn += [client for client in order if client not in members][: number - len(drawn)]
        return {client: chosen.get(client) for client in sorted(drawn)}

    def collect(self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View) -> Replies:
        """Let each coalition replace its members' updates in place; without an honest update nothing changes.

        Each coalition computes its answers before any is written. Personal models stay as trained.
        """
        replies = self.collect_honest.collect(downloads, facts, view)
        numbers = np.array([self.attackers.members.get(client, -1) for client in replies.ids], np.intp)  # -1: honest
        honest, answers = np.flatnonzero(numbers < 0), list[tuple[NDArray[np.intp], Rows]]()
        for number, coalition in enumerate(self.attackers.coalitions):
            places, attack = np.flatnonzero(numbers == number), coalition.attack
            acts = len(honest) and len(places) and view.index >= coalition.from_round
            if acts and isinstance(attack, CollusiveAttack):
                answers.append((places, attack.collude(self._scene(number, replies, places, honest, downloads, view))))
        for places, rows in answers:
            write_rows(replies, places, rows)
        return replace(replies, updates=replies.updates.renewed()) if answers else replies

    def _scene(
        self,
        number: int,
        replies: Replies,
        places: NDArray[np.intp],
        honest: NDArray[np.intp],
        downloads: Mapping[ClientId, Download],
        view: View,
    ) -> Scene:
        """Return what the coalition knows."""
        fleet, server, seed = self.fleet, self.fleet.server, view.draws.run_seed
        members = [client for client, of in self.attackers.members.items() if of == number]
        pooled = derive(seed, "pooled", view.index, number)
        download = downloads[replies.ids[places[0]]]

        def peek(rows: Rows) -> Model:
            own, before = scene.own, State(view.model, view.history, view.own)
            one_model = Assignment((view.model,), dict.fromkeys(downloads, 0))
            write_rows(replies, places, rows)
            try:
                tried = replace(replies, updates=replies.updates.renewed())
                return aggregate_round(before, self.recipe, tried, view.host, one_model, seed, Clock()).state.model
            finally:
                write_rows(replies, places, own)

        def losses(models: Sequence[Model], samples: Samples) -> Vector:
            predict = cast(Predict, replace(server, rows=samples, faster=None).predict_many)  # it has rows
            return find_objective("log_loss")(predict(models))

        scene = Scene(
            replies.updates.keep(honest),
            replies.updates.keep(places),
            view.model,
            generator(seed, "collude", view.index, number),
            peek,
            lambda label: output_entries(server, label),
            partial(fleet.rows_of, members) if isinstance(fleet, FleetWithRows) else unknown,
            partial(fleet.train_on, download=download, seed=pooled) if isinstance(fleet, FleetWithRows) else unknown,
            losses,
        )
        return scene


def write_rows(replies: Replies, places: NDArray[np.intp], rows: Rows) -> None:
    """Write updates, or one for all, to the rows of clients; in memory or in a mapped file."""
    for place, row in zip(places, np.broadcast_to(rows, (len(places), replies.updates.length)), strict=True):
        replies.updates.row(place)[:] = row
