"""Criteria over user-defined facts, such as age, battery or job: a number, an interval, a word, or less of it.

    fact:battery              as it is, more is better
    fact:less ping            least of the round / own, less is better
    fact:age in 20..35        1 inside, 0 outside
    fact:age in 20..35 by 5   1 inside, falling to 0 at 5 beyond either end
    fact:job is nurse         1 where it is that word, 0 where not

The first three and a half read the fact `fact:age`; of a word, clients say only whether it is theirs.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmerit.core.facts import CLIENT_FACT
from fedmerit.core.parts import FACTS_ONLY, PURE, Words
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Family, Vector
from fedmerit.errors import ConfigError

FORMS = "fact:NAME, fact:less NAME, fact:NAME in LOW..HIGH, fact:NAME in LOW..HIGH by WIDTH, fact:NAME is WORD"
NUMBER = r"(\d+(?:\.\d+)?)"
INTERVAL = re.compile(rf"(?P<of>.+?) in {NUMBER}\.\.{NUMBER}(?: by {NUMBER})?")
NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class ClientFact:
    """What clients say of themselves, as a criterion: the fourth family, targets of the provider [PMCFL, sec. 4.2].

    of          the fact, a column of [facts]
    inside      the ends of an interval: the degree is 1 inside, and falls to 0 over `by` beyond them
    word        the word that it should be: 1 or 0
    less        whether less of it is better: the least of the round / own

    >>> ClientFact("age", inside=(20, 35), by=5).name, ClientFact("job", word="nurse").name
    ('fact:age in 20..35 by 5', 'fact:job is nurse')
    """

    of: str
    inside: tuple[float, float] | None = None
    by: float = 0.0
    word: str = ""
    less: bool = False
    family: ClassVar[Family] = Family.TARGET

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.of):
            raise ConfigError(f"a fact's name must have only letters, digits, _ . and - (got {self.of!r})")
        if (self.inside is not None) + bool(self.word) + self.less > 1:
            raise ConfigError(f"a criterion over a fact is one of {FORMS}; got several of them for {self.of!r}")
        if self.inside is not None and not self.inside[0] <= self.inside[1]:
            raise ConfigError(f"an interval goes from LOW up to HIGH; got {self.inside[0]:g}..{self.inside[1]:g}")

    @property
    def name(self) -> str:
        """As priorities name it."""
        if self.inside is not None:
            low, high = self.inside
            return f"{CLIENT_FACT}{self.of} in {low:g}..{high:g}" + (f" by {self.by:g}" if self.by else "")
        return (
            f"{CLIENT_FACT}{self.of} is {self.word}"
            if self.word
            else f"{CLIENT_FACT}{'less ' if self.less else ''}{self.of}"
        )

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The number that clients report; of a word, whether it is theirs."""
        return (self.name,) if self.word else (f"{CLIENT_FACT}{self.of}",)

    @property
    def gives(self) -> Words:
        """All read only facts; `less` compares with the lowest of the round, which has no account."""
        return FACTS_ONLY if self.less else PURE

    @property
    def degree(self) -> bool:
        """All forms but the plain one lie in 0..1."""
        return self.inside is not None or bool(self.word) or self.less

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        if self.inside is not None:
            edge = f", falling to 0 at {self.by:g} beyond" if self.by else ""
            return f"{self.name.removeprefix(CLIENT_FACT)}: 1 inside the interval, 0 outside{edge}"
        if self.word:
            return f"{self.of} is {self.word}: 1 if the client reports so, else 0"
        return f"less {self.of}: least of the round / own" if self.less else f"{self.of}: as the client reports it"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """The degree of each client, or its number."""
        values = cohort.facts[self.required_facts[0]]
        if self.inside is not None:
            low, high = self.inside
            beyond = np.maximum(np.maximum(low - values, values - high), 0.0)
            return np.asarray(
                1.0 - np.minimum(beyond, self.by) / self.by if self.by else (beyond == 0).astype(np.float64)
            )
        if not self.less or not len(values):
            return values
        least = values.min()
        return np.asarray(np.divide(least, values, out=np.ones(len(values)), where=values > 0))


def parse_client_fact(name: str) -> ClientFact:
    """The criterion that a name `fact:...` stands for.

    >>> parse_client_fact("fact:age in 20..35").inside
    (20.0, 35.0)
    """
    text = " ".join(name.removeprefix(CLIENT_FACT).split())
    if interval := INTERVAL.fullmatch(text):
        of, low, high, by = interval.groups()
        return ClientFact(of, inside=(float(low), float(high)), by=float(by or 0))
    of, is_word, word = text.partition(" is ")
    if is_word:
        return ClientFact(of, word=word)
    less = text.startswith("less ")
    of = text.removeprefix("less ") if less else text
    if not NAME.fullmatch(of):
        raise ConfigError(f"a criterion over a user-defined fact must be one of {FORMS}; got {name!r}")
    return ClientFact(of, less=less)
