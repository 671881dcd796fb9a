"""Attacks: what malicious clients do to their rows, their updates or their claims, each with its source.

| the attack needs    | attacks                                                | where it runs                    |
| ------------------- | ------------------------------------------------------ | -------------------------------- |
| its own rows        | `LabelFlip`, `Backdoor`                                | `tasks/attackers.py`, at loading |
| its own answer      | `SignFlip`, `Scale`, `Gauss`, `FreeRider`, `Liar`      | the client, as it answers        |
| honest updates      | `LittleIsEnough` (ALIE), `InnerProduct` (IPM), `Mimic` | `fleet/client.py`, in any fleet  |

A recipe never learns which clients attack: that needs the configuration and the seed (`draw_attackers`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedmerit.core.facts import find_fact
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId, Model
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


@runtime_checkable
class CollusiveAttack(Protocol):
    """Attack by a coalition: one vector, computed from the round's honest updates, that every member sends."""

    def collude(self, honest: Updates) -> Model:
        """Return the vector that replaces each member's update."""


@dataclass(frozen=True, slots=True)
class ScaledUpdate:
    """Scaled update u -> strength * u, the model replacement of Bagdasaryan et al. 2020.

    >>> ScaledUpdate(10).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "scale"))[0].tolist()
    [10.0, -20.0]
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Multiply the update."""
        return update * np.float32(self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Sign flip u -> -strength * u: gradient ascent instead of descent [Li et al. 2019, RSA].

    >>> SignFlip(1).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "flip"))[0].tolist()
    [-1.0, 2.0]
    """

    strength: float = 1.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Negate the update."""
        return update * np.float32(-self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class Gauss:
    """Gaussian noise in place of u with expected norm `strength` |u|: entries N(0, (strength |u|)^2 / d).

    After the Gaussian attack of Blanchard et al. 2017, whose deviation (200) here scales with the norm of the update.
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Replace the update with noise."""
        deviation = self.strength * float(np.linalg.norm(update)) / np.sqrt(len(update))
        return random.standard_normal(len(update), dtype=np.float32) * np.float32(deviation), dict(facts)


@dataclass(frozen=True, slots=True)
class FreeRider:
    """Zero update with honest claims: the client returns the model it got [Lin et al. 2019; Fraboni et al. 2021]."""

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Replace the update with zeros."""
        return np.zeros_like(update), dict(facts)


@dataclass(frozen=True, slots=True)
class Liar:
    """Honest update with false claims: each fact named here is multiplied by its factor.

    The claim stays within the public limits, because one outside would only be dropped: the range of the fact, and for
    `labels` the classes of the task. A fact of 0 is claimed as the factor itself. Facts that the recipe does not use
    are not sent, so the client does not lie about them.

    >>> liar = Liar({"samples": 100, "balance": 3, "labels": 50})
    >>> liar.answer(np.zeros(1, np.float32), {"samples": 30, "balance": 0, "labels": 2}, 10, generator(0, "lie"))[1]
    {'samples': 3000, 'balance': 1, 'labels': 10}
    """

    factors: Facts

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Keep the update, change the facts."""
        return update, {name: self._claim(name, value, classes) for name, value in facts.items()}

    def _claim(self, name: str, value: float, classes: int) -> float:
        factor = self.factors.get(name)
        if factor is None:
            return value
        fact = find_fact(name)
        limits = [limit for limit in (fact.high, classes if name == "labels" else None) if limit is not None]
        return max(min([value * factor or factor, *limits]), fact.low)


@dataclass(frozen=True, slots=True)
class LittleIsEnough:
    """A Little Is Enough: mean - strength * deviation of the honest updates per coordinate [ALIE, Baruch et al. 2019].

    The deviation is that of the population (divided by n). Baruch et al. derive the largest strength z that still
    hides among a majority from the numbers of clients and attackers; for 2 of 10 that is 0, which is no attack, so z
    is a setting here.

    >>> honest = Updates(np.array([[1, 4], [3, 4]], np.float32))
    >>> LittleIsEnough(1.5).collude(honest).tolist()
    [0.5, 4.0]
    """

    strength: float = 1.5

    def collude(self, honest: Updates) -> Model:
        """Shift the mean by less than the honest updates vary."""
        z = np.float32(self.strength)
        return honest.by_columns(lambda block: block.mean(axis=0) - z * block.std(axis=0))


@dataclass(frozen=True, slots=True)
class InnerProduct:
    """Inner product manipulation: -strength * mean of the honest updates [IPM].

    >>> InnerProduct(0.5).collude(Updates(np.array([[1, 4], [3, 4]], np.float32))).tolist()
    [-1.0, -2.0]
    """

    strength: float = 0.5

    def collude(self, honest: Updates) -> Model:
        """Oppose the mean of the honest updates."""
        return honest.combine(np.full(len(honest), -self.strength / len(honest)))


@dataclass(frozen=True, slots=True)
class Mimic:
    """Copy the update of one honest client, which then counts many times [Karimireddy et al. 2022].

    The client is the one farthest from the mean along z, the direction in which the honest updates vary most:
    argmax_i |<z, u_i - mean>|. Karimireddy et al. keep z and the client from round to round; here both are computed
    per round, because the clients change and an attack without state resumes to the bit.

    >>> Mimic().collude(Updates(np.array([[1, 0], [0, 1], [9, 0]], np.float32))).tolist()
    [9.0, 0.0]
    """

    def collude(self, honest: Updates) -> Model:
        """Copy the update that deviates most."""
        products = honest.cosines() * np.outer(honest.norms, honest.norms)
        # Double centring gives the Gram matrix of u_i - mean, so z is never built: n^2 numbers instead of d.
        centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
        along = np.linalg.eigh(centred)[1][:, -1]  # <z, u_i - mean> up to a factor that all clients share
        return honest.row(int(np.abs(along).argmax())).copy()


@dataclass(frozen=True, slots=True)
class LabelFlip:
    """Label flip y -> classes - 1 - y in a share of the attacker's rows [Fang et al. 2020; Tolpegin et al. 2020]."""

    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class Backdoor:
    """Backdoor: a share of the attacker's rows get a trigger and the label `target` [BadNets, Gu et al. 2017].

    The update is not scaled: a stealthy backdoor, which leaves accuracy on clean rows unchanged.
    """

    strength: float = 0.5
    target: int = 0


RowAttack: TypeAlias = LabelFlip | Backdoor
Attack: TypeAlias = AnswerAttack | CollusiveAttack | RowAttack


@dataclass(frozen=True, slots=True)
class Coalition:
    """Clients that attack together: this share of the federation, starting in this round."""

    attack: Attack
    share: float
    from_round: int = 1


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
