"""Are rewards fair and worth having? Shares by contribution against gains over training alone, on three data sets.

FEDMERIT_DATA=... python -m reproductions.experiments.worth run  # about an hour; goes on where it was stopped
python -m reproductions.experiments.worth tell                   # prints the tables

Ten parties with unequal rows of Adult, ten with unequal rows and labels of MNIST, the four hospitals of Heart. What a
client brings is its Shapley value over FedAvg's run of the same seed, by accuracy on rows that the server keeps.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize

from fedmerit import Recipe, Run, Task, TopShare, fedavg, federate, load_task
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.table import DATA_RATIO
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.rewards import Whole
from fedmerit.core.recipes import ALWAYS, cosine_rewards, standalone
from fedmerit.core.seeds import generator
from fedmerit.core.system import instruction_set, processor
from fedmerit.core.types import Personal, Vector
from fedmerit.core.weights.scores import Product
from fedmerit.errors import NoteWarning
from fedmerit.tasks.federation import Split

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "worth"
ROUNDS, FINISH, TESTED = 20, 2, 2000
CHOOSING, SEEDS = (11,), (1, 2, 3, 4, 5)
ADULT_SIZES = (20, 30, 45, 70, 105, 160, 240, 360, 550, 820)
MNIST_SIZES = (60, 90, 120, 180, 240, 320, 420, 550, 700, 900)
MNIST_LABELS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 10)
MEASURED = (11, 1, 2)
"""Seeds with Shapley values on MNIST, which take longer there than all else."""
FAIR = 0.9
"""The correlation that is asked for."""


def shares(reward: TopShare | Whole, until: int | None = None, training: Personal = "reset") -> Recipe:
    """Models move by rewards alone; merit is the dataset size."""
    models = PersonalModels(reward=reward, sigma=ALWAYS, training=training, until=until)
    return Recipe((DATA_RATIO,), Product(), "max", models=models)


ALONE_FROM = ROUNDS - FINISH
ROWS: Mapping[str, Recipe] = {
    "standalone": standalone(),
    "FedAvg": replace(fedavg(), stages=(Contribution("shapley"),)),
    "FedAvg, finished alone": shares(Whole(), ALONE_FROM),
    "M2F's shares, own training kept": shares(TopShare("sum"), training="keep"),
    "rewards by cosine, after CGSV": cosine_rewards(),
    "size": shares(TopShare("max")),
    "size, finished": shares(TopShare("max"), ALONE_FROM),
}


def cut(task: Task, sizes: Sequence[int], labels: Sequence[int], seed: int) -> Task:
    """Client k keeps `sizes[k]` of its rows, of `labels[k]` classes; all are tested on the same rows."""
    data = task.federation
    train, test, rows = data.train, data.test, []
    for client, (size, number) in enumerate(zip(sizes, labels, strict=True)):
        random = generator(seed, "worth", client)
        kept = random.permutation(np.unique(train.y))[:number]
        mine = np.arange(train.offsets[client], train.offsets[client + 1])
        mine = mine[np.isin(train.y[mine], kept)]
        rows.append(np.sort(random.permutation(mine)[:size]))
    tested = np.sort(generator(seed, "worth test").permutation(len(test.y))[:TESTED])
    return Task(replace(data, train=chosen(train, rows), test=chosen(test, [tested] * len(sizes))), task.learner)


def chosen(split: Split, rows: Sequence[NDArray[np.int64]]) -> Split:
    """These rows, client by client."""
    places = np.concatenate(rows)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in rows])]).astype(np.int64)
    return Split(split.x[places], split.y[places], offsets)


@cache
def task_of(data: str, seed: int) -> Task:
    """The clients of a data set."""
    if data == "Heart":
        return load_task("heart-disease", seed=seed, server=60, train={"lr": 0.01, "epochs": 2, "batch": 4})
    name, epochs = data.lower(), {"Adult": 1, "MNIST": 2}[data]
    model = f"{name}-mlp"
    settings = {"lr": 0.1, "epochs": epochs, "batch": 16}
    task = load_task(name, clients=10, partition="iid", server=500, seed=seed, model=model, train=settings)
    if data == "Adult":
        return cut(task, ADULT_SIZES, [2] * 10, seed)
    return cut(task, MNIST_SIZES, MNIST_LABELS, seed)


DATA = ("Adult", "MNIST", "Heart")


def place_of(data: str, row: str, seed: int) -> Path:
    """The file of a run's figures."""
    return RUNS / f"{data}-{row}-{seed}.json".replace(" ", "_").replace(",", "")


