"""fedmerit itself: `run_config` into a folder on disk, so with all of the federation's work.

The last round of a run is always tested on all clients; one more round than asked for is run, and left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from memory import tree_bytes
from ours.task import DATA

from fedmerit import run_config
from fedmerit.config.schema import Config
from fedmerit.core.state import Record
from peers.common import Job, Watch

WORKERS = 2
FOLDER = Path(__file__).parents[1] / ".work"  # on a disk, not in memory: a run syncs its files


def config(job: Job) -> Config:
    """The job as a configuration; `variant` names the model."""
    return Config.model_validate(
        {
            "task": {"data": "ours.task:SYNTHETIC", "model": job.variant},
            "train": {"lr": job.lr, "epochs": job.epochs, "batch": job.batch or "full"},
            "run": {
                "rounds": job.total + 1,
                "fraction": job.per_round / job.clients,
                "seed": 1,
                "workers": WORKERS,
                "evaluate_every": job.total + 1,
            },
        }
    )


class Observer:
    """Notes the end of each round, the stages' seconds, and the memory in use after the last timed round."""

    def __init__(self, job: Job) -> None:
        self.watch, self.job = Watch(job), job
        self.stages: list[dict[str, float]] = []
        self.steady = 0

    def __call__(self, record: Record) -> None:
        """After a round is in the ledger."""
        self.watch.lap()
        if self.job.warmup < record.index <= self.job.total:
            self.stages.append(dict(record.seconds))
        if record.index == self.job.total:
            self.steady = tree_bytes(os.getpid())

    def answer(self) -> None:
        """Tell the bench."""
        names = self.stages[0]
        stages = {name: median(laps.get(name, 0.0) for laps in self.stages) for name in names}
        self.watch.answer(stages=stages, steady=self.steady)


def main() -> None:
    """Run the job."""
    job = Job.read()
    os.environ[DATA] = str(job.data)
    observer = Observer(job)
    with TemporaryDirectory(prefix="run-", dir=FOLDER) as folder:
        run_config(config(job), Path(folder) / "run", observer)
    observer.answer()


if __name__ == "__main__":
    main()
