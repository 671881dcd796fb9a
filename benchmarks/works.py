"""The works of the bench: what is computed, on which data, how much arithmetic that is, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

Kind = Literal["rounds", "aggregation", "evaluation", "scaling", "parts"]
PEERS = ("flower", "pfl", "fluke", "fedlab")
BARE = ("best-2x1", "last-2x1", "plain-2x1", "plain-1x2")
ALL = ("ours", *BARE, *PEERS)
FEATURES = 4  # of W6's tabular rows


@dataclass(frozen=True)
class Work:
    """One work; `batch` 0 means a client's rows all at once, `limit` is the most seconds one runner may take.

    A work of `parts` has no rounds: `module` times the parts, each `rounds` times, in the way that `model` names.
    """

    name: str
    title: str
    kind: Kind
    network: str = ""
    hidden: int = 0
    outputs: int = 0
    clients: int = 0
    per_round: int = 0
    rows: int = 0
    batch: int = 10
    epochs: int = 5
    warmup: int = 1
    rounds: int = 1
    limit: int = 1200
    model: str = ""
    module: str = ""
    contenders: tuple[str, ...] = ("ours",)
    is_quick: bool = False

    @property
    def flops(self) -> float:
        """Operations per round: three times the forward pass (itself, and twice for the backward pass)."""
        passes = 3 * self.epochs * self.per_round if self.kind == "rounds" else self.clients
        return passes * self.rows * self.forward

    @property
    def forward(self) -> float:
        """Operations of one image's forward pass: 2 per multiplication and addition."""
        if self.network == "linear":
            return 2 * FEATURES * self.outputs
        if self.network == "mlp":
            return 2 * (784 * self.hidden + self.hidden * self.outputs)
        if not self.network:
            return 0.0
        convolutions = 28 * 28 * 25 * 32 + 14 * 14 * 25 * 32 * 64
        return 2 * (convolutions + 64 * 7 * 7 * self.hidden + self.hidden * self.outputs)

    @property
    def parameters(self) -> int:
        """Length of the model."""
        into = 3136 if self.network == "cnn" else 784
        convolutions = 32 * 25 + 32 + 64 * 32 * 25 + 64 if self.network == "cnn" else 0
        return convolutions + into * self.hidden + self.hidden + self.hidden * self.outputs + self.outputs

    def job(self, data: Path, variant: str, threads: int | None) -> dict[str, Any]:
        """What a runner of rounds is told."""
        keys = ("network", "hidden", "outputs", "clients", "per_round", "batch", "epochs", "warmup", "rounds")
        told = {key: getattr(self, key) for key in keys}
        return told | {"lr": 0.01, "data": str(data), "variant": variant, "threads": threads}

    def quick(self) -> Work:
        """The same, small enough for a look."""
        clients = 12 if self.kind != "scaling" else self.clients // 10
        return replace(
            self,
            clients=clients,
            per_round=min(4 if self.kind != "scaling" else 20, self.per_round),
            rows=min(20, self.rows),
            epochs=min(2, self.epochs),
            rounds=min(2, self.rounds),
            hidden=min(self.hidden, 2048 if self.kind != "aggregation" else 64),
            limit=150,
            is_quick=True,
        )


FEMNIST = {"network": "cnn", "hidden": 2048, "outputs": 62, "model": "femnist-cnn"}
MNIST = {"network": "cnn", "hidden": 512, "outputs": 10, "model": "mnist-cnn"}
MLP = {"network": "mlp", "hidden": 64, "outputs": 10, "model": "mnist-mlp"}

WORKS = (
    Work("W1", "MNIST CNN, 1.66M parameters, 10 of 100 clients x 600 images, batch 10, 5 epochs", "rounds",
         clients=100, per_round=10, rows=600, contenders=ALL, **MNIST),
    Work("W1f", "MNIST CNN, 10 of 100 clients x 600 images, full batch, 5 epochs", "rounds",
         clients=100, per_round=10, rows=600, batch=0, contenders=ALL, **MNIST),
    Work("W2", "FEMNIST CNN, 6.6M parameters, 37 of 371 clients x 110 images, batch 10, 5 epochs", "rounds",
         clients=371, per_round=37, rows=110, contenders=ALL, **FEMNIST),
    Work("W3", "MLP 784-64-10, 100 of 1,000 clients x 60 images, batch 10, 5 epochs", "rounds",
         clients=1000, per_round=100, rows=60, warmup=2, rounds=5, limit=600, contenders=ALL, **MLP),
    Work("W4", "aggregation of 100 updates x 6.6M parameters", "aggregation",
         clients=100, per_round=100, rows=0, rounds=3, limit=900, contenders=("2 threads", "1 thread"), **FEMNIST),
    Work("W5", "evaluation of 1 and of 6 models (FEMNIST CNN) over 371 clients x 28 test images", "evaluation",
         clients=371, per_round=371, rows=28, rounds=3, limit=600, **FEMNIST),
    *(Work(f"W6-{clients}", f"{clients:,} registered clients, 100 per round, linear model", "scaling",
           network="linear", hidden=0, outputs=2, model="linear", clients=clients, per_round=100, rows=1,
           epochs=1, warmup=3, rounds=20, limit=600) for clients in (10**3, 10**4, 10**5, 10**6)),
    Work("W7", "modules that go through autograd, one client, batch 10, one thread", "parts",
         module="ours.autograd", rounds=5, limit=900),
    Work("W8", "start-up", "parts", module="ours.commands", model="start-up", limit=300),
    Work("W9", "a table of many clients weighed", "parts", module="ours.commands", model="weigh", limit=300),
    Work("W10", "files: a ledger of 500 rounds x 1,000 clients", "parts", module="ours.files", limit=900),
    Work("W11", "a short study, all cores", "parts", module="ours.study", limit=300),
    Work("W12", "one client of W1, W1f and W2 trained: 600 images, in one process, one thread", "parts",
         module="ours.client", rounds=5, limit=900),
)  # fmt: skip


def make_data(work: Work, folder: Path) -> Path:
    """The work's random rows in files, made once; every client holds equally many, so every draw is as much work."""
    place = folder / f"{work.network}-{work.outputs}-{work.clients}x{work.rows}"
    if (place / "test_offsets.npy").is_file():
        return place
    place.mkdir(parents=True, exist_ok=True)
    random, total = np.random.default_rng(1), work.clients * work.rows
    if work.network == "linear":
        x = random.random((total, FEATURES), dtype=np.float32)
    else:
        x = random.integers(0, 256, (total, 28, 28, 1), dtype=np.uint8)
    np.save(place / "x.npy", x)
    np.save(place / "y.npy", random.integers(0, work.outputs, total))
    np.save(place / "offsets.npy", np.arange(work.clients + 1) * work.rows)
    np.save(place / "test_offsets.npy", np.minimum(np.arange(work.clients + 1), 1))  # one test row, client 0's
    return place
