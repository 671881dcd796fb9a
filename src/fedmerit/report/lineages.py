"""Lineages of groups: which group of a round goes on as which, so that a picture of them can keep its colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from fedmerit.core.types import ClientId


def lineages(rounds: Sequence[Mapping[ClientId, int]]) -> list[list[int]]:
    """For each round a lineage per group, by the group's number; rounds are given as the group of each client.

    A group goes on as the lineage that most of its clients were in when they last took part, the largest such share of
    all groups first. A group that goes on as none gets the first number that no group of its round has.
    """
    last: dict[ClientId, int] = {}
    told = []
    for groups in rounds:
        found = _follow(groups, last)
        last |= {client: found[group] for client, group in groups.items()}
        told.append([found[group] for group in sorted(found)])
    return told


def _follow(groups: Mapping[ClientId, int], last: Mapping[ClientId, int]) -> dict[int, int]:
    votes = Counter((group, last[client]) for client, group in groups.items() if client in last)
    found: dict[int, int] = {}
    for (group, lineage), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if group not in found and lineage not in found.values():
            found[group] = lineage
    for group in sorted(set(groups.values()) - found.keys()):
        found[group] = next(number for number in count() if number not in found.values())
    return found
