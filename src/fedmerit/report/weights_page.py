"""A page of weights: a table of clients with a reason in words for each; one file that opens offline."""

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedmerit.core.criteria.table import display_name
from fedmerit.core.reasons import Reason, percent
from fedmerit.core.weights.weigh import Weights
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.study.text_table import TextTable

STYLE = """<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; overflow-wrap: anywhere;
  padding: 0 1rem }
h2 { font-size: 1.2rem; margin: 1.5rem 0 .5rem }
p, ul { margin: .5rem 0 }
table { border-collapse: collapse; display: block; margin: .5rem 0; overflow-x: auto }
caption { font-weight: 600; min-width: min(24rem, 85vw); padding: .5rem 0; text-align: left }
td, th { border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .25rem .75rem;
  text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
dt { font-weight: 600; margin-top: 1rem }
dd { margin: 0 }
</style>"""


def write_weights_page(
    out: Path,
    title: str,
    priority: Sequence[str],
    clients: Sequence[str],
    result: Weights,
    reasons: Mapping[int, Reason],
    *,
    force: bool = False,
) -> None:
    """Write a new file with all weights, and with the reasons that are given."""
    check_new_file(out, "another --html", force=force)
    header = ("client", *map(display_name, priority), "score", "weight")
    rows = [
        (clients[place], *(f"{value:.5g}" for value in raw), f"{result.scores[place]:.5g}", percent(weight))
        for place, (raw, weight) in enumerate(zip(result.raw, result.weights.tolist(), strict=True))
    ]
    table = TextTable(title, header, tuple(rows), tuple(note.text for note in result.notes)).html()
    body = f"<h1>Weights of {len(clients):,} clients</h1>{table}{''.join(_reasons(clients, reasons))}"
    write_new_file(out, page_html("Weights", body), "another --html")


def page_html(title: str, body: str) -> str:
    """Make a plain page that opens offline."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>{STYLE}'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main></body></html>'


def _reasons(clients: Sequence[str], reasons: Mapping[int, Reason]) -> Iterator[str]:
    if not reasons:
        return
    yield "<h2>Why</h2><dl>"
    for place, reason in reasons.items():
        lines = "".join(f"<dd>{html.escape(line)}</dd>" for line in reason.lines(clients[place]))
        yield f"<dt>{html.escape(clients[place])}</dt>{lines}"
    yield "</dl>"
