"""Errata of the papers: a closed table of what does not hold there, each shown by a computation where one can be."""

from __future__ import annotations

from collections.abc import Mapping

from fedmerit.errors import UnknownName
from reproductions.errata.dafl import DAFL
from reproductions.errata.erratum import Erratum
from reproductions.errata.fedval import FEDVAL_NOTATION
from reproductions.errata.findings import FINDING_2, FINDING_3, FINDING_4, FINDING_5
from reproductions.errata.idle_priority import FINDING_1
from reproductions.errata.m2f import M2F
from reproductions.errata.pmcfl import PARAMETER_COUNTS, PMCFL
from reproductions.errata.pmcfl_tables import PMCFL_TABLES

_FINDINGS = (FINDING_2, FINDING_1, FINDING_3, FINDING_4, FINDING_5)  # the strongest first
_ALL = (*_FINDINGS, *PMCFL_TABLES, *PMCFL, *DAFL, *M2F, FEDVAL_NOTATION, PARAMETER_COUNTS)
ERRATA: Mapping[str, Erratum] = {erratum.name: erratum for erratum in _ALL}


def find_erratum(name: str) -> Erratum:
    """The erratum of that name."""
    if name not in ERRATA:
        raise UnknownName("erratum", name, ERRATA)
    return ERRATA[name]