def play(data: str, row: str, seed: int) -> None:
    """One run, unless its figures are there."""
    path = place_of(data, row, seed)
    if path.exists():
        return
    recipe = ROWS[row] if data != "MNIST" or seed in MEASURED else replace(ROWS[row], stages=())
    run = federate(task_of(data, seed), recipe, rounds=ROUNDS, fraction=1.0, seed=seed, evaluate_every=ROUNDS)
    figures = {"final": run.local_accuracy[-1].tolist(), "contribution": brought(run)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures))
    print(path.stem, f"{np.mean(figures['final']):.3f}", flush=True)


def brought(run: Run) -> list[float]:
    """The Shapley values over all rounds, where they were measured."""
    totals = np.zeros(len(run.ledger.names()))
    for index in range(1, ROUNDS + 1):
        for one in run.explain(index):
            totals[one.id] += one.facts.get("contribution:shapley", 0.0)
    return [float(value) for value in totals]


def figures_of(data: str, row: str, seed: int, what: str) -> Vector:
    """What a run left, by client."""
    return np.array(json.loads(place_of(data, row, seed).read_text())[what])


@dataclass(frozen=True, slots=True)
class Gains:
    """Contribution, accuracy of training alone and final accuracy of each client.

    >>> gains = Gains(np.array([1.0, 2, 3]), np.array([0.5, 0.6, 0.7]), np.array([0.6, 0.8, 0.6]))
    >>> gains.gain.round(2).tolist(), gains.below
    ([0.1, 0.2, -0.1], (2,))
    """

    contribution: Vector
    standalone: Vector
    final: Vector

    @property
    def gain(self) -> Vector:
        """Final accuracy minus accuracy alone."""
        return self.final - self.standalone

    @property
    def below(self) -> tuple[int, ...]:
        """Clients whose final accuracy is below their accuracy alone."""
        return tuple(np.flatnonzero(self.gain < 0).tolist())

    @property
    def measures(self) -> dict[str, float]:
        """Mean and standard deviation of the gains [CYCle], and Pearson's correlations; NaN if undefined.

        `pearson_standalone` is what [RFFL] and [CGSV] call fairness.
        """
        return {
            "pearson": correlation(self.contribution, self.gain),
            "pearson_final": correlation(self.contribution, self.final),
            "pearson_standalone": correlation(self.standalone, self.final),
            "mean": float(self.gain.mean()),
            "spread": float(self.gain.std()),
        }


def correlation(x: Vector, y: Vector) -> float:
    """Pearson's correlation; NaN if x or y is constant.

    >>> round(correlation(np.array([1.0, 2, 4]), np.array([1.0, 2, 3])), 3)
    0.982
    """
    return float(stats.pearsonr(x, y).statistic) if np.ptp(x) and np.ptp(y) else math.nan


def gains(data: str, row: str, seed: int) -> Gains:
    """What clients gained over being alone, beside what they brought to FedAvg."""
    alone, ended = (figures_of(data, name, seed, "final") for name in ("standalone", row))
    return Gains(figures_of(data, "FedAvg", seed, "contribution"), alone, ended)


