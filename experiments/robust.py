"""What do attackers do to recipes? Ten clients of digits, two or four of them attackers, every attack on every recipe.

.venv/bin/python experiments/robust.py run --seeds 1,2,3,4,5    # resumes what was stopped
.venv/bin/python experiments/robust.py cost                      # seconds and memory of 100 updates of 6.6 million
.venv/bin/python experiments/robust.py tell                      # writes the figures into docs/results/robust.md
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit import Recipe, Samples, Task, fedavg, fedval, guarded, load_task
from fedmerit.core.aggregators import (
    NNM,
    Aggregator,
    Bucketing,
    CoordinateMedian,
    GeometricMedian,
    Mean,
    MultiKrum,
    TrimmedMean,
)
from fedmerit.core.facts import measure
from fedmerit.core.learner import BatchedLearner
from fedmerit.core.round import settle
from fedmerit.core.seeds import derive, generator
from fedmerit.core.state import Clock, State
from fedmerit.core.types import Evaluation, Model, Replies
from fedmerit.core.updates import Updates

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "runs" / "robust", ROOT / "docs" / "results" / "robust.md"
CLIENTS, ROUNDS, LAST, TARGET = 10, 25, 3, 0
NEED_ROWS = ("fedval, top half", "fedval, top half by gain")
SHARES = (0.2, 0.4)
SETTINGS: Mapping[str, float] = {"alpha 0.5": 0.5, "alike": 100.0}
"""How unlike the clients' labels are: Dirichlet 0.5, or nearly the same everywhere."""

Rows = NDArray[np.float32]
Attack = Callable[[Rows, Rows, np.random.Generator], Rows]
"""From the honest updates and what the attackers trained themselves to what the attackers send."""


def gauss(honest: Rows, own: Rows, random: np.random.Generator) -> Rows:
    """Noise, ten times as long as an honest update."""
    noise = random.normal(size=own.shape)
    length = 10 * np.linalg.norm(honest, axis=1).mean()
    return np.asarray(noise / np.linalg.norm(noise, axis=1, keepdims=True) * length, dtype=np.float32)


def alie(honest: Rows, own: Rows, random: np.random.Generator) -> Rows:
    """A little is enough: the honest mean less 1.5 standard deviations, in each coordinate."""
    return np.tile(honest.mean(axis=0) - np.float32(1.5) * honest.std(axis=0), (len(own), 1))


ATTACKS: Mapping[str, Attack] = {
    "none": lambda honest, own, random: own,
    "sign-flip": lambda honest, own, random: -own,
    "scale": lambda honest, own, random: np.float32(10) * own,
    "gauss": gauss,
    "alie": alie,
    "ipm": lambda honest, own, random: np.tile(np.float32(-0.5) * honest.mean(axis=0), (len(own), 1)),
    "label-flip": lambda honest, own, random: own,
    "backdoor": lambda honest, own, random: own,
    "free-rider": lambda honest, own, random: np.zeros_like(own),
}
"""Label flippers and backdoors train on rows of their making, see `poisoned`, and send what they learn."""


