"""Two tasks of FLUTE's comparison of simulators in its settings, next to the seconds that FLUTE published.

    .venv/bin/python benchmarks/flute.py lr-mnist --seeds 5
    .venv/bin/python benchmarks/flute.py cnn-femnist --rounds 150      # a tenth of the rounds

Clients per round, batches, rates, rounds and the rounds that are tested are those of the table in FLUTE's README
(github.com/microsoft/msrflute, commit 8bfe085), the models those of experiments/cv_lr_mnist and cv_cnn_femnist. Data
comes from FEDMERIT_DATA. MNIST is split over 1,000 clients by the procedure of FedProx, whose files FLUTE downloads,
with other random numbers. Of FEMNIST's 3,400 writers 300 are at hand, with fewer rows each.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import machine
import numpy as np
from memory import family_cpu
from torch import nn

from fedmerit import Federation, Task, TorchLearner, fedavg, federate, load_task
from fedmerit.config.schema import TrainConfig
from fedmerit.core.state import Record
from fedmerit.tasks.datasets.mnist import read_mnist
from fedmerit.tasks.federation import Split

CLIENTS, LABELS, FIRST, TRAINING = 1000, 10, 5, 0.9
"""FedProx: clients, digits, rows of each of a client's two digits before shares are drawn, share of training rows."""


@dataclass(frozen=True)
class Setting:
    """A line of FLUTE's table; `published` has accuracy and time as printed there."""

    load: Callable[[int], Task]
    rounds: int
    test_every: int
    workers: int
    published: tuple[str, ...]


def by_fedprox(labels: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Rows of each client: user u has the digits u and u + 1 modulo 10, five rows of each and a log-normal share."""
    of_digit = [np.flatnonzero(labels == digit) for digit in range(LABELS)]
    taken = np.zeros(LABELS, dtype=int)
    rows: list[list[np.ndarray]] = [[] for _ in range(CLIENTS)]

    def take(user: int, digit: int, number: int) -> None:
        rows[user].append(of_digit[digit][taken[digit] : taken[digit] + number])
        taken[digit] += number

    digits = [(user, place, (user + place) % LABELS) for user in range(CLIENTS) for place in range(2)]
    for user, _, digit in digits:
        take(user, digit, FIRST)
    shares = random.lognormal(0, 2.0, (LABELS, CLIENTS // LABELS, 2))
    shares /= shares.sum(axis=(1, 2), keepdims=True)
    for user, place, digit in digits:
        number = int(shares[digit, user // LABELS, place] * (len(of_digit[digit]) - CLIENTS))
        if taken[digit] + number < len(of_digit[digit]):
            take(user, digit, number)
    return [random.permutation(np.concatenate(parts)) for parts in rows]


def lr_mnist(seed: int) -> Task:
    """MNIST over 1,000 clients; logistic regression by ten sigmoids under cross-entropy, as in FLUTE's model.py."""
    parts = read_mnist()
    x = np.concatenate([part.x for part in parts]).reshape(-1, 784).astype(np.float32)
    x = (x - x.mean(0)) / (x.std(0) + 0.001)
    y = np.concatenate([part.y for part in parts])
    rows = by_fedprox(y, np.random.default_rng(seed))
    cuts = [int(TRAINING * len(own)) for own in rows]

    def split(parts: list[np.ndarray]) -> Split:
        everything = np.concatenate(parts)
        return Split(x[everything], y[everything], np.cumsum([0, *map(len, parts)]))

    train = split([own[:cut] for own, cut in zip(rows, cuts, strict=True)])
    test = split([own[cut:] for own, cut in zip(rows, cuts, strict=True)])
    federation = Federation(tuple(f"user {user}" for user in range(CLIENTS)), train, test, classes=LABELS)
    return Task(federation, TorchLearner(sigmoid_regression, TrainConfig(lr=0.03, batch=10, epochs=1)))


def sigmoid_regression() -> nn.Module:
    """784 inputs, ten sigmoids."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, LABELS), nn.Sigmoid())


def cnn_femnist(_: int) -> Task:
    """The CNN of Adaptive Federated Optimization, 1.2M parameters; SGD at 0.1 on LEAF's rows of 300 writers."""
    federation = load_task("femnist", partition="natural").federation
    return Task(federation, TorchLearner(two_convolutions, TrainConfig(lr=0.1, batch=20, epochs=1)))


def two_convolutions() -> nn.Module:
    """Two 3 x 3 convolutions without padding, one pooling, dropout, a hidden layer of 128."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 62)),
    )


LR_PUBLISHED = ("FLUTE, CPU: ~80 %, 200 s", "FLUTE, 4 GPUs: ~81 %, 86 s", "FLUTE, fastest: ~81 %, 95 s")
LR_PUBLISHED += ("Flower 1.0, CPU: ~80 %, 1,814 s", "FedML 0.7.303, GPU: ~81 %, 189 s")
CNN_PUBLISHED = ("FLUTE, GPU: ~83 %, 502 s", "FedML 0.7.303, GPU: ~83 %, 20,992 s")
SETTINGS = {
    "lr-mnist": Setting(lr_mnist, 100, 20, 1, LR_PUBLISHED),
    "cnn-femnist": Setting(cnn_femnist, 1500, 50, 2, CNN_PUBLISHED),
}


@dataclass(frozen=True)
class Measured:
    """Of one run: accuracy over all test rows after the last round, seconds, and training rows."""

    accuracy: float
    wall: float
    cpu: float
    rows: int


def measure(setting: Setting, task: Task, seed: int, rounds: int) -> Measured:
    """Run `rounds` rounds of FedAvg with ten clients each; data is loaded before."""
    sizes, rows, cpu = task.federation.train.sizes, 0, -family_cpu()

    def count(record: Record) -> None:
        nonlocal rows, cpu
        rows += int(sizes[list(record.ids)].sum())
        cpu += family_cpu() if record.index == rounds else 0.0  # before the workers end

    share = 10 / len(task.federation.names)
    start = perf_counter()
    run = federate(
        task,
        fedavg(),
        rounds=rounds,
        fraction=share,
        seed=seed,
        workers=setting.workers,
        evaluate_every=setting.test_every,
        on_record=count,
    )
    return Measured(run.accuracy, perf_counter() - start, cpu, rows)


def lines(name: str, setting: Setting, runs: list[Measured], rounds: int) -> Iterator[str]:
    """Markdown: measured, then published."""
    wall, cpu, rows = (statistics.median(getattr(run, key) for run in runs) for key in ("wall", "cpu", "rows"))
    accuracies = sorted(run.accuracy for run in runs)
    yield f"{name}, {rounds:,} rounds of 10 clients, seeds 1 to {len(runs)}, medians; {machine.facts()['CPU']}:"
    yield f"fedmerit: accuracy {statistics.mean(accuracies):.1%} ({accuracies[0]:.1%} to {accuracies[-1]:.1%}),"
    yield f"{wall:.1f} s, {cpu:.1f} CPU s, {rows:,.0f} training rows"
    yield from setting.published


def main() -> None:
    """Measure the named settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SETTINGS), help=f"of {', '.join(SETTINGS)}; default: all")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 1 to this number (default 1)")
    parser.add_argument("--rounds", type=int, help="fewer rounds than published")
    options = parser.parse_args()
    for name in options.names:
        setting = SETTINGS[name]
        rounds = options.rounds or setting.rounds
        runs = [measure(setting, setting.load(seed), seed, rounds) for seed in range(1, options.seeds + 1)]
        print("\n".join(lines(name, setting, runs, rounds)), flush=True)


if __name__ == "__main__":
    main()
