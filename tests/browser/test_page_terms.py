"""The page's terms: what it says a score is made of is what Python says, in node with all digits and in the browser."""

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opened_report import Opened, check, go

from fedmerit.config.recipe import make_score, part_names
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.search.search import Weighting
from fedmerit.core.state import Record
from fedmerit.core.types import Groups, Matrix, Vector
from fedmerit.core.weights.scores import Prioritized, Ranked, Score, Terms, explain_score
from fedmerit.core.weights.weigh import concat_groups, weigh
from fedmerit.report.html import write_report
from fedmerit.store.ledger import Ledger
from fedmerit.store.reasons import client_lines, reason_of
from fedmerit.store.run_folder import LEDGER, environment, open_ledger

PRIORITY = ("DS", "LD", "MW")
SETTINGS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "lexicographic": ({},),
    "prioritized": ({}, {"rank": "borda"}, {"rank": "squared"}, {"rank": "exponential"}, {"rank": "top", "top": 0.4}),
    "weighted-mean": ({}, {"weights": (0.5, 0.3, 0.2)}),
    "product": ({}, {"rank": "borda"}),
    "owa": ({"weights": (0.2, 0.3, 0.5)},),
    "choquet": ({"shapley": (0.5, 0.3, 0.2), "interaction": ((0, 1, 0.1), (1, 2, -0.2))}, {"shapley": (0.5, 0.3, 0.2)}),
}
MADE: Mapping[str, Score] = {
    " ".join((name, *(f"{key}={value}" for key, value in options.items()))): make_score(
        {"name": name, **options}, PRIORITY
    )
    for name, settings in SETTINGS.items()
    for options in settings
} | {"ranks of ranks": Ranked(Ranked(Prioritized(), "top"), "squared")}
CLIENTS = 13
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class Own:
    """A user's own score, whose text would do harm if it were markup."""

    def __call__(self, table: Matrix) -> Vector:
        return np.asarray(table.max(axis=1))

    def __repr__(self) -> str:
        return '<img src="x" onerror="window.harmed = 1">'


def values(seed: int) -> Matrix:
    """A row per client: all in 0..1, with zeros, a row of zeros, and equal rows."""
    table = np.random.default_rng(seed).random((CLIENTS, len(PRIORITY)))
    table[1, 1] = table[2, 0] = table[3, 2] = 0
    table[5], table[8] = table[4], table[7]
    table[10] = 0
    return table


def same_text(shown: str, exact: str, **tolerance: float) -> None:
    """The same words and signs, and the same numbers within the tolerance."""
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", exact)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (shown, exact)]
    assert numbers[0] == pytest.approx(numbers[1], **tolerance)


def test_every_score_is_tried() -> None:
    assert set(SETTINGS) == set(part_names("score"))


