"""What every runner shares: the job it is told, the data, the network, the watch.

A runner is started as `python -m peers.NAME job.json` in its own environment; numpy and torch are all it may count on.
It answers with one line, `BENCH {json}`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from memory import family_cpu
from torch import Tensor, nn

MARK = "BENCH "
STARTED = "BENCH_STARTED"  # perf_counter() of the moment the bench started the runner: one clock for all processes


@dataclass(frozen=True)
class Job:
    """One piece of work: `batch` 0 means all of a client's rows; `threads` None means torch's default."""

    network: str
    hidden: int
    outputs: int
    clients: int
    per_round: int
    batch: int
    epochs: int
    lr: float
    warmup: int
    rounds: int
    data: str
    variant: str = ""
    threads: int | None = None

    @classmethod
    def read(cls) -> Job:
        """The job in the file named on the command line; sets torch's threads."""
        job = cls(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
        if job.threads:
            torch.set_num_threads(job.threads)
        torch.manual_seed(0)
        return job

    @property
    def share(self) -> float:
        """The share of the clients drawn per round, a little more so that int(share * clients) is right."""
        return (self.per_round + 0.5) / self.clients

    @property
    def total(self) -> int:
        """All rounds, timed or not."""
        return self.warmup + self.rounds


@dataclass(frozen=True)
class Data:
    """All clients' rows one after the other: images (N, 28, 28, 1) as uint8, labels, where each client begins."""

    x: np.ndarray
    y: np.ndarray
    offsets: list[int]

    @classmethod
    def open(cls, job: Job) -> Data:
        """Mapped, not read: only what is used comes into memory."""
        folder = Path(job.data)
        x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
        return cls(x, y, np.load(folder / "offsets.npy").tolist())

    def client(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images as floats 0..1, channels first, and its labels."""
        rows = slice(self.offsets[client], self.offsets[client + 1])
        x = torch.from_numpy(np.array(self.x[rows])).float().div_(255)
        return x.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(np.array(self.y[rows]))

    def clients(self) -> list[tuple[Tensor, Tensor]]:
        """Every client's rows: converted once, as a user who cares for speed does."""
        return [self.client(client) for client in range(len(self.offsets) - 1)]


def network(job: Job) -> nn.Module:
    """The network as everybody writes it: channels first, ReLU, then pooling."""
    if job.network == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, job.hidden), nn.ReLU(), nn.Linear(job.hidden, job.outputs))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, job.hidden),
        nn.ReLU(),
        nn.Linear(job.hidden, job.outputs),
    )


class Watch:
    """Notes the end of each round; answers when all are done."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.ends: list[float] = []
        self.cpu = 0.0

    def lap(self) -> None:
        """A round has ended; CPU seconds are asked for, which takes a moment, outside of the timed rounds."""
        if len(self.ends) + 1 == self.job.warmup:
            self.cpu -= family_cpu()
        self.ends.append(perf_counter())
        if len(self.ends) == self.job.total:
            self.cpu += family_cpu()

    def answer(self, **more: Any) -> None:
        """Print the result; startup is all that came before the first round (its end minus a usual round)."""
        ends = self.ends[: self.job.total]
        if len(ends) < self.job.total:
            raise SystemExit(f"{len(ends)} rounds ended, {self.job.total} were asked for")
        seconds = np.diff(ends)[-self.job.rounds :].tolist()
        startup = ends[0] - float(os.environ.get(STARTED, ends[0])) - median(seconds)
        cpu = self.cpu / self.job.rounds
        answer({"seconds": seconds, "cpu": cpu, "startup": max(startup, 0.0), "torch": torch.__version__, **more})


def answer(values: dict[str, Any]) -> None:
    """One line for the bench."""
    print(f"\n{MARK}{json.dumps(values)}", flush=True)
