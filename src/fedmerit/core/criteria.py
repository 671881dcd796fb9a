"""Criteria: one value per client and round, finite, not negative, higher is better (SPEC A1, A3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from fedmerit.core.facts import ATTRIBUTE, CLOCK, EPOCHS, LOSS, SECONDS, VALIDATED
from fedmerit.core.objectives import GROUPED, PLAIN, Objective, find_objective
from fedmerit.core.types import Cohort, History, Vector
from fedmerit.errors import ConfigError, UnknownName


class Family(StrEnum):
    """What a criterion speaks about: the four families the papers name."""

    DATA = "data"
    MODEL = "model"
    TRUST = "trust"
    TARGET = "target"


class Criterion(Protocol):
    """A named column of the table."""

    @property
    def name(self) -> str:
        """How people and configuration call it."""

    @property
    def family(self) -> Family:
        """What it speaks about."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The facts that it reads: of clients, or `clock` and `epochs` of the server."""

    @property
    def degree(self) -> bool:
        """Whether raw values lie in 0..1 by themselves, as `normalise = "none"` requires."""

    @property
    def about(self) -> str:
        """One line for lists and reports."""

    def __call__(self, round: Cohort, history: History) -> Vector:
        """One raw value per client of the round, in the order of `round.ids`."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A criterion that is a fact, as the client reported it."""

    name: str
    family: Family
    fact: str
    about: str
    degree: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The one fact it passes on."""
        return (self.fact,)

    def __call__(self, round: Cohort, history: History) -> Vector:
        """The fact itself."""
        return round.facts[self.fact]


@dataclass(frozen=True, slots=True)
class Divergence:
    """MW: 1 / sqrt(||update||_2 + 1), computed by the server from the update (SPEC A1; the +1 is inside the root)."""

    name: str = "MW"
    family: Family = Family.MODEL
    needs: tuple[str, ...] = ()
    degree: bool = True
    about: str = "1 / sqrt(norm of the update + 1): nearer to the received model is better; computed by the server"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """Clients that moved less get more."""
        return np.asarray(1.0 / np.sqrt(round.updates.norms + 1.0))


@dataclass(frozen=True, slots=True)
class Attribute:
    """Any share or boolean that clients report: gender, job, region; the papers' fourth family."""

    of: str
    family: Family = Family.TARGET
    degree: bool = True

    @property
    def name(self) -> str:
        """`attribute:region` for the attribute `region`."""
        return f"{ATTRIBUTE}{self.of}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The fact of the same name."""
        return (self.name,)

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        return f"share of the client's rows with attribute {self.of}"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """The reported share."""
        return round.facts[self.name]


@dataclass(frozen=True, slots=True)
class Participation:
    """phi_i = rounds that the client took part in so far, this one included / rounds so far (SPEC A3)."""

    name: str = "Participation"
    family: Family = Family.TRUST
    needs: tuple[str, ...] = ()
    degree: bool = True
    about: str = "rounds taken part in / rounds so far; counted by the server"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """Above 0, since all who are asked take part in this round."""
        counts = [history.participations.get(client, 0) + 1 for client in round.ids]
        return np.asarray(counts, dtype=np.float64) / round.index


@dataclass(frozen=True, slots=True)
class Computation:
    """xi_i = slowest time of the group / own time, so 1 for the slowest (SPEC A3, Eq. 10).

    `time` is the fact to go by: the server's `clock` around the exchange, the `seconds` that clients report, or
    `epochs`, which stands for simulated speed: more epochs in the same time, 1 / epochs for each.
    """

    time: str = CLOCK
    name: str = "Computation"
    family: Family = Family.TRUST
    degree: bool = False
    about: str = "slowest time of the group / own time, by the server's clock"

    @property
    def needs(self) -> tuple[str, ...]:
        """The one fact it goes by."""
        return (self.time,)

    def __call__(self, round: Cohort, history: History) -> Vector:
        """Quicker clients get more."""
        fact = round.facts[self.time]
        taken = 1.0 / fact if self.time == EPOCHS else np.maximum(fact, SHORTEST)
        return np.asarray(taken.max() / taken)


@dataclass(frozen=True, slots=True)
class DataRatio:
    """delta_i = |D_i| / sum of |D_j| over the group (SPEC A3)."""

    name: str = "DataRatio"
    family: Family = Family.DATA
    needs: tuple[str, ...] = ("samples",)
    degree: bool = True
    about: str = "the client's share of the group's training rows"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """Shares that sum to 1."""
        samples = round.facts["samples"]
        return np.asarray(samples / samples.sum())


