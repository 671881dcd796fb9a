"""Bare PyTorch: the same clients trained from the same model and averaged, and nothing else.

Variants: `plain` is the network and loop that everybody writes; `best` is hand_arranged.py, and `last` the same with
channels last and kept columns. A variant ends in how many processes with how many threads: plain-1x2, best-2x1.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch import multiprocessing as processes
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from peers.common import Data, Job, Watch, network
from peers.hand_arranged import HandArranged, keep_memory


class Trainer(Protocol):
    """Trains one client."""

    def start(self) -> Tensor:
        """The first model as a flat vector."""

    def __call__(self, model: Tensor, client: int, out: Tensor) -> None:
        """Train the client from `model` and leave the result in `out`."""


class Plain:
    """nn.Module, autograd, torch.optim.SGD."""

    def __init__(self, job: Job) -> None:
        self.job, self.data, self.module = job, Data.open(job), network(job)

    def start(self) -> Tensor:
        """torch's own initialisation."""
        return parameters_to_vector(self.module.parameters()).detach()

    def __call__(self, model: Tensor, client: int, out: Tensor) -> None:
        """Epochs of SGD."""
        vector_to_parameters(model, self.module.parameters())
        optimizer = torch.optim.SGD(self.module.parameters(), lr=self.job.lr)
        x, y = self.data.client(client)
        for rows in batches(self.job, len(y)):
            optimizer.zero_grad()
            cross_entropy(self.module(x[rows]), y[rows]).backward()
            optimizer.step()
        out.copy_(parameters_to_vector(self.module.parameters()).detach())


class Best:
    """Everything arranged by hand."""

    def __init__(self, job: Job) -> None:
        keep_memory()
        self.job, self.data, self.network = job, Data.open(job), HandArranged(job, job.variant.startswith("last"))

    def start(self) -> Tensor:
        """Small normal weights."""
        return self.network.values.clone()

    def __call__(self, model: Tensor, client: int, out: Tensor) -> None:
        """Epochs of SGD."""
        self.network.values.copy_(model)
        rows = slice(self.data.offsets[client], self.data.offsets[client + 1])
        x, y = (torch.from_numpy(np.array(column[rows])) for column in (self.data.x, self.data.y))
        x = self.network.prepare(x)
        for chosen in batches(self.job, len(y)):
            self.network.step(x[chosen], y[chosen], self.job.lr)
        out.copy_(self.network.values)


def batches(job: Job, rows: int) -> Iterable[Tensor]:
    """Row numbers of each step."""
    for _ in range(job.epochs):
        yield from torch.randperm(rows).split(job.batch or rows)


def trainer(job: Job) -> Trainer:
    """The variant's trainer."""
    return Plain(job) if job.variant.startswith("plain") else Best(job)


def serve(job: Job, model: Tensor, rows: Tensor, pipe: Connection) -> None:
    """A worker process: trains the client it is told, into the row it is told."""
    torch.set_num_threads(1)
    train = trainer(job)
    while (told := pipe.recv()) is not None:
        client, row = told
        train(model, client, rows[row])
        pipe.send(row)


class Workers:
    """Worker processes that share the model and the rows of results; each gets its next client when it is free."""

    def __init__(self, job: Job, number: int, model: Tensor, rows: Tensor) -> None:
        context = processes.get_context("spawn")
        self.pipes, self.processes = [], []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(job, model, rows, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def __call__(self, clients: list[int]) -> None:
        """Train all of them."""
        waiting = list(enumerate(clients))[::-1]
        busy = []
        for pipe in self.pipes[: len(clients)]:
            pipe.send(waiting.pop()[::-1])
            busy.append(pipe)
        while busy:
            for pipe in wait(busy):
                pipe.recv()
                pipe.send(waiting.pop()[::-1]) if waiting else busy.remove(pipe)

    def close(self) -> None:
        """End them."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def main() -> None:
    """Run the job."""
    job = Job.read()
    watch, here, draw = Watch(job), trainer(job), random.Random(0)
    model = here.start().share_memory_()
    rows = torch.empty(job.per_round, len(model)).share_memory_()
    number = int(job.variant.split("-")[1].split("x")[0])
    workers = Workers(job, number, model, rows) if number > 1 else None
    weights = torch.full((job.per_round,), 1 / job.per_round)
    for _ in range(job.total):
        chosen = draw.sample(range(job.clients), job.per_round)
        if workers:
            workers(chosen)
        else:
            for row, client in enumerate(chosen):
                here(model, client, rows[row])
        model.copy_(weights @ rows)
        watch.lap()
    watch.answer()
    if workers:
        workers.close()


if __name__ == "__main__":
    main()
