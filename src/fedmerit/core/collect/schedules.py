"""Schedules: clients that take part in a share of the rounds."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.collect.collect import EVERYONE_FIRST, NOT_EVERYONE, Chosen
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError


@part("selection", "schedule")
class Schedule:
    """Let each client take part in exactly rounds x rate rounds, drawn once: lazy, normal, diligent [M2F, sec. 5.2].

    `rates` are pairs (rate, number of clients), assigned in client order and repeated until every client has one:
    ((0.2, 6), (0.5, 6), (1.0, 8)) is the paper's mix. With `epochs` (least, most) each client draws a number.

    >>> schedule = Schedule(rounds=10, rates=((0.2, 1), (1.0, 1)))
    >>> sum(0 in schedule(index, clients=2, seed=1) for index in range(1, 11))
    2
    """

    rounds: Annotated[int, Interval(ge=1), Doc("rounds of the run")]
    rates: Annotated[tuple[tuple[float, int], ...], Doc("pairs (rate, clients), assigned in client order")] = (
        (1.0, 1),
    )
    epochs: Annotated[tuple[int, int] | None, Doc("(least, most) epochs of a client, drawn once; None: the task's")] = (
        None
    )

    takes: ClassVar[Words] = EVERYONE_FIRST
    why: ClassVar[Mapping[str, str]] = NOT_EVERYONE

    @property
    def gives(self) -> Words:
        """The fact `epochs` if clients have different numbers of them."""
        return frozenset() if self.epochs is None else frozenset({"fact epochs"})

    def __post_init__(self) -> None:
        if not self.rates or not all(0 < rate <= 1 and count >= 1 for rate, count in self.rates):
            raise ConfigError(f"rates needs pairs of a rate in 0..1 and 1 or more clients (got {list(self.rates)})")
        if self.epochs is not None and not 1 <= self.epochs[0] <= self.epochs[1]:
            raise ConfigError(f"epochs needs [least, most] with 1 <= least <= most (got {list(self.epochs)})")

    def rate(self, client: ClientId) -> float:
        """Return the client's share of the rounds."""
        pattern = [rate for rate, count in self.rates for _ in range(count)]
        return pattern[client % len(pattern)]

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients of this round; there may be none."""
        turns, epochs = _plan(self, clients, seed)
        return {int(client): epochs.get(int(client)) for client in np.flatnonzero(turns[index - 1])}


@lru_cache(maxsize=2)
def _plan(schedule: Schedule, clients: int, seed: int) -> tuple[NDArray[np.bool_], Mapping[ClientId, int]]:
    """Participation (rounds, clients), and every client's epochs if they differ."""
    turns = np.zeros((schedule.rounds, clients), dtype=np.bool_)
    for client in range(clients):
        number = round(schedule.rounds * schedule.rate(client))
        turns[generator(seed, "schedule", client).permutation(schedule.rounds)[:number], client] = True
    if schedule.epochs is None:
        return turns, {}
    least, most = schedule.epochs
    epochs = [int(generator(seed, "epochs", client).integers(least, most + 1)) for client in range(clients)]
    return turns, dict(enumerate(epochs))
