"""The facts that clients have before training, and which criteria they separate, for `fedmerit doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedmerit.core.criteria.table import display_name
from fedmerit.engine.measured import Separation, measured_facts, readable_criteria, separations

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedmerit.config.schema import Config
    from fedmerit.core.types import Vector
    from fedmerit.tasks.federation import Federation

SHOWN = 20
"""Clients, or criteria, on the screen."""
MOVED = (
    "moved: how much of the weight the criterion alone moves away from equal weights; from 1 % on it separates the "
    "clients"
)


@dataclass(frozen=True)
class FactsReport:
    """Facts of every client, and how far each criterion separates the clients."""

    federation: Federation
    facts: Mapping[str, Vector]
    separations: Sequence[Separation]
    criteria: Sequence[str]
    """The criteria of the recipe."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        names = self.federation.names
        return {
            "clients": {
                name: {fact: float(values[client]) for fact, values in self.facts.items()}
                for client, name in enumerate(names)
            },
            "criteria": {
                line.criterion: {"moved": line.moved, "separates": line.separates} for line in self.separations
            },
        }

    def tables(self, width: int) -> Iterator[RenderableType]:
        """Yield a table of clients and one of criteria that fit the width."""
        from fedmerit.report.screen import wide_tables

        names, columns = self.federation.names, dict(_columns(self.federation, self.facts))
        shown = [(name, *(values[client] for values in columns.values())) for client, name in enumerate(names[:SHOWN])]
        yield from wide_tables("Facts before training", ("client", *columns), shown, width)
        yield from _and_more(len(names), SHOWN)
        rows = [
            (
                display_name(line.criterion),
                *(f"{value:.4g}" for value in (line.least, line.median, line.largest)),
                f"{line.moved:.1%}",
                "yes" if line.separates else "no",
            )
            for place, line in enumerate(self.separations)
            if place < SHOWN or line.criterion in self.criteria
        ]
        header = ("criterion", "least", "median", "largest", "moved", "separates")
        yield from wide_tables("Criteria that these facts suffice for", header, rows, width)
        yield from _and_more(len(self.separations), len(rows))
        later = [name for name in self.criteria if name not in {line.criterion for line in self.separations}]
        if later:
            yield f"measured only after training: {', '.join(map(display_name, later))}"
        yield MOVED


def report_facts(config: Config) -> FactsReport:
    """Measure the facts of a configuration's clients without training."""
    from fedmerit.config.privacy import recipe_of
    from fedmerit.tasks.registry import make_task

    federation, recipe = make_task(config).federation, recipe_of(config)
    facts = measured_facts(federation, recipe.criteria)
    lines = separations(facts, readable_criteria(facts, recipe.criteria))
    return FactsReport(federation, facts, lines, [criterion.name for criterion in recipe.criteria])


def _columns(federation: Federation, facts: Mapping[str, Vector]) -> Iterator[tuple[str, list[str]]]:
    """Yield each fact as a column of texts; a fact in words has one column of words."""
    from fedmerit.core.facts import CLIENT_FACT, IS_WORD

    done = set[str]()
    for fact, values in facts.items():
        name, is_word, _ = fact.partition(IS_WORD)
        if not is_word:
            yield fact, [f"{value:.4g}" for value in values]
        elif name not in done:
            done.add(name)
            yield name, [str(value) for value in federation.facts[name.removeprefix(CLIENT_FACT)]]


def _and_more(number: int, shown: int) -> Iterator[str]:
    if number > shown:
        yield f"... and {number - shown} more; --json has all"
