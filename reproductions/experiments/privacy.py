"""The price of privacy beside the price of weights: three federations, epsilon 2, 4, 8 and none.

FEDMERIT_DATA=... python -m reproductions.experiments.privacy          # half an hour; prints the tables
FEDMERIT_DATA=... python -m reproductions.experiments.privacy --known  # runs nothing: the rows that are there

Noise and selection come from the seeds, so that runs are paired and can be made again: these runs protect nobody.
Learning rate and clip are chosen for the unweighted row on rows set apart from training, with a seed of their own;
test rows are looked at once. Every run is kept in runs/privacy.jsonl: a second start goes
on from there.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import ndimage

from fedmerit import Federation, Recipe, Task, federate, load_task, prioritized
from fedmerit.config.privacy import noise_for
from fedmerit.config.train import TrainConfig
from fedmerit.core.collect.collect import Poisson
from fedmerit.core.recipes import private
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.types import Vector
from fedmerit.core.weights.limits import Cap
from fedmerit.core.weights.weigh import scale
from fedmerit.errors import NoteWarning
from fedmerit.learn.models import dense
from fedmerit.learn.sgd import TorchLearner
from fedmerit.study.statistics import paired
from fedmerit.tasks.datasets.digits import read_digits
from fedmerit.tasks.federation import Split

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "runs" / "privacy.jsonl"
ROUNDS, EPOCHS, DELTA = 30, 2, 1e-5
TUNING, SEEDS = 11, (1, 2, 3, 4, 5)
TUNED_AT = 4.0
EPSILONS = (None, 8.0, 4.0, 2.0)
CLIPS = (0.25, 0.5, 1.0)
BASELINE = "unweighted"
SET_APART = 0.2


def pooled(split: Split, window: int) -> Split:
    """Pictures as means of windows: fewer inputs, so that there are fewer weights to drown in noise."""
    number, height, width, _ = split.x.shape
    windows = split.x.reshape(number, height // window, window, width // window, window, 1)
    return Split(np.rint(windows.mean((2, 4))).astype(np.uint8), split.y, split.offsets)


def writers(data: str, window: int, seed: int, tuning: bool) -> Federation:
    """A client per writer, ink as 1 and paper as 0; to tune, a fifth of its training rows stand for its test rows."""
    name = "reproductions.data:FEMNIST_NEGATIVES" if data == "femnist" else data
    validation = SET_APART if tuning else 0.0
    federation = load_task(name, seed=seed, partition="natural", validation=validation).federation
    test = federation.validation if tuning else federation.test
    return Federation(federation.names, pooled(federation.train, window), pooled(test, window), federation.classes)


def phones(number: int, seed: int, tuning: bool) -> Federation:
    """A simulated federation: each client draws its own share of every digit, few rows, and shifts and blurs them.

    Sizes are log-normal with a median of 8, from 2 to 40; shares are Dirichlet's with alpha 1. Rows come from the
    training digits, test rows are the test digits as they are.
    """
    train, test = read_digits()
    if tuning:
        cut = round((1 - SET_APART) * len(train))
        train, test = train.take(np.arange(cut)), train.take(np.arange(cut, len(train)))
    random = np.random.default_rng(seed)
    sizes = np.clip(np.rint(random.lognormal(np.log(8), 0.6, number)), 2, 40).astype(np.int64)
    of_digit = [np.flatnonzero(train.y == digit) for digit in range(10)]
    shares = random.dirichlet(np.ones(10), number)
    labels = np.concatenate([random.choice(10, size, p=share) for size, share in zip(sizes, shares, strict=True)])
    rows = np.array([random.choice(of_digit[digit]) for digit in labels])
    x = train.x[rows].astype(np.float64)
    x = np.stack(
        [ndimage.shift(one, (*move, 0)) for one, move in zip(x, random.uniform(-1, 1, (len(x), 2)), strict=True)]
    )
    x = np.clip(x + random.normal(0, 20, x.shape), 0, 255).astype(np.uint8)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    tested = np.minimum(np.arange(number + 1), len(test))  # a row each, while there are some
    return Federation(
        tuple(f"phone {place}" for place in range(number)), Split(x, labels, offsets), Split(test.x, test.y, tested), 10
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """A federation, the chance of its clients, and the public bounds of size: a wide one and a tight one.

    `mean` is the mean score of `earned`, looked up with the seed of the tuning, as the share of the largest one.
    """

    about: str
    details: str
    load: Callable[[int, bool], Federation]
    inputs: int
    fraction: float
    wide: float
    tight: float
    mean: float
    mean_tight: float
    rates: tuple[float, ...] = (0.5, 2.0, 5.0)
    private_rates: tuple[float, ...] = (0.5, 2.0)

    def recipes(self) -> Mapping[str, Recipe]:
        """The rows: `cap` = 1 / mean score makes each aggregate as long as a mean."""
        return {
            "unweighted": prioritized("DS", normalise=scale({"DS": 1.0})),
            "earned": replace(
                prioritized("LC", "DS", normalise=scale({"DS": self.wide})), limits=(Cap(round(1 / self.mean, 2)),)
            ),
            "earned, tight": replace(
                prioritized("DS", normalise=scale({"DS": self.tight})), limits=(Cap(round(1 / self.mean_tight, 2)),)
            ),
        }


SETTINGS = {
    "mnist": Setting(
        "MNIST, 539 writers",
        "14 x 14 pixels, 1,970 weights, a chance of 0.3 per round; mean score 0.96 (earned), 0.97 (tight).",
        *(partial(writers, "mnist", 2), 196, 0.3, 120, 100, 0.96, 0.97),
    ),
    "femnist": Setting(
        "FEMNIST, 300 writers",
        "7 x 7 pixels, 62 classes, 3,100 weights, a chance of 0.5; mean score 0.72 (earned), 0.92 (tight).",
        *(partial(writers, "femnist", 4), 49, 0.5, 150, 130, 0.72, 0.92, (2.0, 5.0, 15.0), (2.0, 5.0)),
    ),
    "digits": Setting(
        "Digits, 10,000 simulated clients",
        "8 x 8 pixels, 650 weights, a chance of 0.05; mean score 0.42 (earned), 0.94 (tight). Each client has its\n"
        "own shares of the digits (Dirichlet, alpha 1) and about 8 rows, drawn from the 1,437 training digits,\n"
        "shifted by up to a pixel and noised. All share these digits: the federation is large, the data is not.",
        *(partial(phones, 10_000), 64, 0.05, 12, 5, 0.42, 0.94),
    ),
}


@cache
def federation(name: str, seed: int, tuning: bool) -> Federation:
    """Loaded once; the runs of one seed follow each other."""
    return SETTINGS[name].load(seed, tuning)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: everything that it depends on."""

    setting: str
    row: str
    epsilon: float | None
    rate: float
    clip: float | None
    seed: int
    tuning: bool = False

    def __call__(self) -> float:
        """The accuracy after the last round on all test rows; to tune, on the rows set apart."""
        setting = SETTINGS[self.setting]
        data = federation(self.setting, self.seed, self.tuning)
        model = partial(dense, setting.inputs, data.classes)
        task = Task(data, TorchLearner(model, TrainConfig(lr=self.rate, epochs=EPOCHS, batch="full")))
        recipe, selection = setting.recipes()[self.row], Poisson(setting.fraction)
        if self.epsilon is not None and self.clip is not None:
            noise = noise_for(self.epsilon, DELTA, setting.fraction, ROUNDS)
            recipe = private(recipe, PrivateSum(noise, setting.fraction, self.clip, delta=DELTA, reproducible=True))
        run = federate(task, recipe, rounds=ROUNDS, selection=selection, seed=self.seed, evaluate_every=ROUNDS)
        return run.accuracy

    @property
    def key(self) -> str:
        """What it is kept under."""
        return json.dumps([self.setting, self.row, self.epsilon, self.rate, self.clip, self.seed, self.tuning])


