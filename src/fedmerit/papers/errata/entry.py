"""What an erratum is: where it stands, what is printed there, and a function that computes what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = float | int | str | None

Verdict: TypeAlias = Literal["shown", "strong evidence", "right as printed", "not borne out", "cannot be computed"]
"""`not borne out` is what a mistake of ours would look like: the numbers do not say what the entry says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a computation: what is computed, what comes out, and what is printed for it, if anything is."""

    what: str
    recomputed: Value
    printed: Value = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What comes out, in one or two sentences, with the steps to it; or why nothing can be computed."""

    verdict: Verdict
    follows: str
    steps: tuple[Step, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Erratum:
    """A place in a paper that does not hold, or cannot be read without a choice; `digest` are sections of the SPEC.

    `fedmerit` says what this package does instead, `see` where in docs/ there is more. `evidence` takes nothing and
    gives the same answer every time.
    """

    name: str
    title: str
    digest: tuple[str, ...]
    paper: str
    place: str
    printed: str
    fedmerit: str
    evidence: Callable[[], Evidence]
    see: str = ""


def shown(holds: bool, follows: str, *steps: Step, verdict: Verdict = "shown") -> Evidence:
    """The steps bear the verdict out, if it holds."""
    return Evidence(verdict if holds else "not borne out", follows, steps)


def cannot(why: str, follows: str) -> Callable[[], Evidence]:
    """Nothing to compute, for this reason."""
    evidence = Evidence("cannot be computed", follows, why=why)
    return lambda: evidence


def listed(values: Sequence[float], form: str = ".2f") -> str:
    """Numbers in one line, as people read them."""
    return " / ".join(format(value, form) for value in values)


def percent(share: float, digits: int = 0) -> str:
    """0.267 as 27 %."""
    return f"{100 * share:.{digits}f} %"
