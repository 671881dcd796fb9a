"""Attacks: what malicious clients do to their rows, their updates or their claims, each with its source.

| who needs what      | attacks                                                | how                              |
| ------------------- | ------------------------------------------------------ | -------------------------------- |
| its own rows        | `LabelFlip`, `Backdoor`                                | `tasks/attackers.py`, at loading |
| its own answer      | `SignFlip`, `Scale`, `Gauss`, `FreeRider`, `Liar`      | the client itself, as it answers |
| the others' updates | `LittleIsEnough` (ALIE), `InnerProduct` (IPM), `Mimic` | `fleet/client.py`, in any fleet  |

A recipe never learns who attacks: only whoever has the configuration and the seed can say (`draw_attackers`).
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
    """Changes what one client sends: its update and its facts."""

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """What is sent in place of an honest update and honest facts."""


@runtime_checkable
class CollusiveAttack(Protocol):
    """Makes one vector of the honest updates of a round, which all members of the coalition send."""

    def collude(self, honest: Updates) -> Model:
        """The vector that takes the place of each member's update."""


@dataclass(frozen=True, slots=True)
class ScaledUpdate:
    """u -> strength * u: model replacement in the words of Bagdasaryan et al. 2020.

    >>> ScaledUpdate(10).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "scale"))[0].tolist()
    [10.0, -20.0]
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """The update, longer."""
        return update * np.float32(self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class SignFlip:
    """u -> -strength * u: gradient ascent instead of descent [Li et al. 2019, RSA].

    >>> SignFlip(1).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "flip"))[0].tolist()
    [-1.0, 2.0]
    """

    strength: float = 1.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """The update, turned round."""
        return update * np.float32(-self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class Gauss:
    """u -> normal noise, in expectation `strength` times as long as u: entries N(0, (strength |u|)^2 / d).

    After the Gaussian attack of Blanchard et al. 2017, whose deviation (200) is tied here to the update's own length.
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Noise."""
        deviation = self.strength * float(np.linalg.norm(update)) / np.sqrt(len(update))
        return random.standard_normal(len(update), dtype=np.float32) * np.float32(deviation), dict(facts)


@dataclass(frozen=True, slots=True)
class FreeRider:
    """u -> 0: the model that came is sent back, with honest claims beside it [Lin et al. 2019; Fraboni et al. 2021]."""

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Nothing learned."""
        return np.zeros_like(update), dict(facts)


@dataclass(frozen=True, slots=True)
class Liar:
    """An honest update with false claims: each fact named here is multiplied by its factor.

    The claim stays within what everybody knows, since one outside would only be left out: the fact's own range, and
    for `labels` the classes of the task. A fact that is 0 is claimed as the factor itself. Facts that the recipe does
    not ask for are not sent, and so not lied about.

    >>> liar = Liar({"samples": 100, "balance": 3, "labels": 50})
    >>> liar.answer(np.zeros(1, np.float32), {"samples": 30, "balance": 0, "labels": 2}, 10, generator(0, "lie"))[1]
    {'samples': 3000, 'balance': 1, 'labels': 10}
    """

    factors: Facts

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """The same update, other facts."""
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
    """mean - strength * deviation of the honest updates, coordinate by coordinate [ALIE, Baruch et al. 2019].

    The deviation is that of the population (divided by n). Baruch et al. derive the largest strength z that still
    hides among a majority from the numbers of clients and attackers; for 2 of 10 that is 0, no attack at all, so z
    is a setting here.

    >>> honest = Updates(np.array([[1, 4], [3, 4]], np.float32))
    >>> LittleIsEnough(1.5).collude(honest).tolist()
    [0.5, 4.0]
    """

    strength: float = 1.5

    def collude(self, honest: Updates) -> Model:
        """Near enough to the others to pass, far enough to harm."""
        z = np.float32(self.strength)
        return honest.by_columns(lambda block: block.mean(axis=0) - z * block.std(axis=0))


@dataclass(frozen=True, slots=True)
class InnerProduct:
    """-strength * mean of the honest updates [inner product manipulation, IPM, Xie et al. 2019].

    >>> InnerProduct(0.5).collude(Updates(np.array([[1, 4], [3, 4]], np.float32))).tolist()
    [-1.0, -2.0]
    """

    strength: float = 0.5

    def collude(self, honest: Updates) -> Model:
        """Against the others' direction."""
        return honest.combine(np.full(len(honest), -self.strength / len(honest)))


@dataclass(frozen=True, slots=True)
class Mimic:
    """The update of one honest client, which so counts many times over [Karimireddy et al. 2022].

    The client is the one farthest from the mean along z, the direction in which the honest updates vary most:
    argmax_i |<z, u_i - mean>|. Karimireddy et al. keep z and the client from round to round; here both are the
    round's own, since other clients come to each round and an attack without memory is resumed to the bit.

    >>> Mimic().collude(Updates(np.array([[1, 0], [0, 1], [9, 0]], np.float32))).tolist()
    [9.0, 0.0]
    """

    def collude(self, honest: Updates) -> Model:
        """A copy of the client that stands out most."""
        products = honest.cosines() * np.outer(honest.norms, honest.norms)
        centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
        along = np.linalg.eigh(centred)[1][:, -1]  # <z, u_i - mean> up to a factor that all clients share
        return honest.row(int(np.abs(along).argmax())).copy()


@dataclass(frozen=True, slots=True)
class LabelFlip:
    """y -> classes - 1 - y in a share of the attacker's rows [Fang et al. 2020; Tolpegin et al. 2020]."""

    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class Backdoor:
    """A share of the attacker's rows get a trigger and the label `target` [BadNets, Gu et al. 2017].

    The update is not made larger: the quiet backdoor, which leaves accuracy on clean rows as it is.
    """

    strength: float = 0.5
    target: int = 0


RowAttack: TypeAlias = LabelFlip | Backdoor
Attack: TypeAlias = AnswerAttack | CollusiveAttack | RowAttack


@dataclass(frozen=True, slots=True)
class Coalition:
    """Clients that attack together: this share of the federation, from this round on."""

    attack: Attack
    share: float
    from_round: int = 1


@dataclass(frozen=True, slots=True)
class Attackers:
    """Who attacks: the coalitions, and to which of them each attacker belongs."""

    coalitions: tuple[Coalition, ...] = ()
    members: Mapping[ClientId, int] = field(default_factory=dict)

    def of(self, client: ClientId) -> Coalition | None:
        """The client's coalition; None for an honest one."""
        place = self.members.get(client)
        return None if place is None else self.coalitions[place]


NOBODY = Attackers()


def draw_attackers(
    coalitions: Sequence[Coalition], clients: int, seed: int, taken: Collection[ClientId] = ()
) -> Attackers:
    """round(share * clients) of each coalition, drawn together so that nobody is in two; never one of `taken`.

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
                f"task.attack: a share of {coalition.share:g} of {clients} clients is {number} attackers, and there "
                f"are {len(order) - len(members)} clients left to be one; at least 1 is needed"
            )
        members |= dict.fromkeys(order[len(members) : len(members) + number], place)
    return Attackers(tuple(coalitions), dict(sorted(members.items())))
