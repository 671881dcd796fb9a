"""Reproductions of the papers' tables and figures: a closed table of what can be run, at three scales."""

from __future__ import annotations

from collections.abc import Mapping

from fedmerit.errors import UnknownName
from reproductions.reproduce.dafl import DAFL
from reproductions.reproduce.fedval import FEDVAL
from reproductions.reproduce.m2f import M2F
from reproductions.reproduce.outside import OUTSIDE
from reproductions.reproduce.outside_fcfl import FCFL
from reproductions.reproduce.pmcfl import PMCFL
from reproductions.reproduce.reproduction import Reproduction

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction for reproduction in (*PMCFL, DAFL, *M2F, *FEDVAL, *OUTSIDE, FCFL)
}


def find_reproduction(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise UnknownName("reproduction", name, REPRODUCTIONS)
    return REPRODUCTIONS[name]
