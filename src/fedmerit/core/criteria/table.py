"""The table of criteria that configurations can name, and the families that `find_criterion` makes.

`attribute:NAME`, `fact:NAME`, `validated:OBJECTIVE`, `contribution:METHOD` and `reputation:CRITERION` are families.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmerit.core.criteria.agreement import Agreement
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.client_fact import parse_client_fact
from fedmerit.core.criteria.contribution import find_contribution
from fedmerit.core.criteria.criterion import Criterion, criterion, reported
from fedmerit.core.criteria.harmless import Harmless
from fedmerit.core.criteria.loss import Agnostic, LossPower
from fedmerit.core.criteria.nearness import MW
from fedmerit.core.criteria.reputation import REPUTATION, Reputation
from fedmerit.core.criteria.robust import NearestDistance, NormInlier
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.turned import Turned
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.facts import (
    ATTRIBUTE,
    CLIENT_FACT,
    CLOCK,
    CONTRIBUTION,
    EPOCHS,
    LARGEST,
    SAMPLES,
    SECONDS,
    VALIDATED,
)
from fedmerit.core.objectives import find_objective
from fedmerit.core.parts import FACTS_ONLY, PURE, Words
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Family, Vector
from fedmerit.core.weights.weigh import EQUAL as EQUAL_NAME
from fedmerit.errors import ConfigError, UnknownName, UserError

SHORTEST = 1e-9
"""Seconds; a clock may stand still between two looks at it."""


@dataclass(frozen=True, slots=True)
class Computation:
    """xi_i = slowest time of the group / own time, so 1 for the slowest [M2F, eq. 10].

    `time` is the fact to go by: the server's `clock` around the exchange, the `seconds` that clients report, or
    `epochs` given: more epochs in the same time, 1 / epochs for each.
    """

    time: str = CLOCK
    name: str = "Computation"
    family: Family = Family.TRUST
    degree: bool = False
    about: str = "speed: slowest time of the group / own time, by the server's clock"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The fact that it reads."""
        return (self.time,)

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Quicker clients get more."""
        fact = cohort.facts[self.time]
        taken = 1.0 / fact if self.time == EPOCHS else np.maximum(fact, SHORTEST)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(taken.max() / taken, LARGEST), np.float64)


COMPUTATION = Computation()
REPORTED_COMPUTATION = Computation(
    SECONDS, "ReportedComputation", about="reported speed: slowest time of the group / own time, as clients report it"
)
SIMULATED_COMPUTATION = Computation(
    EPOCHS, "SimulatedComputation", about="simulated speed: own epochs / fewest epochs of the group, see [run.schedule]"
)


DS = reported("DS", Family.DATA, SAMPLES, "dataset size: number of training rows")
LD = reported("LD", Family.DATA, "labels", "label diversity: number of distinct labels")
LC = reported("LC", Family.DATA, "coverage", "label coverage: distinct labels / classes of the task", degree=True)
CB = reported("CB", Family.DATA, "balance", "class balance: rarest class / commonest class", degree=True)
IS = reported("IS", Family.DATA, "sharp", "image sharpness: share of images not marked Blurry", degree=True)


@criterion(EQUAL_NAME, Family.TRUST, "equal weights: 1 for every client", degree=True, gives=PURE)
def EQUAL(cohort: Cohort, history: History) -> Vector:  # noqa: N802
    """1 for every client: the published robust aggregators count clients, not weight."""
    return np.ones(len(cohort.ids))


@criterion(
    "Participation",
    Family.TRUST,
    "participation: rounds taken part in / rounds so far; counted by the server",
    degree=True,
    gives=PURE,
)
def PARTICIPATION(cohort: Cohort, history: History) -> Vector:  # noqa: N802
    """phi_i = rounds that the client took part in so far, this one included / rounds so far [M2F, eq. 9]."""
    counts = np.array([history.participations.get(client, 0) for client in cohort.ids], dtype=np.float64)
    return np.asarray((counts + cohort.answered) / cohort.index)


@criterion(
    "DataRatio",
    Family.DATA,
    "data share: the client's part of the group's training rows",
    facts=[SAMPLES],
    degree=True,
    gives=FACTS_ONLY,
)
def DATA_RATIO(cohort: Cohort, history: History) -> Vector:  # noqa: N802
    """delta_i = |D_i| / sum of |D_j| over the group [M2F, eq. 11]."""
    samples = cohort.facts[SAMPLES]
    return np.asarray(samples / samples.sum())


@dataclass(frozen=True, slots=True)
class Attribute:
    """Any share or boolean that clients report: gender, job, region; the papers' fourth family.

    >>> Attribute("Young").name
    'attribute:Young'
    """

    of: str

    family: ClassVar[Family] = Family.TARGET
    degree: ClassVar[bool] = True
    gives: ClassVar[Words] = PURE

    @property
    def name(self) -> str:
        """`attribute:region` for the attribute `region`."""
        return f"{ATTRIBUTE}{self.of}"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The fact of the same name."""
        return (self.name,)

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        return f"share of {self.of}: of the client's rows, those with this attribute"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """The reported share."""
        return cohort.facts[self.name]


