"""How large is the report of 1,000 clients x 500 rounds, and how soon is it there? Writes docs/results/report.md.

.venv/bin/python experiments/opening.py      # needs Chromium; minutes
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Browser, sync_playwright
from plotly.offline import get_plotlyjs

from fedmerit.config.schema import make_config
from fedmerit.core.scores import Prioritized
from fedmerit.core.state import Record
from fedmerit.core.types import Evaluation
from fedmerit.core.weights import weigh
from fedmerit.report.html import write_report
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import LEDGER, environment

PAGE = Path(__file__).parents[1] / "docs" / "results" / "report.md"
CLIENTS, ROUNDS, TIMES = 1000, 500, 9
DRAWN = (100, 1000)
PRIORITY = ("DS", "LD", "MW")
STAGES = ("shown", "drawn", "ready")
BARE = (
    '<!doctype html><meta charset="utf-8"><div id="plot" style="width:900px;height:400px"></div><script>{}</script>'
    '<script>Plotly.newPlot("plot", [{{ y: [1, 3, 2] }}]).then(() => {{'
    "document.documentElement.dataset.drawn = Math.round(performance.now()); }});</script>"
)
"""Plotly as it comes and three points: what a page has to wait for."""
TAIL = """
The first row is plotly's own start, which is most of the time to the first chart of any page that has it as it comes;
the report's is a little sooner there (`called_at_once` in report/html.py). So the report shows its text first, and
draws the charts in sight while the detail of a run, most of the file, is not unfolded yet.
"""
HEAD = """\
# The report: how large, how soon

    .venv/bin/python experiments/opening.py

A ledger of {clients:,} clients x {rounds} rounds (drawn by chance, 3 criteria, every client tested in every round),
its report opened {times} times in headless Chromium {version}, each time in a new window, on {cores} cores.
Milliseconds from the start of loading: median (least to largest). `text`: all text, tables and controls can be read;
`charts`: the charts in sight are drawn; `ready`: the detail of the chosen run is unfolded too.

| page | MB | text | charts | ready |
| --- | ---: | ---: | ---: | ---: |
"""


def main() -> None:
    """Make, open, write down."""
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
    PAGE.write_text(text + "\n".join(lines) + "\n" + TAIL)
    print("\n".join(lines))


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


def make_run(folder: Path, drawn: int) -> None:
    """A run's folder without the training."""
    folder.mkdir()
    recipe = {"name": "prioritized", "priority": list(PRIORITY), "normalise": "max"}
    config = make_config({"recipe": recipe, "run": {"rounds": ROUNDS}})
    meta = environment() | {"recipe": "Recipe(...)", "config": config.model_dump_json()}
    random = np.random.default_rng(1)
    samples, labels = random.integers(20, 900, CLIENTS).astype(float), random.integers(1, 62, CLIENTS).astype(float)
    sizes = random.integers(10, 60, CLIENTS)
    with Ledger.create(folder / LEDGER, [f"hospital-{i:04d}" for i in range(CLIENTS)], meta) as ledger:
        for index in range(1, ROUNDS + 1):
            ids = np.sort(random.choice(CLIENTS, drawn, replace=False))
            raw = np.column_stack([samples[ids], labels[ids], 1 / np.sqrt(1 + random.random(drawn))])
            weights = weigh(raw, PRIORITY, Prioritized(), "max", samples[ids])
            accuracy = np.clip(0.9 - 0.6 * np.exp(-index / 40) + random.normal(0, 0.05, CLIENTS), 0, 1)
            evaluation = Evaluation(random.binomial(sizes, accuracy), sizes)
            facts = {"samples": samples[ids], "labels": labels[ids]}
            clients = tuple(int(client) for client in ids)
            seconds = {"train": 1.5}
            ledger.append(Record(index, PRIORITY, clients, facts, weights, {}, evaluation, 1000, 900, seconds))


if __name__ == "__main__":
    main()
