"""Errata of the papers: a closed table of what does not hold there, each shown by a computation where one can be."""

from __future__ import annotations

from collections.abc import Mapping

from fedmerit.errata.counts import FEDVAL_NOTATION, PARAMETER_COUNTS
from fedmerit.errata.dafl import DAFL
from fedmerit.errata.entry import Erratum
from fedmerit.errata.finding1 import FINDING_1
from fedmerit.errata.labels import FINDING_2, FINDING_5
from fedmerit.errata.m2f import M2F
from fedmerit.errata.noise import FINDING_3, FINDING_4
from fedmerit.errata.pmcfl import PMCFL
from fedmerit.errata.pmcfl_tables import PMCFL_TABLES
from fedmerit.errors import UnknownName

_FINDINGS = (FINDING_1, FINDING_2, FINDING_3, FINDING_4, FINDING_5)
_ALL = (*_FINDINGS, *PMCFL_TABLES, *PMCFL, *DAFL, *M2F, FEDVAL_NOTATION, PARAMETER_COUNTS)
ERRATA: Mapping[str, Erratum] = {erratum.name: erratum for erratum in _ALL}


def find_erratum(name: str) -> Erratum:
    """The erratum called so."""
    if name not in ERRATA:
        raise UnknownName("erratum", name, ERRATA)
    return ERRATA[name]
