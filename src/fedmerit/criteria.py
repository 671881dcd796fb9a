"""Criteria: one value per client and round, finite, not negative, higher is better (SPEC A1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from fedmerit.errors import ConfigError, UnknownName
from fedmerit.facts import ATTRIBUTE
from fedmerit.types import History, Round, Vector


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
        """The facts that clients must send for it."""

    @property
    def degree(self) -> bool:
        """Whether raw values lie in 0..1 by themselves, as `normalise = "none"` requires."""

    @property
    def about(self) -> str:
        """One line for lists and reports."""

    def __call__(self, round: Round, history: History) -> Vector:
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

    def __call__(self, round: Round, history: History) -> Vector:
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

    def __call__(self, round: Round, history: History) -> Vector:
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

    def __call__(self, round: Round, history: History) -> Vector:
        """The reported share."""
        return round.facts[self.name]


DS = Reported("DS", Family.DATA, "samples", "dataset size: number of training rows")
LD = Reported("LD", Family.DATA, "labels", "label diversity: number of distinct labels")
LC = Reported("LC", Family.DATA, "coverage", "label coverage: distinct labels / classes of the task", degree=True)
MW = Divergence()
CB = Reported("CB", Family.DATA, "balance", "class balance: rarest class / commonest class", degree=True)
IS = Reported("IS", Family.DATA, "sharp", "image sharpness: share of images not marked Blurry", degree=True)
Sharpness = Reported("Sharpness", Family.DATA, "sharpness", "from pixels: mean variance of the Laplacian")

CRITERIA: Mapping[str, Criterion] = {criterion.name: criterion for criterion in (DS, LD, LC, MW, CB, IS, Sharpness)}


def find_criterion(name: str) -> Criterion:
    """The criterion called so; `attribute:NAME` makes one for any attribute of the data."""
    if name.startswith(ATTRIBUTE) and name != ATTRIBUTE:
        return Attribute(name.removeprefix(ATTRIBUTE))
    if name not in CRITERIA:
        raise UnknownName("criterion", name, [*CRITERIA, f"{ATTRIBUTE}NAME"])
    return CRITERIA[name]


def find_priority(names: Sequence[str]) -> tuple[Criterion, ...]:
    """Criteria in priority order; at least one, none twice."""
    if not names:
        raise ConfigError('a priority names at least one criterion, for example ["DS", "CB"]; got none')
    twice = {name for name in names if list(names).count(name) > 1}
    if twice:
        raise ConfigError(f"a priority names each criterion once; repeated: {', '.join(sorted(twice))}")
    return tuple(find_criterion(name) for name in names)
