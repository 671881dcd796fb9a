"""Memory: which earlier answers count in a round, next to the answers of that round [MIFA]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from annotated_types import Interval

from fedmerit.core.collect.collect import EVERYONE_FIRST, Chosen, Collect, Selection
from fedmerit.core.parts import PURE, Doc, Words, part
from fedmerit.core.state import View
from fedmerit.core.types import EMPTY, REMEMBERED, ClientId, Cohort, Own
from fedmerit.core.updates import Updates


class Memory(Protocol):
    """Earlier answers that count in a round.

    >>> sorted(Forget().gives)
    ['accounted', 'facts only']
    """

    def recall(self, cohort: Cohort, dropped: Mapping[ClientId, str], view: View) -> tuple[Cohort, Own]:
        """Return the cohort with the remembered clients, and the state after the round.

        cohort    the clients whose answer passed the check
        dropped   the clients of the round that were dropped
        """


@part("memory", "forget")
class Forget:
    """Use only the answers of the round."""

    gives: ClassVar[Words] = PURE

    def recall(self, cohort: Cohort, dropped: Mapping[ClientId, str], view: View) -> tuple[Cohort, Own]:
        """Return the cohort as it is."""
        return cohort, EMPTY


@part("memory", "last-answers")
class LastAnswers:
    """Add the last answer of every client that answered in the last `rounds` rounds and not in this one [MIFA].

    An answer is an update with its facts. A remembered one has the fact `remembered`, the rounds since it came, and
    counts in all sums, medians and weights of the round. It is not a participation, a meeting of two clients or
    evidence against its client, because those were counted in its round. A client that is dropped from a round is not
    recalled in it, and a round without any valid answer recalls no client.

    With half of the clients per round, 99 % of them answered in one of 7 rounds: hence 6 rounds after the answer's own.
    Round 1 asks every client, so that the memory starts complete. The state is one vector as long as the model per
    remembered client, in memory and in every checkpoint.

    >>> LastAnswers(rounds=3)
    LastAnswers(rounds=3)
    """

    rounds: Annotated[int, Interval(ge=1), Doc("the number of rounds for which an answer counts after its own")] = 6

    needs: ClassVar[Words] = frozenset({"shared model"}) | EVERYONE_FIRST
    gives: ClassVar[Words] = frozenset({"last answers"})
    takes: ClassVar[Words] = frozenset({"answers in their round"})
    why: ClassVar[Mapping[str, str]] = {
        "answers in their round": 'earlier answers count again; set recipe.memory = "forget"',
        "accounted": 'an answer counts in several rounds, and the account assumes one; set recipe.memory = "forget"',
    }

    def recall(self, cohort: Cohort, dropped: Mapping[ClientId, str], view: View) -> tuple[Cohort, Own]:
        """Add the remembered clients, in client order; the rows are copied, because the fleet reuses its memory."""
        fresh: dict[ClientId, Any] = {
            client: {
                "round": view.index,
                "update": np.array(cohort.updates.row(place)),
                "facts": {name: float(column[place]) for name, column in cohort.facts.items()},
            }
            for place, client in enumerate(cohort.ids)
        }
        earlier = {int(client): answer for client, answer in view.own_of("memory").items()}
        last = {one: answer for one, answer in earlier.items() if answer["round"] >= view.index - self.rounds} | fresh
        state = {str(client): last[client] for client in sorted(last)}
        ids = tuple(client for client in sorted(last) if client not in dropped)
        if not fresh or len(ids) == len(fresh):
            return cohort, state
        ages = np.array([view.index - last[client]["round"] for client in ids], dtype=np.float64)
        facts = {name: np.array([last[client]["facts"].get(name, 0.0) for client in ids]) for name in cohort.facts}
        facts[REMEMBERED] = ages
        return Cohort(view.index, ids, Updates(np.stack([last[client]["update"] for client in ids])), facts), state


@dataclass(frozen=True, slots=True)
class EveryoneFirst:
    """A selection that asks every client in round 1, and then those that `of` draws."""

    of: Selection

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients in id order, with their epochs."""
        chosen = self.of(index, clients, seed)
        return {client: chosen.get(client) for client in range(clients)} if index == 1 else chosen


def ask_everyone_first(collect: Collect, memory: Memory) -> Collect:
    """Return the collector that a memory wants; a user's own collector selects as it likes."""
    if not isinstance(memory, LastAnswers) or not hasattr(collect, "selection"):
        return collect
    changed: Collect = replace(collect, selection=EveryoneFirst(collect.selection))  # type: ignore[type-var]
    return changed
