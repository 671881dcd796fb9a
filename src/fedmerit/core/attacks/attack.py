"""Protocols of attacks, what a coalition knows in a round, and which clients attack."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks.rows import TargetedAttack
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId, Model, Rows, Samples, Vector
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

Facts: TypeAlias = Mapping[str, float]


@runtime_checkable
class AnswerAttack(Protocol):
    """Attack that changes one client's answer: its update and its facts."""

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Return the update and the facts to send in place of the honest ones."""


def unknown(*asked: object) -> Any:
    """Stand for what a coalition cannot do."""
    raise ConfigError("task.attack: this kind cannot be simulated here; use `fedmerit run` with one shared model")


@dataclass(frozen=True)
class Scene:
    """What a coalition knows in a round. No server tells clients that much: the attacks are upper bounds.

    honest   updates of the round's honest clients
    members  updates that the round's members trained
    model    the model that clients received
    random   draws of this round and coalition
    peek     returns the next model if the members sent these updates: the server's rule with all that it remembers
    entries  places of a class's weights in the output layer
    pool     returns the training rows of all members, also of those that are not in the round
    train    trains the model on rows as a client does, and returns the update
    losses   returns the mean loss of each model on rows
    """

    honest: Updates
    members: Updates = field(default_factory=lambda: Updates(np.zeros((0, 0), np.float32)))
    model: Model = field(default_factory=lambda: np.zeros(0, np.float32))
    random: np.random.Generator = field(default_factory=lambda: generator(0, "scene"))
    peek: Callable[[Rows], Model] = unknown
    entries: Callable[[int], NDArray[np.intp]] = unknown
    pool: Callable[[], Samples] = unknown
    train: Callable[[Samples], Model] = unknown
    losses: Callable[[Sequence[Model], Samples], Vector] = unknown

    @cached_property
    def own(self) -> Rows:
        """Copy of the updates that the members trained, one row each."""
        return np.stack([self.members.row(place) for place in range(len(self.members))])

    @property
    def mean(self) -> Model:
        """Mean of the honest updates."""
        return self.honest.combine(np.full(len(self.honest), 1 / len(self.honest)))

    @property
    def deviation(self) -> Model:
        """Standard deviation of the honest updates per coordinate, of the population (divided by n)."""
        return self.honest.by_columns(lambda block: block.std(axis=0))

    @property
    def usual_norm(self) -> float:
        """Median norm of the honest updates."""
        return float(np.median(self.honest.norms))

    def noise(self, norm: float) -> Rows:
        """Gaussian noise of this norm, one row per member."""
        drawn = self.random.standard_normal((len(self.members), self.honest.length), dtype=np.float32)
        return np.asarray(drawn * (norm / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32))


@runtime_checkable
class CollusiveAttack(Protocol):
    """Attack by a coalition that replaces its members' updates."""

    def collude(self, scene: Scene) -> Rows:
        """Return a row for each member in the round, or one vector that all of them send."""


Attack: TypeAlias = AnswerAttack | CollusiveAttack | TargetedAttack


@dataclass(frozen=True, slots=True)
class Coalition:
    """Clients that attack together: this share of the federation, starting in this round.

    With `fixed`, they are also this share of the clients of every round.
    """

    attack: Attack
    share: float
    from_round: int = 1
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Attackers:
    """The coalitions, and the coalition of each attacker."""

    coalitions: tuple[Coalition, ...] = ()
    members: Mapping[ClientId, int] = field(default_factory=dict)

    def of(self, client: ClientId) -> Coalition | None:
        """Return the client's coalition; None for an honest client."""
        place = self.members.get(client)
        return None if place is None else self.coalitions[place]


NOBODY = Attackers()


def draw_attackers(
    coalitions: Sequence[Coalition], clients: int, seed: int, taken: Collection[ClientId] = ()
) -> Attackers:
    """Draw round(share * clients) members for each coalition; no client is in two, and none is in `taken`.

    >>> from fedmerit.core.attacks.answers import FreeRider, ScaledUpdate
    >>> coalitions = [Coalition(FreeRider(), share=0.25), Coalition(ScaledUpdate(), share=0.5)]
    >>> sorted(draw_attackers(coalitions, clients=4, seed=1).members.values())
    [0, 1, 1]
    """
    if not coalitions:
        return NOBODY
    order = [client for client in generator(seed, "attackers").permutation(clients).tolist() if client not in taken]
    members: dict[ClientId, int] = {}
    for place, coalition in enumerate(coalitions):
        number = round(coalition.share * clients)
        if not 0 < number <= len(order) - len(members):
            raise ConfigError(
                f"task.attack: a share of {coalition.share:g} of {clients} clients is {number} attackers; it must be "
                f"1 to {len(order) - len(members)}, the number of clients left; change `share`"
            )
        members |= dict.fromkeys(order[len(members) : len(members) + number], place)
    return Attackers(tuple(coalitions), dict(sorted(members.items())))
