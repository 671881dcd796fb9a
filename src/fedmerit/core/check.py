"""The check at the door: nothing that came from a client is trusted."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.facts import ATTRIBUTE, SECONDS, is_servers
from fedmerit.core.types import ClientId, Cohort, Replies

UNIT_FACTS = frozenset({"balance", "coverage", "sharp"})
"""Facts that are shares and so lie in 0..1; attributes do, too."""

Known: TypeAlias = Mapping[ClientId, float]
LARGEST = sys.float_info.max


def check(
    index: int, replies: Replies, needs: Sequence[str], length: int, known: Mapping[str, Known] = MappingProxyType({})
) -> tuple[Cohort, dict[ClientId, str]]:
    """The clients that can be scored, and for every other one the reason why it is left out of the round.

    `known` are facts of the server's own, by name and client; they need no check.
    """
    left_out = dict(replies.failed)
    needs = [name for name in needs if not is_servers(name)]
    for client, facts, norm in zip(replies.ids, replies.facts, replies.updates.norms, strict=True):
        reason = _wrong_update(norm, replies.updates.length, length) or _wrong_facts(facts, needs)
        if reason:
            left_out[client] = reason
    places = np.array([place for place, client in enumerate(replies.ids) if client not in left_out], dtype=np.intp)
    kept = [replies.facts[place] for place in places]
    columns = {name: np.array([facts[name] for facts in kept], dtype=np.float64) for name in needs}
    ids = tuple(replies.ids[place] for place in places)
    columns |= {name: np.array([values[client] for client in ids], np.float64) for name, values in known.items()}
    return Cohort(index, ids, replies.updates.keep(places), columns), left_out


def _wrong_update(norm: float, got: int, length: int) -> str | None:
    if got != length:
        return f"update has {got} values, the model {length}"
    return None if math.isfinite(norm) else "update holds NaN, infinity or values too large to square"


def _wrong_facts(facts: Any, needs: Sequence[str]) -> str | None:
    if not isinstance(facts, Mapping):
        return f"facts are missing: {facts!r:.80}"
    for name in needs:
        value = facts.get(name)
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return f"fact {name} is missing or no number: {value!r:.80}"
        if not 0 <= value <= LARGEST:
            return f"fact {name} must be finite and >= 0: {value!r:.80}"
        if (name in UNIT_FACTS or name.startswith(ATTRIBUTE)) and value > 1:
            return f"fact {name} is a share in 0..1: {value}"
        if name == SECONDS and not value:
            return "fact seconds must be above 0: nobody trains in no time"
    return "no training samples" if facts["samples"] < 1 else None
