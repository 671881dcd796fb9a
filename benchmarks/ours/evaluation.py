"""W5: one model and six models tested on all clients' test rows, through the local fleet; and a loop over clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from memory import family_cpu
from ours.rounds import WORKERS
from ours.task import learner, read
from ours.timed import Timed

from fedmerit import Split, Task
from fedmerit.config.schema import TrainConfig
from fedmerit.fleet.local import LocalFleet
from peers.common import Data, Job, network

SIX = 6


def test_first(folder: str) -> Task:
    """A task whose clients hold all rows for testing and one row for training."""
    federation = read(Path(folder))
    rows, edges = federation.train, np.arange(len(federation.names) + 1)
    train = Split(rows.x[: edges[-1]], rows.y[: edges[-1]], edges)
    return Task(
        type(federation)(federation.names, train, rows, federation.classes), learner("femnist-cnn", TrainConfig())
    )


@torch.inference_mode()
def loop_over_clients(job: Job, data: Data, module: torch.nn.Module) -> list[int]:
    """The plain way: client after client, torch's default threads."""
    right = []
    for client in range(job.clients):
        x, y = data.client(client)
        right.append(int((module(x).argmax(1) == y).sum()))
    return right


def main() -> None:
    """Time each way `rounds` times, interleaved, after `warmup` rounds that are not counted."""
    job = Job.read()
    task = test_first(job.data)
    models = [task.learner.start(seed) for seed in range(SIX)]
    with LocalFleet(task, WORKERS) as fleet:
        ways: dict[str, Callable[[], object]] = {
            "one model": partial(fleet.evaluate, models[:1]),
            "six models": partial(fleet.evaluate, models),
            "loop over clients, one model": partial(loop_over_clients, job, Data.open(job), network(job).eval()),
        }
        timed = Timed(job.rounds)
        timed.interleaved(ways, job.warmup, family_cpu)
    timed.answer(folder=Path(job.data).name)


if __name__ == "__main__":
    main()
