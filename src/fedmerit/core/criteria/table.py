"""Criteria: one value per client and round, finite, not negative, higher is better.

A criterion is one decorated function, or one small frozen value where it has settings. `CRITERIA` is the table of those
that configuration can name; `attribute:NAME`, `fact:NAME`, `validated:OBJECTIVE`, `contribution:METHOD` and
`reputation:CRITERION` are families that `find_criterion` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from fedmerit.core.collect.late import Staleness as Staleness
from fedmerit.core.criteria.client_fact import parse_own_fact
from fedmerit.core.criteria.computation import BUDGET_COMPUTATION as BUDGET_COMPUTATION
from fedmerit.core.criteria.computation import COMPUTATION as COMPUTATION
from fedmerit.core.criteria.computation import REPORTED_COMPUTATION as REPORTED_COMPUTATION
from fedmerit.core.criteria.computation import SIMULATED_COMPUTATION as SIMULATED_COMPUTATION
from fedmerit.core.criteria.computation import Computation as Computation
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.contribution import find_contribution
from fedmerit.core.criteria.reputation import REPUTATION, Reputation
from fedmerit.core.criteria.robust import (
    Agreement,
    Alignment,
    Common,
    Conduct,
    Distinct,
    Nearness,
    NormShare,
    Typical,
    Usual,
)
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.facts import (
    ATTRIBUTE,
    CONTRIBUTION,
    ENERGY,
    LARGEST,
    LINK,
    LOSS,
    OWN,
    SAMPLES,
    SECONDS,
    VALIDATED,
    WITHOUT,
)
from fedmerit.core.objectives import ERRORS, GROUPED, OVERALL, Gated, Objective, check_rising, find_objective
from fedmerit.core.types import Cohort, History, Vector
from fedmerit.core.types import Family as Family
from fedmerit.errors import ConfigError, UnknownName, UserError

VALIDATED_ACCURACY = f"{VALIDATED}accuracy"
"""The fact by which gates open: the accuracy of the client's model on the server's rows."""
NO_GAIN = 1e-6
"""A score that is higher by no more is the same score, rounded another way."""


class Criterion(Protocol):
    """A named column of the table of a round.

    name            what people and configuration call it
    family          what it speaks about
    required_facts  the facts that it reads, by name: of clients, or of the server (`clock`, `epochs`)
    degree          whether raw values lie in 0..1 by themselves, as `normalise = "none"` requires
    about           one line for lists and reports: the name spelt out, a colon, and what it is

    >>> from fedmerit.core.criteria.table import DS
    >>> DS.name, DS.required_facts
    ('DS', ('samples',))
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def family(self) -> Family: ...  # noqa: D102
    @property
    def required_facts(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def degree(self) -> bool: ...  # noqa: D102
    @property
    def about(self) -> str: ...  # noqa: D102

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """One raw value per client of the cohort, in the order of `cohort.ids`."""


Values: TypeAlias = Callable[[Cohort, History], Vector]


@dataclass(frozen=True, slots=True, repr=False)
class Measured:
    """A criterion made of a function; `criterion` and `reported` make them.

    >>> CB, CB.about, CB.required_facts
    (CB, 'class balance: rarest class / commonest class', ('balance',))
    """

    name: str
    family: Family
    about: str
    values: Values
    required_facts: tuple[str, ...] = ()
    degree: bool = False

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """What the function gives."""
        return np.asarray(self.values(cohort, history), dtype=np.float64)

    def __repr__(self) -> str:
        return self.name


def criterion(
    name: str, family: Family, about: str, *, facts: Sequence[str] = (), degree: bool = False
) -> Callable[[Values], Measured]:
    """A criterion made of a function of the cohort and the history.

    name    what people and configuration call it
    family  what it speaks about
    about   one line for lists and reports
    facts   the facts that it reads, by name; none: the server knows enough
    degree  whether its values lie in 0..1 by themselves

    >>> @criterion("Square", Family.DATA, "samples squared", facts=["samples"])
    ... def square(cohort, history):
    ...     return cohort.facts["samples"] ** 2
    >>> square.name
    'Square'
    """
    return lambda values: Measured(name, family, about, values, tuple(facts), degree)


def reported(name: str, family: Family, fact: str, about: str, *, degree: bool = False) -> Measured:
    """A criterion that is a fact, as the client reported it."""
    return Measured(name, family, about, lambda cohort, history: cohort.facts[fact], (fact,), degree)


DS = reported("DS", Family.DATA, SAMPLES, "dataset size: number of training rows")
LD = reported("LD", Family.DATA, "labels", "label diversity: number of distinct labels")
LC = reported("LC", Family.DATA, "coverage", "label coverage: distinct labels / classes of the task", degree=True)
CB = reported("CB", Family.DATA, "balance", "class balance: rarest class / commonest class", degree=True)
IS = reported("IS", Family.DATA, "sharp", "image sharpness: share of images not marked Blurry", degree=True)
Energy = reported("Energy", Family.TRUST, ENERGY, "energy: share of the battery that is left", degree=True)
Sharpness = reported("Sharpness", Family.DATA, "sharpness", "sharpness from pixels: mean variance of the Laplacian")


@criterion(
    "MW",
    Family.MODEL,
    "model nearness: 1 / sqrt(norm of the update + 1), near to the received model is better; computed by the server",
    degree=True,
)
def MW(cohort: Cohort, history: History) -> Vector:  # noqa: N802 - a criterion's name is the paper's
    """1 / sqrt(||update||_2 + 1), with the + 1 inside the root [PMCFL, MW]."""
    return np.asarray(1.0 / np.sqrt(cohort.updates.norms + 1.0))


@criterion(
    "Connection",
    Family.TRUST,
    "connection: megabytes per second, model and update over the time of the exchange without training",
    facts=[LINK, SECONDS],
)
def Connection(cohort: Cohort, history: History) -> Vector:  # noqa: N802
    """The measured or simulated speed of the client's connection."""
    return cohort.facts[LINK]


@criterion(
    "Participation",
    Family.TRUST,
    "participation: rounds taken part in / rounds so far; counted by the server",
    degree=True,
)
def PARTICIPATION(cohort: Cohort, history: History) -> Vector:  # noqa: N802
    """phi_i = rounds that the client took part in so far, this one included / rounds so far [M2F, eq. 9]."""
    counts = [history.participations.get(client, 0) + 1 for client in cohort.ids]
    return np.asarray(counts, dtype=np.float64) / cohort.index


@criterion(
    "DataRatio", Family.DATA, "data share: the client's part of the group's training rows", facts=[SAMPLES], degree=True
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
    family: Family = Family.TARGET
    degree: bool = True

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


@dataclass(frozen=True, slots=True)
class Validated:
    """What the server measured of the client's model, merged with the global one, on rows of its own [FedVal].

    The fact of its name is what was measured. A gate, where the objective has one, is applied here: so the ledger
    keeps both what a model scored and what it counted.
    With `marginal` only what the client adds counts: max(0, s(merged model) - s(global model)), and 0 where that is
    rounding. A zero update adds 0.

    >>> from fedmerit.core.objectives import find_objective
    >>> Validated(find_objective("parity:sex")).name
    'validated:parity:sex'
    """

    objective: Objective
    family: Family = Family.TARGET
    degree: bool = True
    marginal: bool = False

    def __post_init__(self) -> None:
        check_rising(self.objective)

    @property
    def name(self) -> str:
        """`validated:parity:sex` for the objective `parity:sex`."""
        return f"{VALIDATED}{self.objective.name}"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The fact of the same name; where the gain counts, what the model has without the client; the gate's."""
        gain = (self.without,) if self.marginal else ()
        gate = () if self.gate is None else (VALIDATED_ACCURACY,)
        return tuple(dict.fromkeys((self.name, *gain, *gate)))

    @property
    def gate(self) -> Gated | None:
        """The gate before its objective; None where there is none."""
        return self.objective if isinstance(self.objective, Gated) else None

    @property
    def without(self) -> str:
        """The fact that says what the model has without the client."""
        return f"{self.name}{WITHOUT}"

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        objective = self.objective.name
        return f"{objective} at the server: of the client's model, merged with the global one, on the server's rows"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """0..1, higher is better."""
        values = cohort.facts[self.name]
        if self.gate is not None:
            values = self.gate.shut(values, cohort.facts[VALIDATED_ACCURACY])
        if not self.marginal:
            return values
        gain = values - cohort.facts[self.without]
        return np.asarray(np.where(gain > NO_GAIN, gain, 0.0))


@dataclass(frozen=True, slots=True)
class LossPower:
    """F_k ** q, F the loss of the received model on the client's rows: q-FFL's weights [q-FFL]; q = 0: all alike."""

    q: float = 1.0
    family: Family = Family.MODEL
    required_facts: tuple[str, ...] = (LOSS,)
    degree: bool = False
    name: str = "LossPower"
    about: str = "loss: of the received model on the client's rows, to a power; who fares badly counts more (q-FFL)"

    def __post_init__(self) -> None:
        if not 0 <= self.q < np.inf:
            raise ConfigError(f"q is a power of the loss, 0 or more; got {self.q}")

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Larger losses, larger values."""
        with np.errstate(over="ignore"):
            return np.minimum(cohort.facts[LOSS] ** self.q, LARGEST)


@dataclass(frozen=True, slots=True)
class Agnostic:
    """exp(eta * sum of the client's losses so far): the worst client is raised round by round [AFL]."""

    eta: float = 0.1
    family: Family = Family.MODEL
    required_facts: tuple[str, ...] = (LOSS,)
    degree: bool = True
    name: str = "Agnostic"
    about: str = "losses so far: exp of their sum; the client that fares worst is raised round by round (agnostic FL)"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """In proportion to the largest of the round, which keeps it finite."""
        with np.errstate(over="ignore"):
            so_far = np.array([history.losses.get(client, 0.0) for client in cohort.ids]) + cohort.facts[LOSS]
            so_far = np.minimum(so_far, LARGEST)
            return np.asarray(np.exp(self.eta * (so_far - so_far.max())))


_ALL: tuple[Criterion, ...] = (
    *(DS, LD, LC, MW, CB, IS, Sharpness),
    *(PARTICIPATION, COMPUTATION, REPORTED_COMPUTATION, SIMULATED_COMPUTATION, BUDGET_COMPUTATION, DATA_RATIO),
    *(LossPower(), Agnostic()),
    *(Connection, Energy),
    Staleness(),
    Consistency(),
    *(Alignment(), Agreement(), Distinct(), Nearness(), Typical(), NormShare(), Usual(), Common(), Conduct()),
    Company(),
)
CRITERIA: Mapping[str, Criterion] = {one.name: one for one in _ALL}


def find_criterion(name: str) -> Criterion:
    """The criterion of that name, or one of a family, such as `attribute:NAME` or `validated:OBJECTIVE`."""
    if name.startswith(ATTRIBUTE) and name != ATTRIBUTE:
        return Attribute(name.removeprefix(ATTRIBUTE))
    if name.startswith(OWN):
        return parse_own_fact(name)
    if name.startswith(VALIDATED):
        return Validated(find_objective(name.removeprefix(VALIDATED)))
    if name.startswith(CONTRIBUTION):
        return find_contribution(name)
    if name.startswith(REPUTATION):
        return Reputation(find_criterion(name.removeprefix(REPUTATION)))
    if name not in CRITERIA:
        own, worth, past = f"{OWN}NAME", f"{CONTRIBUTION}METHOD", f"{REPUTATION}CRITERION"
        families = (f"{ATTRIBUTE}NAME", own, *_validated_names(), worth, past)
        raise UnknownName("criterion", name, [*CRITERIA, *families])
    return CRITERIA[name]


def _validated_names() -> list[str]:
    return [
        *(f"{VALIDATED}{name}" for name in OVERALL if name not in ERRORS),
        *(f"{VALIDATED}{name}:ATTRIBUTE" for name in GROUPED),
    ]


def spelt_out(name: str) -> str:
    """A criterion's name in words, as its `about` begins; the name itself where nobody spelt it out.

    >>> spelt_out("DS"), spelt_out("validated:parity:sex"), spelt_out("beds")
    ('dataset size', 'parity:sex at the server', 'beds')
    """
    words, colon, _ = about_criterion(name).partition(": ")
    return words if colon else name


def about_criterion(name: str) -> str:
    """What a criterion says of itself; nothing for one that is in no table."""
    try:
        return find_criterion(name).about
    except UserError:
        return ""


def check_priority(names: Sequence[str]) -> None:
    """At least one name, none twice."""
    if not names:
        raise ConfigError('a priority names at least one criterion, for example ["DS", "CB"]; got none')
    twice = {name for name in names if list(names).count(name) > 1}
    if twice:
        raise ConfigError(f"a priority names each criterion once; repeated: {', '.join(sorted(twice))}")