@dataclass(frozen=True, slots=True)
class Validated:
    """What the server found of the client's model, merged with the global one, on rows of its own (SPEC A4)."""

    objective: Objective
    family: Family = Family.TARGET
    degree: bool = True

    @property
    def name(self) -> str:
        """`validated:parity:sex` for the objective `parity:sex`."""
        return f"{VALIDATED}{self.objective.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The fact of the same name."""
        return (self.name,)

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        return f"{self.objective.name} of the client's model, merged with the global one, on the server's rows"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """0..1, higher is better."""
        return round.facts[self.name]


@dataclass(frozen=True, slots=True)
class LossPower:
    """F_k ** q, F the loss of the received model on the client's rows: q-FFL's weights; q = 0 weighs all alike."""

    q: float = 1.0
    family: Family = Family.MODEL
    needs: tuple[str, ...] = (LOSS,)
    degree: bool = False
    name: str = "LossPower"
    about: str = "loss of the received model on the client's rows, to a power: who fares badly counts more (q-FFL)"

    def __post_init__(self) -> None:
        if not 0 <= self.q < np.inf:
            raise ConfigError(f"q is a power of the loss, 0 or more; got {self.q}")

    def __call__(self, round: Cohort, history: History) -> Vector:
        """Larger losses, larger values."""
        return np.asarray(round.facts[LOSS] ** self.q)


@dataclass(frozen=True, slots=True)
class Agnostic:
    """exp(eta * sum of the client's losses so far): the worst client is raised round by round (agnostic FL)."""

    eta: float = 0.1
    family: Family = Family.MODEL
    needs: tuple[str, ...] = (LOSS,)
    degree: bool = True
    name: str = "Agnostic"
    about: str = "exp of the losses so far: the client that fares worst is raised round by round (agnostic FL)"

    def __call__(self, round: Cohort, history: History) -> Vector:
        """In proportion to the largest of the round, which keeps it finite."""
        so_far = np.array([history.losses.get(client, 0.0) for client in round.ids]) + round.facts[LOSS]
        return np.asarray(np.exp(self.eta * (so_far - so_far.max())))


SHORTEST = 1e-9
"""Seconds; a clock may stand still between two looks at it."""

DS = Reported("DS", Family.DATA, "samples", "dataset size: number of training rows")
LD = Reported("LD", Family.DATA, "labels", "label diversity: number of distinct labels")
LC = Reported("LC", Family.DATA, "coverage", "label coverage: distinct labels / classes of the task", degree=True)
MW = Divergence()
CB = Reported("CB", Family.DATA, "balance", "class balance: rarest class / commonest class", degree=True)
IS = Reported("IS", Family.DATA, "sharp", "image sharpness: share of images not marked Blurry", degree=True)
Sharpness = Reported("Sharpness", Family.DATA, "sharpness", "from pixels: mean variance of the Laplacian")

PARTICIPATION = Participation()
COMPUTATION = Computation()
REPORTED_COMPUTATION = Computation(
    SECONDS, "ReportedComputation", about="slowest time of the group / own time, as clients report it"
)
SIMULATED_COMPUTATION = Computation(
    EPOCHS, "SimulatedComputation", about="own epochs / fewest epochs of the group: simulated speed, see [run.schedule]"
)
DATA_RATIO = DataRatio()

_ALL: tuple[Criterion, ...] = (
    *(DS, LD, LC, MW, CB, IS, Sharpness),
    *(PARTICIPATION, COMPUTATION, REPORTED_COMPUTATION, SIMULATED_COMPUTATION, DATA_RATIO),
    *(LossPower(), Agnostic()),
)
CRITERIA: Mapping[str, Criterion] = {criterion.name: criterion for criterion in _ALL}


def find_criterion(name: str) -> Criterion:
    """The criterion called so; `attribute:NAME` makes one for any attribute, `validated:NAME` for any objective."""
    if name.startswith(ATTRIBUTE) and name != ATTRIBUTE:
        return Attribute(name.removeprefix(ATTRIBUTE))
    if name.startswith(VALIDATED):
        return Validated(find_objective(name.removeprefix(VALIDATED)))
    if name not in CRITERIA:
        raise UnknownName("criterion", name, [*CRITERIA, f"{ATTRIBUTE}NAME", *_validated_names()])
    return CRITERIA[name]


def _validated_names() -> list[str]:
    return [*(f"{VALIDATED}{name}" for name in PLAIN), *(f"{VALIDATED}{name}:ATTRIBUTE" for name in GROUPED)]


def find_priority(names: Sequence[str]) -> tuple[Criterion, ...]:
    """Criteria in priority order; at least one, none twice."""
    if not names:
        raise ConfigError('a priority names at least one criterion, for example ["DS", "CB"]; got none')
    twice = {name for name in names if list(names).count(name) > 1}
    if twice:
        raise ConfigError(f"a priority names each criterion once; repeated: {', '.join(sorted(twice))}")
    return tuple(find_criterion(name) for name in names)
