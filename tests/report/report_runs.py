"""Run folders for the report's tests: small ledgers with all that can happen in a round."""

import html.parser
import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import decompress

import numpy as np

from fedmerit import Prioritized, weigh
from fedmerit.config.schema import make_config
from fedmerit.core.state import Record
from fedmerit.core.types import Evaluation
from fedmerit.report.data import collect
from fedmerit.report.html import embed
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import LEDGER, environment

PRIORITY = ("DS", "MW")
HOSTILE = (
    "<script>alert(1)</script>",
    "__proto__",
    "</script>",
    "x" * 10_000,
    '<a href="http://evil.example/">here</a>',
    "&amp;\u2028\u2029\u202e",
    "<!--",
)


def make_run(
    folder: Path,
    names: Sequence[str] = ("a", "b", "c", "d"),
    rounds: int = 4,
    drawn: int = 3,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A run of four rounds in which client 0 is left out of round 1 and nobody can be weighed in round 2."""
    folder.mkdir(parents=True)
    recipe = {"name": "prioritized", "criteria": list(PRIORITY), "normalise": "sum"}
    config = make_config({"recipe": recipe, "run": {"rounds": 4, "seed": seed}} | (settings or {}))
    meta = environment() | {"recipe": "Recipe(...)", "config": config.model_dump_json()}
    ledger = Ledger.create(folder / LEDGER, names, meta)
    rng = np.random.default_rng(len(names) + seed)
    for index in range(1, rounds + 1):
        ledger.append(make_record(rng, index, len(names), drawn))
    ledger.close()
    return folder


def make_record(rng: np.random.Generator, index: int, clients: int, drawn: int) -> Record:
    ids = np.sort(rng.choice(clients, drawn, replace=False))
    left_out = {0: "update holds NaN or infinity"} if index == 1 else {}
    ids = ids[~np.isin(ids, list(left_out))]
    facts = {"samples": rng.integers(1, 900, len(ids)).astype(float)}
    raw = np.column_stack([facts["samples"], 1 / np.sqrt(1 + rng.random(len(ids)))])
    weights = None if index == 2 else weigh(raw, PRIORITY, Prioritized(), "sum", facts["samples"])
    sizes = rng.integers(10, 60, clients)
    tested = Evaluation(rng.binomial(sizes, min(0.5 + 0.1 * index, 0.9)), sizes)
    kept = () if weights is None else tuple(int(i) for i in ids)
    seconds = {"train": 1.5, "weigh": 0.25}
    return Record(index, PRIORITY, kept, facts, weights, left_out, tested, 1000, 900, seconds)


def inflated(text: str) -> str:
    """What inflate.js makes of a text in the page."""
    return decompress(b64decode(text)).decode()


def unpacked(text: str) -> dict[str, Any]:
    return json.loads(inflated(text))


def collected(*folders: Path, budget: int = 10**9) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """What a page shows of all runs, and the details by run."""
    page, details = collect(folders, budget, embed)
    return json.loads(json.dumps(page)), {run: unpacked(text) for run, text in details.items()}


class Page(html.parser.HTMLParser):
    """What a browser's parser makes of a report: its elements, its scripts, its embedded data."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._script: str | None = None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    @property
    def data(self) -> dict[str, Any]:
        return unpacked(self.scripts["data"])

    def detail(self, run: int) -> dict[str, Any]:
        return unpacked(self.scripts[f"run-{run}"])

    def ids(self) -> set[str]:
        return {value for _, attributes in self.elements if (value := attributes.get("id"))}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id") or "main"
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] += data
        else:
            self.text += data