class Results:
    """The accuracies of all trials so far, a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.known: dict[str, float] = dict(json.loads(line) for line in lines)

    def __call__(self, trial: Trial) -> float:
        """From the file, or by running it."""
        if trial.key not in self.known:
            self.known[trial.key] = trial()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([trial.key, self.known[trial.key]]) + "\n")
            print(trial.key, self.known[trial.key], flush=True)
        return self.known[trial.key]


def tuning_grid(setting: Setting, private: bool) -> list[tuple[float, float | None]]:
    """Pairs of learning rate and clip."""
    if not private:
        return [(rate, None) for rate in setting.rates]
    return [(rate, clip) for rate in setting.private_rates for clip in CLIPS]


def tuned(results: Results, setting: str, private: bool) -> tuple[float, float | None]:
    """The learning rate and the clip with which the baseline does best on the rows set apart, at epsilon 4 or free."""
    grid, epsilon = tuning_grid(SETTINGS[setting], private), TUNED_AT if private else None
    return max(grid, key=lambda pair: results(Trial(setting, BASELINE, epsilon, pair[0], pair[1], TUNING, tuning=True)))


def trials(results: Results, setting: str, row: str, epsilon: float | None) -> list[Trial]:
    """One per seed, with the settings that were tuned for the federation."""
    rate, clip = tuned(results, setting, epsilon is not None)
    return [Trial(setting, row, epsilon, rate, clip, seed) for seed in SEEDS]


def accuracies(results: Results, some: Iterable[Trial]) -> Vector:
    """Of these trials."""
    return np.array([results(trial) for trial in some])


def is_known(results: Results, setting: str, row: str) -> bool:
    """Whether every run of the row is there, and all that it was tuned by."""
    tuning = [
        Trial(setting, BASELINE, TUNED_AT if private else None, rate, clip, TUNING, tuning=True)
        for private in (False, True)
        for rate, clip in tuning_grid(SETTINGS[setting], private)
    ]
    if any(one.key not in results.known for one in tuning):
        return False
    return all(one.key in results.known for epsilon in EPSILONS for one in trials(results, setting, row, epsilon))


def span(differences: Vector) -> str:
    """A mean difference with its interval, in points."""
    found = paired(100 * differences)
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def table(results: Results, name: str, only_known: bool) -> list[str]:
    """The rows of one federation: accuracies in percent, differences in points."""
    setting = SETTINGS[name]
    rows = [row for row in setting.recipes() if not only_known or is_known(results, name, row)]
    if BASELINE not in rows:
        return ["This has not been run."]
    found = {
        (row, epsilon): accuracies(results, trials(results, name, row, epsilon)) for row in rows for epsilon in EPSILONS
    }
    others = [row for row in rows if row != BASELINE]
    lines = [f"| epsilon | noise z | {' | '.join([*rows, *(f'{row} - {BASELINE}' for row in others)])} |"]
    lines.append("| --- |" + " ---: |" * (len(rows) + len(others) + 1))
    for epsilon in EPSILONS:
        noise = "none" if epsilon is None else f"{noise_for(epsilon, DELTA, setting.fraction, ROUNDS):.2f}"
        means = [_mean(found[row, epsilon]) for row in rows]
        weights = [span(found[row, epsilon] - found[BASELINE, epsilon]) for row in others]
        lines.append(f"| {_named(epsilon)} | {noise} | {' | '.join([*means, *weights])} |")
    lines += ["", "The price of privacy, against the same row without it:", ""]
    lines += ["| epsilon | " + " | ".join(rows) + " |", "| --- |" + " ---: |" * len(rows)]
    for epsilon in EPSILONS[1:]:
        prices = [span(found[row, epsilon] - found[row, None]) for row in rows]
        lines.append(f"| {_named(epsilon)} | {' | '.join(prices)} |")
    (free, _), (rate, clip) = tuned(results, name, False), tuned(results, name, True)
    return [*lines, "", f"Chosen: learning rate {rate:g} and clip {clip:g}; without privacy learning rate {free:g}."]


def _mean(accuracies: Vector) -> str:
    return f"{100 * accuracies.mean():.1f} ({100 * accuracies.std(ddof=1):.1f})"


def _named(epsilon: float | None) -> str:
    return "no privacy" if epsilon is None else f"{epsilon:g}"


def main() -> None:
    """Run what is missing and print the tables."""
    warnings.simplefilter("ignore", NoteWarning)
    results, lines = Results(KEPT), [HEAD]
    for name, setting in SETTINGS.items():
        lines += [f"\n## {setting.about}\n\n{setting.details}\n", *table(results, name, "--known" in sys.argv)]
    print("\n".join(lines))


HEAD = f"""# The price of privacy beside the price of weights

    FEDMERIT_DATA=... python -m reproductions.experiments.privacy

Three federations at epsilon 8, 4 and 2 (delta {DELTA:g}) and without privacy: {ROUNDS} rounds of {EPOCHS} local epochs,
{len(SEEDS)} paired seeds. Cells are accuracies after the last round on all test rows in percent, with their deviation
over seeds; differences are in points, with a 95 % interval over the paired seeds. Models are linear and pictures are
averaged down, since noise grows with the number of weights. Learning rate and clip ({", ".join(map(str, CLIPS))}) were
chosen for the unweighted row at epsilon {TUNED_AT:g}, on a fifth of the training rows, with another seed; the account
does not hold that choice.

- **unweighted**: `DS` with `normalise = {{name = "scale", bounds = {{DS = 1}}}}`, so that everybody reaches the bound.
- **earned**: label coverage before size, `LC > DS`, with a scale of size that a quarter of the clients or more reach.
- **earned, tight**: size alone, with a scale that three quarters or more reach: nearly everybody counts in full.

`cap` is 1 / the mean score, a public constant, so that each aggregate is as long as a mean: a low mean score then shows
as noise, not as a short step. Without privacy weights are shares of the round, and nothing is clipped.
"""

if __name__ == "__main__":
    main()