def most_gain(of: Gains, room: Vector, *, final: bool) -> float:
    """The largest mean gain that any rewards could give with a correlation of FAIR or more.

    Gains lie between 0 and `room`, what FedAvg gives; correlated with contribution are the gains themselves or, with
    `final`, the accuracies at the end. The correlation's bound is a cone, so that the maximum is a convex problem.
    """
    room = np.maximum(room, 0.0)
    centred = of.contribution - of.contribution.mean()
    direction = centred / max(float(np.linalg.norm(centred)), 1e-12)
    offset = of.standalone if final else np.zeros(len(room))

    def slack(gain: Vector) -> float:
        values = gain + offset
        deviation = values - values.mean()
        return float(direction @ deviation - FAIR * math.sqrt(float(deviation @ deviation) + 1e-12))

    starts = [room * share for share in (0.0, 0.1, 0.5)] + [room.min() * (centred - centred.min()) / np.ptp(centred)]
    best = math.nan
    for start in starts:
        found = minimize(
            lambda gain: -float(gain.mean()),
            start,
            method="SLSQP",
            bounds=[(0.0, float(one)) for one in room],
            constraints=[{"type": "ineq", "fun": slack}],
            options={"maxiter": 500},
        )
        if slack(found.x) > -1e-6:
            best = max(-found.fun, best) if not math.isnan(best) else -found.fun
    return best


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    if parser.parse_args().what == "tell":
        print("\n".join(page()))
        return
    warnings.simplefilter("ignore", NoteWarning)
    (RUNS / "machine").parent.mkdir(parents=True, exist_ok=True)
    (RUNS / "machine").write_text(f"{processor()}, {instruction_set()}")
    for seed in (*CHOOSING, *SEEDS):
        for data in DATA:
            for row in ROWS:
                play(data, row, seed)
        task_of.cache_clear()


@dataclass(frozen=True, slots=True)
class Line:
    """A row's figures over seeds."""

    of: Sequence[Gains]

    def mean(self, what: str) -> float:
        """The mean over seeds of a measure of the gains."""
        values = [value for one in self.of if not math.isnan(value := one.measures[what])]
        return float(np.mean(values)) if values else math.nan

    def interval(self, what: str) -> float:
        """Half of Student's 95 % interval of that mean."""
        values = np.array([one.measures[what] for one in self.of], dtype=np.float64)
        values = values[~np.isnan(values)]
        if len(values) < 2:
            return math.nan
        return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))

    @property
    def below(self) -> float:
        """Clients below standalone in a seed, in the mean."""
        return float(np.mean([len(one.below) for one in self.of]))

    @property
    def known(self) -> int:
        """Seeds in which the correlations exist: where all end alike there is none."""
        return sum(not math.isnan(one.measures["pearson_final"]) for one in self.of)


def line(data: str, row: str, seeds: Sequence[int]) -> Line:
    """The figures of a row, of the seeds that were run."""
    needed = ("standalone", "FedAvg", row)
    there = [seed for seed in seeds if all(place_of(data, name, seed).exists() for name in needed)]
    return Line([gains(data, row, seed) for seed in there])


def chosen_row(data: str) -> str:
    """On the choosing seed: of the rows with half of FedAvg's gain, fewest below alone, then nearest to FAIR or above.

    Fair is what CFFL, RFFL and CGSV call so: the correlation of accuracy alone with accuracy at the end.
    """
    base = line(data, "FedAvg", CHOOSING).mean("mean")

    def merit(row: str) -> tuple[bool, float, float, float]:
        figures = line(data, row, CHOOSING)
        fair = figures.mean("pearson_standalone") if figures.known else -1.0
        return figures.mean("mean") >= max(base / 2, 0.0), -figures.below, min(fair, FAIR), figures.mean("mean")

    return max((row for row in ROWS if row not in ("standalone", "FedAvg")), key=merit)