def test_node_gives_the_terms_that_python_gives() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to run the page's terms: apt-get install nodejs")
    page = files("fedmerit.report") / "page"
    scripts = [(page / name).read_text(encoding="utf-8") for name in ("text.js", "terms.js")]
    cases = [(score, values(seed)) for score in MADE.values() for seed in range(3)]
    given = [{"score": json.loads(part_to_json(score)), "table": table.tolist()} for score, table in cases]
    explain = """
      const explained = ({ score, table }) => table.map((_, place) => {
        const terms = termsOf(score, table, place);
        return { ...terms, text: termsText(terms, terms.score) };
      });
      console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map(explained)));
    """
    answer = subprocess.run(
        [node, "--eval", "\n".join(("'use strict';", *scripts, explain))],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    for (score, table), clients in zip(cases, json.loads(answer.stdout), strict=True):
        for place, found in enumerate(clients):
            exact = explain_score(score, table, place)
            assert [term["value"] for term in found["terms"]] == pytest.approx(
                [term.value for term in exact.terms], abs=1e-9
            )
            assert found["join"] == exact.join
            assert (found["joined"], found["score"]) == pytest.approx((exact.joined, exact.score), abs=1e-9)
            assert (found["rank"] and tuple(found["rank"].values())) == exact.rank
            same_text(found["text"], str(exact), abs=6e-5, rel=6e-5)


def record(index: int, score: Score) -> Record:
    """A round of two groups, weighed by the score; the same values in each, so that another score changes none."""
    raw = values(1) * (500.0, 1.0, 0.02)
    groups = Groups(np.arange(CLIENTS) % 2, cut=1.0)
    parts = [weigh(raw[members], PRIORITY, score, "max") for members in groups.members]
    weights = concat_groups(parts, groups.members)
    facts, ids = {"samples": raw[:, 0]}, tuple(range(CLIENTS))
    weighting = Weighting(PRIORITY, score, "max")
    return Record(index, PRIORITY, ids, facts, weights, {}, None, 9, 9, {}, weighting, "DS > LD > MW", groups=groups)


ROUNDS = {name: index for index, name in enumerate((*MADE, "own", "other digits"), start=1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that scores by another score in each round; the scores of the last do not follow from its values."""
    folder = tmp_path_factory.mktemp("terms")
    with Ledger.create(folder / LEDGER, [f"c{i}" for i in range(CLIENTS)], environment()) as ledger:
        for index, score in enumerate((*MADE.values(), Own(), MADE["product"]), start=1):
            ledger.append(record(index, score))
    with sqlite3.connect(folder / LEDGER) as damaged:
        damaged.execute("UPDATE weights SET score = 1.02 * score WHERE round = ?", (ROUNDS["other digits"],))
    damaged.close()
    return folder


@pytest.fixture(scope="module")
def explained(chromium: Any, folder: Path) -> Iterator[Opened]:
    out = folder.parent / f"{folder.name}.html"
    write_report([folder], out)
    opened = go(chromium, out)
    yield opened
    check(opened)
    assert opened.page.evaluate("window.harmed") is None
    opened.page.context.close()


def shown_scores(opened: Opened, index: int) -> list[tuple[str, str]]:
    """What the page says of each client's score in a round, and why it has its weight."""
    pick = """async ([round, clients]) => {
        const choose = async (place, value) => {
            const select = document.getElementById(place);
            select.value = value;
            select.dispatchEvent(new Event("change"));
            await new Promise((chosen) => setTimeout(chosen));
        };
        const shown = [];
        await choose("explain-round", round);
        for (let client = 0; client < clients; client += 1) {
            await choose("explain-client", client);
            const says = document.getElementById("explain-says").innerText;
            if (!says.startsWith(`c${client} got `) || !says.includes(` in round ${round}`)) throw Error(says);
            const told = [...document.querySelectorAll("#explain-body .told li")].map((line) => line.innerText);
            shown.push([document.querySelector("#explain-body .formula span").innerText, [says, ...told].join("\\n")]);
        }
        return shown;
    }"""
    return [(score.removeprefix("score = "), why) for score, why in opened.page.evaluate(pick, [index, CLIENTS])]


def exact_terms(folder: Path, index: int) -> list[Terms | None]:
    with open_ledger(folder) as ledger:
        row, weights = ledger.rounds()[index - 1], ledger.weights(index)
    groups = [[client for client in weights if client.group == mine.group] for mine in weights]
    reasons = [reason_of(row, peers, peers.index(mine)) for mine, peers in zip(weights, groups, strict=True)]
    return [reason.terms if reason else None for reason in reasons]


@pytest.mark.parametrize("name", MADE)
def test_the_page_explains_each_score_as_the_command_line_does(explained: Opened, folder: Path, name: str) -> None:
    shown = shown_scores(explained, ROUNDS[name])
    for (score, _), exact in zip(shown, exact_terms(folder, ROUNDS[name]), strict=True):
        same_text(score, str(exact), abs=1.1e-4, rel=1e-4)  # the page has 4 to 6 digits
    with open_ledger(folder) as ledger:
        row = ledger.rounds()[ROUNDS[name] - 1]
        reasons = [client_lines(ledger, row, client) for client in range(CLIENTS)]
    for (_, why), lines in zip(shown, reasons, strict=True):
        told = "\n".join(line for line in lines if not line.startswith("Score: "))  # the page has that as its own line
        same_text(why, told, abs=0.011, rel=2e-4)


@pytest.mark.parametrize("name", ["own", "other digits"])
def test_a_score_that_cannot_be_explained_is_a_number_alone(explained: Opened, folder: Path, name: str) -> None:
    with open_ledger(folder) as ledger:
        exact = [client.score for client in ledger.weights(ROUNDS[name])]
    shown = shown_scores(explained, ROUNDS[name])
    alone = [text for (text, _), score in zip(shown, exact, strict=True) if score]  # 0 is 0 with any digits
    assert [float(text) for text in alone] == pytest.approx([score for score in exact if score], rel=1e-4)
