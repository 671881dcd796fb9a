"""A table of texts: on the screen, in HTML, in Markdown and in LaTeX."""

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedmerit.core.showing import html_table

UNKNOWN = "-"
LONGEST_NAME = 20
"""Names of rows up to this length stay on one line, however narrow the screen."""

WIDE = 10_000
"""A screen on which every table fits."""

MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~])")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\ it would start an option
    "]": "{]}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
} | {character: f"\\{character}" for character in "&%$#_{}"}
MINUS = re.compile(r"(?<![\w.$])-(?=\d)")
"""A hyphen that stands for a minus."""
LABEL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A title, the names of the columns, the cells of each row (first its name), and lines below the table.

    Markdown and LaTeX print more than a screen has room for: cells in `best`, by row and column from 0, are bold, and
    the deviations in `spreads` follow the numbers that their cells begin with.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    spreads: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def screen(self) -> Group:
        """The table for a terminal."""
        return Group(Text(self.title, "bold"), Fitted(self), *(Text(line, "dim") for line in self.below))

    def grid(self, first: int | None = None) -> Table:
        """The cells alone; `first` is the width of the first column, else as wide as it may be."""
        grid = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)  # nine shares of devices side by side in 80 columns
        longest = max((len(row[0]) for row in self.rows), default=0)
        grid.add_column(escape(self.header[0]), no_wrap=longest <= LONGEST_NAME, overflow="fold", width=first)
        for name in self.header[1:]:
            grid.add_column(escape(name), justify="right", overflow="fold")
        for row in self.rows:
            grid.add_row(*map(escape, row))
        return grid

    def html(self) -> str:
        """The table for a notebook."""
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self.below)
        return html_table(self.title, self.header, self.rows) + below

    def markdown(self) -> str:
        """The table as GitHub and pandoc read it, between its title and the lines below."""
        head, *body = (f"| {' | '.join(cells)} |" for cells in self._written(markdown_text, "**{}**"))
        rule = "| --- |" + " ---: |" * (len(self.header) - 1)
        below = [line for text in self._notes for line in ("", markdown_text(text))]
        return "\n".join([markdown_text(self.title), "", head, rule, *body, *below, ""])

    def latex(self, label: str = "") -> str:
        """The table for LaTeX's booktabs, with its title and the lines below as caption, and a label to refer to."""
        head, *body = (" & ".join(cells) + r" \\" for cells in self._written(_latex, r"\textbf{{{}}}"))
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex(' '.join((_sentence(self.title), *map(_sentence, self._notes))))}}}",
                *([rf"\label{{tab:{LABEL.sub('-', label.lower()).strip('-')}}}"] if label else []),
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
                *(r"\end{tabular}", r"\end{table}", ""),
            ]
        )

    def _written(self, write: Callable[[str], str], bold: str) -> Iterator[list[str]]:
        """The header and the rows, each cell as a format writes it."""
        yield [write(cell) for cell in self.header]
        for place, row in enumerate(self.rows):
            written = [write(self._with_spread(cell, (place, column))) for column, cell in enumerate(row)]
            yield [bold.format(cell) if (place, i) in self.best else cell for i, cell in enumerate(written)]

    def _with_spread(self, cell: str, place: tuple[int, int]) -> str:
        mean, space, rest = cell.partition(" ")
        return f"{mean} ± {self.spreads[place]}{space}{rest}" if place in self.spreads else cell

    @property
    def _notes(self) -> tuple[str, ...]:
        return (*self.below, "±: standard deviation over the seeds") if self.spreads else self.below


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table on a screen: where it is too wide, names of rows are folded between words, not within them."""

    table: TextTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As it is where it fits, else with a first column that gives way, down to its longest word."""
        whole, names = self.table.grid(), [row[0] for row in self.table.rows]
        width = Measurement.get(console, options.update(max_width=WIDE), whole).maximum
        if width > options.max_width and max(map(len, names), default=0) > LONGEST_NAME:
            first = [self.table.header[0], *names]
            longest = max(map(len, first))
            word = max(len(word) for text in first for word in text.split())
            whole = self.table.grid(max(longest - (width - options.max_width), word))
        yield whole


def number_text(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number with this many decimals; a dash if it is unknown."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value + 0.0:{sign}.{digits}f}"


def known(value: float | None) -> float | None:
    """None in place of NaN, for JSON."""
    return None if value is None or math.isnan(value) else value


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def markdown_text(cell: str) -> str:
    """Escape a text for Markdown, on one line."""
    return MARKDOWN.sub(r"\\\1", " ".join(cell.split()))


def _latex(cell: str) -> str:
    text = "".join(LATEX.get(character, character) for character in " ".join(cell.split()))
    return MINUS.sub("$-$", text)