def recipes(share: float) -> dict[str, Recipe]:
    """By name; the published rules are told the true share of attackers, ours is not."""
    known: dict[str, Aggregator] = {
        "median": CoordinateMedian(),
        "trimmed mean": TrimmedMean(share),
        "multi-Krum": MultiKrum(share),
        "NNM + trimmed mean": NNM(TrimmedMean(share), share),
    }
    return {
        "fedavg": fedavg(),
        **{name: replace(fedavg(), aggregate=aggregator) for name, aggregator in known.items()},
        "guarded": guarded(),
        "fedval, top half": fedval("accuracy", rank="top"),
        "fedval, top half by gain": fedval("accuracy", rank="top", marginal=True),
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: accuracy and backdoor success after it, and the weight that attackers held, mean over rounds."""

    setting: str
    recipe: str
    attack: str
    share: float
    seed: int
    accuracy: float
    success: float
    held: float


@cache
def task(alpha: float, seed: int) -> Task:
    """Digits on ten clients; the server keeps 200 rows, for the recipes that ask it."""
    train = {"lr": 0.5, "epochs": 5}
    return load_task("digits", clients=CLIENTS, partition="dirichlet", alpha=alpha, server=200, seed=seed, train=train)


def triggered(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A bright corner of four pixels."""
    marked = x.copy()
    marked[:, -2:, -2:] = 255
    return marked


def poisoned(rows: Samples, attack: str) -> Samples:
    """The rows on which an attacker trains."""
    if attack == "label-flip":
        return replace(rows, y=rows.classes - 1 - rows.y)
    if attack == "backdoor":
        half = np.arange(len(rows)) % 2 == 0
        x = np.where(half[:, None, None, None], triggered(rows.x), rows.x)
        return replace(rows, x=x, y=np.where(half, TARGET, rows.y))
    return rows


def played(setting: str, name: str, recipe: Recipe, attack: str, share: float, seed: int) -> Outcome:
    """One run of one recipe under one attack."""
    made = task(SETTINGS[setting], seed)
    learner, data, server = made.learner, made.federation, made.server()
    assert isinstance(learner, BatchedLearner)
    number = 0 if attack == "none" else round(share * CLIENTS)
    bad = np.isin(np.arange(CLIENTS), generator(seed, "attackers").permutation(CLIENTS)[:number])
    rows = [poisoned(data.samples(i), attack) if bad[i] else data.samples(i) for i in range(CLIENTS)]
    facts = tuple(measure(data.samples(i), recipe.client_facts) for i in range(CLIENTS))
    state, accuracies, held = State(learner.start(seed)), [], []
    for index in range(1, ROUNDS + 1):
        seeds = [derive(seed, "train", index, client) for client in range(CLIENTS)]
        updates = np.stack(learner.train_batched([state.model] * CLIENTS, rows, seeds, [None] * CLIENTS)) - state.model
        if bad.any():
            updates[bad] = ATTACKS[attack](updates[~bad], updates[bad], generator(seed, "attack", index))
        replies = Replies(tuple(range(CLIENTS)), Updates(updates), facts)
        settled = settle(state, recipe, replies, judges=Nobody(), predict=server.predict, seed=seed, clock=Clock())
        state, candidate = settled.state, settled.aggregation.candidate
        right = learner.predict(state.model, data.test.x) == data.test.y
        accuracies.append(float(right.mean()))
        if candidate is not None and len(settled.cohort.ids) == CLIENTS:
            held.append(float(candidate.weights.weights[bad].sum()))
    others = data.test.y != TARGET
    success = float((learner.predict(state.model, triggered(data.test.x[others])) == TARGET).mean())
    return Outcome(setting, name, attack, share, seed, fmean(accuracies[-LAST:]), success, fmean(held or [0.0]))


class Nobody:
    """No client is asked about models here."""

    def judges(self) -> Sequence[int]:
        """None."""
        return ()

    def evaluate(
        self, models: Sequence[Model], on: object = "test", clients: object = None, *, losses: bool = False
    ) -> Sequence[Evaluation]:
        """Never called: no recipe searches."""
        raise NotImplementedError


def grid(seeds: Sequence[int]) -> Iterator[tuple[str, str, Recipe, str, float, int]]:
    """All runs."""
    for seed in seeds:
        for setting in SETTINGS:
            for share in SHARES:
                for name, recipe in recipes(share).items():
                    for attack in ATTACKS:
                        if attack != "none" or share == SHARES[0]:
                            yield setting, name, recipe, attack, share, seed


def kept() -> list[Outcome]:
    """What was run so far."""
    lines = [line for path in sorted(KEPT.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [Outcome(**json.loads(line)) for line in lines]


def run(seeds: Sequence[int]) -> None:
    """Runs that are not there yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    there = {(one.setting, one.recipe, one.attack, one.share, one.seed) for one in kept()}
    for setting, name, recipe, attack, share, seed in grid(seeds):
        if (setting, name, attack, share, seed) not in there:
            outcome = played(setting, name, recipe, attack, share, seed)
            with (KEPT / f"{seed}.jsonl").open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")


def mean_of(outcomes: Sequence[Outcome], what: str) -> float:
    """In percent, over seeds."""
    return 100 * fmean(getattr(one, what) for one in outcomes)


def table(outcomes: Sequence[Outcome], setting: str, share: float) -> Iterator[str]:
    """A line per recipe, a column per attack; then the worst, the backdoor's success, the weight of free riders."""
    attacks = list(ATTACKS)
    yield "| recipe | " + " | ".join(attacks) + " | **worst** | backdoor success | free riders hold |"
    yield "| --- |" + " ---: |" * (len(attacks) + 3)
    for name in recipes(share):
        mine = [one for one in outcomes if (one.setting, one.recipe) == (setting, name)]
        cells = {
            attack: [one for one in mine if one.attack == attack and (one.share == share or attack == "none")]
            for attack in attacks
        }
        if not all(cells.values()):
            continue
        accuracies = [mean_of(cell, "accuracy") for cell in cells.values()]
        shown = " | ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        success, held = mean_of(cells["backdoor"], "success"), mean_of(cells["free-rider"], "held")
        mark = " *" if name in NEED_ROWS else ""
        yield f"| {name}{mark} | {shown} | **{min(accuracies):.1f}** | {success:.1f} | {held:.1f} |"


def tell() -> None:
    """The part of the page that figures make, between its two marks."""
    outcomes = kept()
    seeds = sorted({one.seed for one in outcomes})
    lines = [f"Seeds {', '.join(map(str, seeds))}; {len(outcomes)} runs.", ""]
    for setting in SETTINGS:
        for share in SHARES:
            lines += [f"### {setting}, {share:.0%} attackers", "", *table(outcomes, setting, share), ""]
    lines += ["## Seconds and memory", "", *cost_table(), ""] if (KEPT / "cost.json").exists() else []
    begin, end = "<!-- figures -->\n", "<!-- end of figures -->\n"
    head, tail = PAGE.read_text().split(begin)[0], PAGE.read_text().split(end)[1]
    PAGE.write_text(head + begin + "\n".join(lines) + end + tail)


def costs() -> dict[str, Aggregator]:
    """What is timed."""
    return {
        "mean": Mean(),
        "geometric median": GeometricMedian(),
        "multi-Krum": MultiKrum(0.2),
        "median": CoordinateMedian(),
        "trimmed mean": TrimmedMean(0.2),
        "NNM + trimmed mean": NNM(TrimmedMean(0.2), 0.2),
        "bucketing + median": Bucketing(CoordinateMedian()),
    }


LARGE: list[NDArray[np.float32]] = []
"""The matrix that `timed` reads, in processes that inherit it."""


def timed(name: str, equal: bool) -> tuple[float, float]:
    """Seconds, and megabytes beyond the matrix, of one aggregator; in a process of its own."""
    rows = LARGE[0]
    weights = np.ones(len(rows)) if equal else generator(0, "weights").random(len(rows))
    rows.max()  # all pages are there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = perf_counter()
    costs()[name](Updates(rows), weights / weights.sum())
    seconds = perf_counter() - begun
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def cost() -> None:
    """100 updates of 6.6 million values: 2.5 GB."""
    rows = np.empty((100, 6_600_000), np.float32)
    drawn = generator(0, "rows").standard_normal(2 * rows.shape[1], dtype=np.float32)
    for place, row in enumerate(rows):  # drawing all of them would take longer than the rest
        row[:] = drawn[place * 50_021 :][: len(row)]
    LARGE.append(rows)
    KEPT.mkdir(parents=True, exist_ok=True)
    target = KEPT / "cost.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name, equal in ((name, equal) for name in costs() for equal in (True, False)):
        label = f"{name}, {'equal' if equal else 'other'} weights"
        if label not in found:
            with get_context("fork").Pool(1) as pool:
                found[label] = pool.apply(timed, (name, equal))
            target.write_text(json.dumps(found, indent=1))


def cost_table() -> Iterator[str]:
    """A line per aggregator."""
    found = json.loads((KEPT / "cost.json").read_text())
    yield "| aggregator | seconds | MB beyond the updates |"
    yield "| --- | ---: | ---: |"
    for name, (seconds, megabytes) in found.items():
        yield f"| {name} | {seconds:.1f} | {megabytes:.0f} |"


def main() -> None:
    """Run, measure the cost, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "cost", "tell"))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    options = parser.parse_args()
    if options.what == "tell":
        tell()
    elif options.what == "cost":
        cost()
    else:
        run([int(seed) for seed in options.seeds.split(",")])


if __name__ == "__main__":
    main()
