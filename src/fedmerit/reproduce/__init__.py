"""Reproductions of the papers' tables and figures: a closed table of what can be run, at three scales."""

from __future__ import annotations

from collections.abc import Mapping

from fedmerit.errors import UnknownName
from fedmerit.reproduce.dafl import DAFL
from fedmerit.reproduce.entry import Reproduction
from fedmerit.reproduce.fedval import FEDVAL
from fedmerit.reproduce.m2f import M2F
from fedmerit.reproduce.pmcfl import PMCFL

REPRODUCTIONS: Mapping[str, Reproduction] = {one.name: one for one in (*PMCFL, DAFL, *M2F, *FEDVAL)}


def find_reproduction(name: str) -> Reproduction:
    """The reproduction called so."""
    if name not in REPRODUCTIONS:
        raise UnknownName("reproduction", name, REPRODUCTIONS)
    return REPRODUCTIONS[name]