def page() -> Iterator[str]:
    """What was run, as a page."""
    yield from (
        "# Worth: are rewards fair and worth having?",
        "",
        *(f"    {text}" for text in (__doc__ or "").splitlines()[2:4]),
        "",
        f"{ROUNDS} rounds, everybody takes part, paired seeds from 1 on, as many as the column says;",
        f"{(RUNS / 'machine').read_text()}; learning rates 0.1 and 0.01 (Heart), not tuned.",
        f"Adult: 10 parties with {ADULT_SIZES[0]} to {ADULT_SIZES[-1]} rows; MNIST: 10 with {MNIST_SIZES[0]} to",
        f"{MNIST_SIZES[-1]} rows of {MNIST_LABELS[0]} to {MNIST_LABELS[-1]} classes; each tested on the same",
        f"{TESTED:,} rows; small MLPs. Heart: FLamby's four hospitals, logistic regression, each tested on its own 16",
        "to 104 rows.",
        "",
        "- *contribution*: the Shapley value over FedAvg's rounds, accuracy on the server's rows (500; Heart 60)",
        "- *gain*: accuracy at the end minus accuracy alone (row standalone: same learner, rounds and epochs)",
        "- *size*: merit is the dataset size; shares of the aggregate's largest entries are merit / best, and a model",
        f"  moves by its reward alone; *finished*: the last {FINISH} of the {ROUNDS} rounds everybody trains on alone",
        "- r: Pearson's correlation; +- is half of the 95 % interval over seeds; a dash: all clients end alike",
        "",
    )
    for data in DATA:
        yield from section(data)


def section(data: str) -> Iterator[str]:
    """A data set's table, what could be had at most, and what was met."""
    picked, base = chosen_row(data), line(data, "FedAvg", SEEDS)
    yield from (f"## {data}", "")
    header = ("row", "seeds", "accuracy", "mean gain", "spread", "below alone", "r contribution, gain")
    yield "| " + " | ".join((*header, "r contribution, final", "r alone, final")) + " |"
    yield "| --- |" + " ---: |" * 8
    for row in ROWS:
        figures = line(data, row, SEEDS)
        accuracy = np.mean([one.final.mean() for one in figures.of])
        cells = [
            f"**{row}**" if row == picked else row,
            str(len(figures.of)),
            f"{accuracy:.3f}",
            f"{figures.mean('mean'):+.3f} +- {figures.interval('mean'):.3f}",
            f"{figures.mean('spread'):.3f}",
            f"{figures.below:.1f}",
            *(told(figures, what) for what in ("pearson", "pearson_final", "pearson_standalone")),
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield from verdict(data, picked, base)


def told(figures: Line, what: str) -> str:
    """A correlation with its interval."""
    if all(math.isnan(one.measures[what]) for one in figures.of):
        return "-"
    return f"{figures.mean(what):+.2f} +- {figures.interval(what):.2f}"


def verdict(data: str, picked: str, base: Line) -> Iterator[str]:
    """The three demands of the row that the choosing seeds picked, and what any rewards could reach."""
    ours = line(data, picked, SEEDS)
    kept = ours.mean("mean") / base.mean("mean") if base.mean("mean") > 0 else math.nan
    most = {final: [most_gain(one, one.gain, final=final) for one in base.of] for final in (False, True)}
    yield from (
        f"In bold: the row that seed {', '.join(map(str, CHOOSING))} picked (half of FedAvg's gain, then fewest below",
        f"alone, then r(alone, final) up to {FAIR:.1f}, then gain). On the {len(ours.of)} others:",
        f"r(alone, final) {told(ours, 'pearson_standalone')}, asked {FAIR:.1f}; mean gain {ours.mean('mean'):+.3f},",
        f"FedAvg's {base.mean('mean'):+.3f}"
        + (f" ({kept:.0%} of it, asked 50 %)" if not math.isnan(kept) else "")
        + f"; {ours.below:.1f} clients below alone in a seed, asked none.",
        "",
        "The most that any rewards between nothing and FedAvg's model could give in the mean with",
        f"r >= {FAIR:.1f} to the Shapley value: {bound_text(most[False])} where the *gains* follow it,",
        f"{bound_text(most[True])} where the *final accuracies* do.",
        "",
    )


def bound_text(most: Sequence[float]) -> str:
    """The mean over the seeds in which the correlation can be had at all."""
    known = [one for one in most if not math.isnan(one)]
    return f"{np.mean(known):+.3f} ({len(known)} of {len(most)} seeds can)" if known else "none in any seed"


if __name__ == "__main__":
    main()