_ALL: tuple[Criterion, ...] = (
    *(DS, LD, LC, MW, CB, IS, EQUAL),
    *(PARTICIPATION, COMPUTATION, REPORTED_COMPUTATION, SIMULATED_COMPUTATION, DATA_RATIO),
    *(LossPower(), Agnostic()),
    *(Alignment(), NormInlier(), NearestDistance(), SimilarityFilter(), Turned(), Harmless(), Agreement()),
)
CRITERIA: Mapping[str, Criterion] = {one.name: one for one in _ALL}
COMMON = ("DS", "LD", "CB", "IS", "MW")
"""The criteria that most people need: the papers' own, which `fedmerit list criteria` shows first."""
SUGGESTED = 3
"""Near names in the message about an unknown criterion."""


def _short_name(criterion: Criterion) -> str:
    """The name in words: the `about` text up to its colon; the symbol where `about` has none."""
    words, colon, _ = criterion.about.partition(": ")
    return words if colon else criterion.name


def lookup_key(name: str) -> str:
    """Case, spaces, underscores and hyphens do not matter."""
    return re.sub(r"[\s_-]+", " ", name).strip().lower()


_BY_NAME = {lookup_key(name): one for one in _ALL for name in (one.name, _short_name(one))}


class UnknownCriterion(UnknownName):
    """A criterion that does not exist; the message has the nearest names, not all of them."""

    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(lookup_key(name), _BY_NAME, n=2 * SUGGESTED, cutoff=0.5)
        symbols = list(dict.fromkeys([*(_BY_NAME[key].name for key in near), *COMMON]))[:SUGGESTED]
        names = ", ".join(f"{display_name(symbol)!r} ({symbol})" for symbol in symbols)
        UserError.__init__(
            self, f"unknown criterion {name!r:.200}; did you mean one of {names}? See `fedmerit list criteria`"
        )


def find_criterion(name: str) -> Criterion:
    """The criterion of this name or symbol, or one of a family, such as `attribute:NAME` or `validated:OBJECTIVE`.

    >>> find_criterion("class balance"), find_criterion("Class_Balance"), find_criterion("CB")
    (CB, CB, CB)
    """
    if name.startswith(ATTRIBUTE) and name != ATTRIBUTE:
        return Attribute(name.removeprefix(ATTRIBUTE))
    if name.startswith(CLIENT_FACT):
        return parse_client_fact(name)
    if name.startswith(VALIDATED):
        return Validated(find_objective(name.removeprefix(VALIDATED)))
    if name.startswith(CONTRIBUTION):
        return find_contribution(name)
    if name.startswith(REPUTATION):
        return Reputation(find_criterion(name.removeprefix(REPUTATION)))
    if lookup_key(name) not in _BY_NAME:
        raise UnknownCriterion(name)
    return _BY_NAME[lookup_key(name)]


def symbol_of(name: str) -> str:
    """What ledgers and JSON call a criterion: `CB` for "class balance"; the name itself where no table has it.

    >>> symbol_of("class balance"), symbol_of("beds")
    ('CB', 'beds')
    """
    if ":" not in name:  # of no family: a file may have 200,000 columns, and a failed search costs 0.2 ms
        known = _BY_NAME.get(lookup_key(name))
        return known.name if known else name
    try:
        return find_criterion(name).name
    except UserError:
        return name


def display_name(name: str) -> str:
    """What people call a criterion: the beginning of its `about` text; the name itself where no table has it.

    >>> display_name("DS"), display_name("validated:parity:sex"), display_name("beds")
    ('dataset size', 'parity:sex at the server', 'beds')
    """
    try:
        return _short_name(find_criterion(name))
    except UserError:
        return name


def display_priority(names: Sequence[str]) -> str:
    """A priority for people, most important first.

    >>> display_priority(["CB", "DS"])
    'class balance > dataset size'
    """
    return " > ".join(map(display_name, names))


def about_criterion(name: str) -> str:
    """What a criterion says of itself; nothing for one that is in no table."""
    try:
        return find_criterion(name).about
    except UserError:
        return ""


def check_priority(names: Sequence[str]) -> None:
    """Refuse an empty priority and one that repeats a criterion."""
    if not names:
        raise ConfigError('a priority names at least one criterion, for example ["DS", "CB"]; got none')
    twice = {name for name in names if list(names).count(name) > 1}
    if twice:
        raise ConfigError(f"a priority names each criterion once; repeated: {', '.join(sorted(twice))}")
