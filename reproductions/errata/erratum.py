"""What an erratum is: where it stands, what is printed there, and a function that computes what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = float | int | str | None

Verdict: TypeAlias = Literal["shown", "strong evidence", "right as printed", "not borne out", "cannot be computed"]
"""`not borne out` would reveal a mistake of ours: the numbers do not support what the entry says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a computation: what is computed, the result, and the printed value, if there is one."""

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
    """A place in a paper that does not hold, or cannot be read without a choice.

    `fedmerit` says what this package does instead, `see` where in docs/ there is more. `evidence` takes no argument
    and gives the same answer every time.
    """

    name: str
    title: str
    paper: str
    place: str
    printed: str
    fedmerit: str
    evidence: Callable[[], Evidence]
    see: str = ""


def shown(holds: bool, follows: str, *steps: Step, verdict: Verdict = "shown") -> Evidence:
    """Evidence with this verdict if it holds; else `not borne out`."""
    return Evidence(verdict if holds else "not borne out", follows, steps)


def cannot(why: str, follows: str) -> Callable[[], Evidence]:
    """Evidence where there is nothing to compute, for this reason."""
    evidence = Evidence("cannot be computed", follows, why=why)
    return lambda: evidence


def listed(values: Sequence[float], form: str = ".2f") -> str:
    """Numbers in one line: 0.05 / 0.50 / 0.95."""
    return " / ".join(format(value, form) for value in values)


def percent(share: float, digits: int = 0) -> str:
    """0.267 as 27 %."""
    return f"{100 * share:.{digits}f} %"
