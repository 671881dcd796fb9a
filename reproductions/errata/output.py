"""Output of the errata: on the screen, as JSON, and as the page docs/errata.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedmerit.errors import ConfigError
from fedmerit.report.screen import list_table
from fedmerit.store.files import check_new_file, write_new_file
from reproductions.errata import ERRATA
from reproductions.errata.erratum import Erratum, Evidence, Value
from reproductions.errata.idle_priority import FINDING_1, draw, sweep

INTRO = """# Errata of the papers

Claims of the four papers that do not hold, recomputed from the numbers they print. `python -m reproductions errata
NAME` shows one computation step by step, `python -m reproductions errata` lists all. The published tables are in
`reproductions/published.json`, the formulas in [papers.md](papers.md). The authors' code of PMCFL is cited as file:line
of [sisinflab/ClientAware-FL](https://github.com/sisinflab/ClientAware-FL/tree/6439a7cca35e250393aac18b64c2c51f14c9a0a4)
at commit 6439a7c. An entry without a verdict is recomputed and shown.

Before you compare with a published table: exchange IS and CB in PMCFL's Table 6 (finding-2), ignore its averages and
all cells of Tables 3, 5 and 7 except the accuracies. Gains of single rows are noise of several rounds (finding-4). The
labels Ld and Md of DAFL are in doubt (finding-5)."""

WHOLE_TABLES, SINGLE_PLACES = "Findings that concern whole tables", "Single places"
NOT_COMPUTED = "What cannot be computed"


def overview() -> Table:
    """All errata with their verdicts, a line each."""
    header = ("erratum", "what", "verdict")
    rows = [(erratum.name, erratum.title, verdict_text(erratum.evidence())) for erratum in ERRATA.values()]
    return list_table("Errata of the papers (python -m reproductions errata NAME shows one)", header, rows)


def verdict_text(evidence: Evidence) -> str:
    """The verdict, with the reason where nothing could be computed."""
    return f"{evidence.verdict}: {evidence.why}" if evidence.why else evidence.verdict


def account(erratum: Erratum) -> Iterator[RenderableType]:
    """One erratum, step by step."""
    evidence = erratum.evidence()
    yield Text(f"{erratum.name}: {erratum.title}", style="bold")
    yield _labelled({"where": f"{erratum.paper}: {erratum.place}", "printed": erratum.printed})
    if evidence.steps:
        table = Table("step")
        table.add_column("printed", justify="right")
        table.add_column("recomputed", justify="right")
        for step in evidence.steps:
            table.add_row(*map(escape, (step.what, value_text(step.printed), value_text(step.recomputed))))
        yield table
    fedmerit = erratum.fedmerit + (f" See docs/{erratum.see}." if erratum.see else "")
    yield _labelled({"follows": evidence.follows, "verdict": verdict_text(evidence), "fedmerit": fedmerit})


def _labelled(texts: Mapping[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def value_text(value: Value) -> str:
    """A number with five significant digits, integers in full; empty for None."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def as_dict(erratum: Erratum) -> dict[str, Any]:
    """Everything about one erratum, for JSON."""
    keys = ("name", "title", "paper", "place", "printed", "fedmerit", "see")
    return {key: getattr(erratum, key) for key in keys} | asdict(erratum.evidence())


def write_plot(path: Path, name: str | None) -> None:
    """Write the picture of finding 1, the only erratum that has one, to a new file."""
    if name != FINDING_1.name:
        way_out = f"python -m reproductions errata {FINDING_1.name} --plot FILE"
        raise ConfigError(f"--plot draws {FINDING_1.name} alone; got {name or 'no name'}: {way_out}")
    check_new_file(path)
    write_new_file(path, draw(sweep()))


def page() -> str:
    """The page docs/errata.md."""
    sections: dict[str, list[str]] = {title: [] for title in (WHOLE_TABLES, SINGLE_PLACES, NOT_COMPUTED)}
    for erratum in ERRATA.values():
        evidence = erratum.evidence()
        sections[_section(erratum, evidence)].append(_entry(erratum, evidence))
    parts = [part for title, entries in sections.items() for part in (f"## {title}", *entries)]
    return "\n\n".join([INTRO, *parts]) + "\n"


def _section(erratum: Erratum, evidence: Evidence) -> str:
    if evidence.verdict == "cannot be computed":
        return NOT_COMPUTED
    return WHOLE_TABLES if erratum.name.startswith("finding-") else SINGLE_PLACES


def _entry(erratum: Erratum, evidence: Evidence) -> str:
    other = f" **{verdict_text(evidence).capitalize()}.**" if evidence.verdict != "shown" else ""
    lines = [f"- Claim ({erratum.paper}, {erratum.place}): {erratum.printed}", f"- Holds: {evidence.follows}{other}"]
    wrapped = [fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
    return "\n".join([f"### {erratum.name}: {erratum.title}", "", *wrapped])
