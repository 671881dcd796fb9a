"""How large is the report of 1,000 clients x 500 rounds, and how soon is it there? Prints a table.

python -m reproductions.experiments.opening  # needs Chromium; minutes
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright
from plotly.offline import get_plotlyjs

from fedmerit.report.html import write_report
from fedmerit.store.run_folder import environment
from reproductions.experiments.large_ledger import CLIENTS, DRAWN, ROUNDS, make_run

TIMES = 9
STAGES = ("shown", "drawn", "ready")
BARE = (
    '<!doctype html><meta charset="utf-8"><div id="plot" style="width:900px;height:400px"></div><script>{}</script>'
    '<script>Plotly.newPlot("plot", [{{ y: [1, 3, 2] }}]).then(() => {{'
    "document.documentElement.dataset.drawn = Math.round(performance.now()); }});</script>"
)
"""Plotly as it comes and three points: what a page has to wait for."""
HEAD = """\
# The report: how large, how soon

    python -m reproductions.experiments.opening

A ledger of {clients:,} clients x {rounds} rounds (drawn by chance, 3 criteria, every client tested in every round),
its report opened {times} times in headless Chromium {version}, each time in a new window, on {cores} cores.
Milliseconds from the start of loading: median (least to largest). `text`: all text, tables and controls can be read;
`charts`: the charts in sight are drawn; `ready`: the detail of the chosen run is unfolded too.

| page | MB | text | charts | ready |
| --- | ---: | ---: | ---: | ---: |
"""


def main() -> None:
    """Make, open, print."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("no chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        pages = make_pages(Path(scratch))
        browser = playwright.chromium.launch(executable_path=path)
        took: dict[str, list[dict[str, float]]] = {name: [] for name in pages}
        for _ in range(TIMES):  # in turns: the machine's noise falls on all
            for name, page in pages.items():
                took[name].append(opened(browser, page))
        lines = [line(name, pages[name], took[name]) for name in pages]
        cores = environment()["cores"]
        text = HEAD.format(clients=CLIENTS, rounds=ROUNDS, times=TIMES, version=browser.version, cores=cores)
        browser.close()
    print(text + "\n".join(lines))


def make_pages(folder: Path) -> dict[str, Path]:
    """The reports, and the bare page."""
    pages = {"plotly with three points, nothing else": folder / "bare.html"}
    pages["plotly with three points, nothing else"].write_text(BARE.format(get_plotlyjs()))
    for drawn in DRAWN:
        make_run(folder / str(drawn), drawn)
        pages[f"{drawn:,} of {CLIENTS:,} clients a round"] = out = folder / f"{drawn}.html"
        write_report([folder / str(drawn)], out)
    return pages


def opened(browser: Browser, page: Path) -> dict[str, float]:
    """Milliseconds to each stage, as the page itself says."""
    window = browser.new_page(viewport={"width": 1280, "height": 900})
    window.goto(page.as_uri())
    last = "drawn" if page.name == "bare.html" else "ready"
    window.locator(f"html[data-{last}]").wait_for(state="attached", timeout=60_000)
    found: dict[str, str] = window.evaluate("({ ...document.documentElement.dataset })")
    window.close()
    return {stage: float(found[stage]) for stage in STAGES if stage in found}


def line(name: str, page: Path, took: list[dict[str, float]]) -> str:
    """A row of the table."""
    cells = []
    for stage in STAGES:
        values = [one[stage] for one in took if stage in one]
        cells.append(f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else "")
    return f"| {name} | {page.stat().st_size / 1e6:.1f} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
