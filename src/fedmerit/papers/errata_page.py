"""Errata on the screen, for machines, and as the page docs/errata.md."""

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
from fedmerit.papers.errata import ERRATA
from fedmerit.papers.errata.entry import Erratum, Evidence, Value
from fedmerit.papers.errata.finding1 import FINDING_1, sweep
from fedmerit.papers.errata.plot import draw
from fedmerit.report.screen import list_table
from fedmerit.store.files import check_new_file, write_new_file

INTRO = """# Errata of the papers

What does not hold in the four papers that fedmerit builds on, recomputed from the numbers they print. Every entry below
is a command: `fedmerit errata NAME` shows the computation step by step, printed numbers beside recomputed ones;
`fedmerit errata` lists all with their verdict, `--json` is for machines. This page is what `fedmerit errata --markdown`
prints, so its numbers are computed too. The tables are in `fedmerit.papers.published`; formulas, and the choices made
where a paper is silent, are in [papers.md](papers.md).

- **PMCFL**: Anelli, Deldjoo, Di Noia, Ferrara, *Prioritized Multi-Criteria Federated Learning*
- **DAFL**: the same authors, *Towards Effective Device-Aware Federated Learning*
- **M2F**: Deng, Chen, Chan, Ngai, *M2F: Multi-centered Fairness-Aware Federated Learning Framework*
- **FedVal**: Mehrabi, de Lichy, McKay, He, Campbell, *Towards Multi-Objective Statistically Fair Federated Learning*
  (the poster)

Before you compare with a published table: use no averages of PMCFL's Table 6, no cells of its Tables 3, 5 and 7 beyond
the accuracies, and read gains of single rows as noise of several rounds (finding-4). Labels IS and CB (PMCFL, CelebA)
and Ld and Md (DAFL) are in doubt (finding-2, finding-5)."""


def overview() -> Table:
    """All of them with their verdicts, a line each."""
    header = ("erratum", "what", "verdict")
    rows = [(erratum.name, erratum.title, said(erratum.evidence())) for erratum in ERRATA.values()]
    return list_table("Errata of the papers (fedmerit errata NAME shows one)", header, rows)


def said(evidence: Evidence) -> str:
    """The verdict, with the reason where nothing could be computed."""
    return f"{evidence.verdict}: {evidence.why}" if evidence.why else evidence.verdict


def account(erratum: Erratum) -> Iterator[RenderableType]:
    """One of them, step by step."""
    evidence = erratum.evidence()
    yield Text(f"{erratum.name}: {erratum.title}", style="bold")
    yield _told({"where": f"{erratum.paper}: {erratum.place}", "printed": erratum.printed})
    if evidence.steps:
        grid = Table("step")
        grid.add_column("printed", justify="right")
        grid.add_column("recomputed", justify="right")
        for step in evidence.steps:
            grid.add_row(*map(escape, (step.what, shown_value(step.printed), shown_value(step.recomputed))))
        yield grid
    see = f" See docs/{erratum.see}." if erratum.see else ""
    yield _told({"follows": evidence.follows, "verdict": said(evidence), "fedmerit": erratum.fedmerit + see})


def _told(texts: Mapping[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def shown_value(value: Value) -> str:
    """A number with five digits that count, whole numbers in full; nothing for None."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def as_dict(erratum: Erratum) -> dict[str, Any]:
    """Everything about one, for machines."""
    kept = ("name", "title", "paper", "place", "printed", "fedmerit", "see")
    return {key: getattr(erratum, key) for key in kept} | asdict(erratum.evidence())


def write_plot(path: Path, name: str | None) -> None:
    """The picture of finding 1, the only one that has one, as a new file."""
    if name != FINDING_1.name:
        way_out = f"fedmerit errata {FINDING_1.name} --plot FILE"
        raise ConfigError(f"--plot draws {FINDING_1.name} alone; got {name or 'no name'}: {way_out}")
    check_new_file(path)
    write_new_file(path, draw(sweep()))


def page() -> str:
    """The page docs/errata.md."""
    told = [(erratum, erratum.evidence()) for erratum in ERRATA.values()]
    computed = [(one, evidence) for one, evidence in told if evidence.verdict != "cannot be computed"]
    parts = [INTRO, "## Findings that concern whole tables"]
    parts += [_entry(one, evidence) for one, evidence in computed if one.name.startswith("finding-")]
    parts.append("## Single places")
    parts += [_entry(one, evidence) for one, evidence in computed if not one.name.startswith("finding-")]
    parts.append("## What cannot be computed")
    parts += [_entry(one, evidence) for one, evidence in told if (one, evidence) not in computed]
    return "\n\n".join(parts) + "\n"


def _entry(erratum: Erratum, evidence: Evidence) -> str:
    link = f" See [{erratum.see.partition('#')[0]}]({erratum.see})." if erratum.see else ""
    lines = [
        f"- Where: {erratum.paper}: {erratum.place}. Verdict: **{said(evidence)}**.",
        f"- Printed: {erratum.printed}",
        f"- {'Comes out' if evidence.steps else 'Follows'}: {evidence.follows}",
        f"- fedmerit: {erratum.fedmerit}{link}",
    ]
    wrapped = [fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
    return "\n".join([f"### {erratum.name}: {erratum.title}", "", *wrapped])
