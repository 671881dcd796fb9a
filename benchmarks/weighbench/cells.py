"""Cells of WeighBench: a task, a kind of federation, a number of clients and a split.

A cell has what a method may use (training rows of the clients, 200 rows of the server, what the clients claim) and, out
of reach of methods, held-out rows in two halves.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmerit import Federation, TorchLearner, load_task
from fedmerit.config.schema import TrainConfig
from fedmerit.core.attacks.answers import Liar
from fedmerit.core.attacks.attack import Attackers, Coalition
from fedmerit.core.learner import BatchedLearner
from fedmerit.core.seeds import derive, train_seed
from fedmerit.core.types import Samples
from fedmerit.fleet.client import learner_at
from fedmerit.learn.models import dense
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task

Array = NDArray[np.float64]
Step = Callable[[int, NDArray[np.float32], NDArray[np.float32]], tuple[NDArray[np.float32], Array]]
"""(round, model, updates of all clients) -> (next model, weights)."""

ROUNDS = 15
METHOD_SEED = 1
"""Seed of the one run that a method may watch."""


class Size(NamedTuple):
    """Rows and network of a task."""

    data: str
    pool: int
    hidden: int
    train: int
    server: int
    held: int
    lr: float


TASKS = {
    "digits": Size("digits", 1, 32, 597, 200, 1000, 0.6),
    "mnist": Size("mnist", 2, 32, 1600, 200, 3000, 0.5),
    "fashion": Size("fashion-mnist", 4, 32, 1600, 200, 3000, 0.4),
    "adult": Size("adult", 1, 16, 2400, 200, 5000, 0.3),
    "heart": Size("heart-disease", 1, 16, 440, 80, 220, 0.3),
    "medpar": Size("medpar", 1, 16, 900, 150, 445, 0.3),
}
RANKABLE = ("digits", "mnist", "fashion", "adult")
"""Tasks with at least 1,000 held-out rows."""
HONEST = ("labels", "sizes", "mixed", "natural")
KINDS = {
    "labels": "Dirichlet(0.3) over the clients for each label",
    "sizes": "the same labels everywhere, sizes Dirichlet(1.5)",
    "mixed": "Dirichlet(0.5) with sizes Dirichlet(2)",
    "noisy": "mixed; three clients have 70, 50 and 25 % random labels",
    "poisoned": "mixed; two clients have every label replaced by the next one",
    "free-riding": "mixed; two clients repeat 5 rows until they have as many as before",
    "natural": "hospitals: heart disease 4, each cut 70 to 30; medpar's 54 in n groups",
}


@dataclass(frozen=True)
class Cell:
    """One federation, as methods see it.

    rows     rows that each client claims (n,)
    labels   label counts that each client claims (n, classes)
    server   the server's rows
    task     the clients' rows and their learner; `learner.train` trains a client
    """

    name: str
    kind: str
    split: int
    task: Task
    rows: Array
    labels: Array
    held: tuple[Samples, Samples]
    bad: Array
    liar: int | None = None

    @property
    def number(self) -> int:
        """Clients."""
        return len(self.rows)

    @property
    def server(self) -> Samples:
        """The server's rows."""
        assert self.task.federation.server is not None
        return self.task.federation.server

    @property
    def shares(self) -> Array:
        """Share of the claimed rows."""
        return self.rows / self.rows.sum()

    def samples(self, client: int) -> Samples:
        """Training rows of a client: only for what the client itself computes."""
        return self.task.federation.samples(client)

    def probabilities(self, models: NDArray[np.float32], rows: Samples) -> NDArray[np.float32]:
        """Probabilities (models, rows, classes)."""
        return self.task.learner.predict_each(np.atleast_2d(models), rows.x)

    def accuracy(self, models: NDArray[np.float32], rows: Samples) -> Array:
        """Accuracy of each model."""
        return (self.probabilities(models, rows).argmax(axis=2) == rows.y).mean(axis=1)

    def loss(self, models: NDArray[np.float32], rows: Samples) -> Array:
        """Mean cross-entropy of each model."""
        chances = self.probabilities(models, rows)[:, np.arange(len(rows.y)), rows.y]
        return -np.log(np.maximum(chances.astype(np.float64), 1e-12)).mean(axis=1)

    def first_model(self, seed: int) -> NDArray[np.float32]:
        """Model before round 1."""
        return self.task.server().first_model(derive(seed, "model"))

    def loop(self, step: Step, seed: int) -> tuple[NDArray[np.float32], Array]:
        """Train all clients in every round, let `step` make the next model; return it and the mean weights."""
        model, weights = self.first_model(seed), []
        samples = [self.samples(client) for client in range(self.number)]
        for index in range(1, ROUNDS + 1):
            learner = learner_at(self.task.learner, self.task.server().rate(index, ROUNDS))
            seeds = [train_seed(seed, index, client) for client in range(self.number)]
            if isinstance(learner, BatchedLearner):
                trained = learner.train_batched([model] * self.number, samples, seeds, [None] * self.number)
            else:
                trained = [learner.train(model.copy(), *one) for one in zip(samples, seeds, strict=True)]
            model, used = step(index, model, np.stack(trained) - model)
            weights.append(used)
        return model, np.mean(weights, axis=0)

    @cached_property
    def run(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """The FedAvg run that methods may watch: (model, updates) of every round."""
        seen = []

        def step(index: int, model: NDArray[np.float32], updates: NDArray[np.float32]):
            seen.append((model, updates))
            return model + (self.shares @ updates).astype(np.float32), self.shares

        self.loop(step, METHOD_SEED)
        return seen

    def lying(self, client: int) -> Cell:
        """The same cell, in which a client claims three times its rows, with all labels equally often."""
        rows, labels = self.rows.copy(), self.labels.copy()
        rows[client] *= 3
        labels[client] = rows[client] / labels.shape[1]
        facts = {"samples": 3.0, "labels": 10.0, "balance": 10.0}
        attackers = Attackers((Coalition(Liar(facts), share=1 / self.number),), {client: 0})
        task = replace(self.task, attackers=attackers)
        return replace(self, rows=rows, labels=labels, task=task, liar=client)


@lru_cache(maxsize=2)
def _rows(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64], int, NDArray[np.int64]]:
    """All rows of a task as numbers, their labels, the number of classes and the owner of each row."""
    size = TASKS[name]
    natural = name not in RANKABLE
    data = load_task(size.data, seed=0, **({} if natural else {"clients": 1, "partition": "iid"})).federation
    x, y = (np.concatenate([getattr(data.train, part), getattr(data.test, part)]) for part in ("x", "y"))
    owners = np.concatenate([np.repeat(np.arange(len(data.names)), split.sizes) for split in (data.train, data.test)])
    if x.dtype == np.uint8:
        side, pool = x.shape[1], size.pool
        x = x[..., 0].reshape(len(x), side // pool, pool, side // pool, pool).mean(axis=(2, 4))
        x = x / x.max()
    return x.reshape(len(x), -1).astype(np.float32), y, data.classes, owners


def make_cell(name: str, kind: str, split: int, clients: int = 8) -> Cell:
    """Draw the cell of a split; the same arguments give the same rows."""
    x, y, classes, owners = _rows(name)
    size = TASKS[name]
    random = np.random.default_rng([split, clients, zlib.crc32(f"{name}:{kind}".encode())])
    order = random.permutation(len(x))[: size.train + size.server + size.held]
    held, server, train = np.split(order, [size.held, size.held + size.server])
    for _ in range(1000):
        part = _partition(name, kind, random, y[train], owners[train], clients, classes)
        if np.bincount(part, minlength=clients).min() >= 10:
            break
    rows = [train[part == client] for client in range(clients)]
    labels, bad = [y[own].copy() for own in rows], np.zeros(clients)
    rows = _spoil(kind, random, rows, labels, bad, classes)
    sizes = [len(own) for own in rows]
    all_rows = Split(x[np.concatenate(rows)], np.concatenate(labels), np.append(0, np.cumsum(sizes)))
    federation = Federation(
        tuple(f"client {client}" for client in range(clients)),
        train=all_rows,
        test=all_rows,  # searches of clients judge on their own rows; nothing is reported on these
        validation=all_rows,
        classes=classes,
        server=Samples(x[server], y[server], classes, {}),
    )
    build = partial(dense, x.shape[1], size.hidden, classes)
    learner = TorchLearner(build, TrainConfig(lr=size.lr, epochs=1, batch=32, schedule="cosine"))
    counts = np.stack([np.bincount(own, minlength=classes) for own in labels]).astype(float)
    halves = np.array_split(held, 2)
    hidden = tuple(Samples(x[half], y[half], classes, {}) for half in halves)
    return Cell(name, kind, split, Task(federation, learner), np.array(sizes, float), counts, hidden, bad)


def _partition(name, kind, random, y, owners, clients, classes) -> NDArray[np.int64]:
    if kind == "natural" and name == "heart":
        return owners * 2 + (random.random(len(y)) < 0.3)
    if kind == "natural":
        return random.integers(0, clients, owners.max() + 1)[owners]
    if kind == "sizes":
        return random.choice(clients, len(y), p=random.dirichlet(np.full(clients, 1.5)))
    uneven = random.dirichlet(np.full(clients, 2.0)) * clients
    alpha = np.full(clients, 0.3) if kind == "labels" else 0.5 * uneven
    shares = np.stack([random.dirichlet(alpha) for _ in range(classes)])
    return np.array([random.choice(clients, p=shares[label]) for label in y])


def _spoil(kind, random, rows, labels, bad, classes):
    """Plant the bad clients of a kind: change `labels` and `bad`, return the rows."""
    who = random.permutation(len(rows))
    if kind == "noisy":
        for client, share in zip(who, (0.7, 0.5, 0.25), strict=False):
            wrong = random.random(len(labels[client])) < share
            labels[client][wrong] = random.integers(0, classes, wrong.sum())
            bad[client] = share
    if kind == "poisoned":
        for client in who[:2]:
            labels[client] = (labels[client] + 1) % classes
            bad[client] = 1
    if kind == "free-riding":
        for client in who[:2]:
            few = np.resize(random.permutation(len(rows[client]))[:5], len(rows[client]))
            rows[client], labels[client] = rows[client][few], labels[client][few]
            bad[client] = 1
    return rows
