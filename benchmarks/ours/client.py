"""W12: one client of W1, W1f and W2 trained in every way, in turn, in one process with one thread.

What a busy machine can still judge: it shares the cores among all ways alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from contenders import LOOPS
from ours.task import learner
from ours.timed import Timed
from works import WORKS, Work, make_data

from fedmerit.config.schema import TrainConfig
from fedmerit.core.types import Samples
from peers.bare_torch import Trainer, trainer
from peers.common import Job

IMAGES = 600  # in all epochs together
VARIANTS = dict(zip(LOOPS, ("best-2x1", "last-2x1", "plain-2x1"), strict=True))


def ways(work: Work, data: Path, images: int) -> dict[str, Callable[[], object]]:
    """Client 0 of a work: ours, and the bare loops."""
    epochs, job = max(images // work.rows, 1), work.job(data, "", None)
    config = TrainConfig(lr=job["lr"], epochs=epochs, batch=work.batch or "full")
    rows = slice(0, work.rows)
    samples = Samples(*(np.array(np.load(data / f"{name}.npy", mmap_mode="r")[rows]) for name in "xy"), work.outputs)
    ours = learner(work.model, config)
    made: dict[str, Callable[[], object]] = {"fedmerit": partial(ours.train, ours.start(0), samples, 0)}
    for name, variant in VARIANTS.items():
        made[name] = partial(_train, trainer(Job(**job | {"variant": variant, "epochs": epochs})))
    return {f"{work.name}, {name}": way for name, way in made.items()}


def _train(train: Trainer) -> None:
    start = train.start()
    train(start, 0, torch.empty_like(start))


def main() -> None:
    """Time the ways of each work in turn."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    timed = Timed(job["times"])
    for work in (work for work in WORKS if work.name in ("W1", "W1f", "W2")):
        data = make_data(work, Path(job["folder"]) / "data")
        timed.interleaved(ways(work, data, IMAGES // (10 if job["quick"] else 1)))
    timed.answer()


if __name__ == "__main__":
    main()
