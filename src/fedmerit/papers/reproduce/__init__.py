"""Reproductions of the papers' tables and figures: a closed table of what can be run, at three scales."""

from __future__ import annotations

from collections.abc import Mapping

from fedmerit.errors import UnknownName
from fedmerit.papers.reproduce.dafl import DAFL
from fedmerit.papers.reproduce.fedval import FEDVAL
from fedmerit.papers.reproduce.m2f import M2F
from fedmerit.papers.reproduce.outside import OUTSIDE
from fedmerit.papers.reproduce.outside_fcfl import FCFL
from fedmerit.papers.reproduce.pmcfl import PMCFL
from fedmerit.papers.reproduce.reproduction import Reproduction

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction for reproduction in (*PMCFL, DAFL, *M2F, *FEDVAL, *OUTSIDE, FCFL)
}


def find_reproduction(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise UnknownName("reproduction", name, REPRODUCTIONS)
    return REPRODUCTIONS[name]
