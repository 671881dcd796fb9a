"""fluke 0.8.1: its FedAVG over its FastDataLoader, in one process."""

from __future__ import annotations

import peers.torchvision_without_cuda  # noqa: F401  # isort: skip
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver

from peers.common import Data, Job, Watch, network


class Timer(FederationObserver):
    """Notes the end of each round."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def end_round(self, round: int) -> None:
        """Note the time."""
        self.watch.lap()


def settings(job: Job) -> DDict:
    """Plain SGD, weights by rows."""
    client = {
        "batch_size": job.batch,
        "local_epochs": job.epochs,
        "loss": "CrossEntropyLoss",
        "optimizer": {"name": "SGD", "lr": job.lr},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    return DDict(client=client, server={"weighted": True}, model=network(job))


def splitter(job: Job) -> DataSplitter:
    """Fixed clients, no test sets."""
    options = {"num_labels": job.outputs, "batch_size": job.batch, "shuffle": True, "skip_singleton": False}
    loaders = [FastDataLoader(x, y, **options) for x, y in Data.open(job).clients()]
    return DataSplitter(DummyDataContainer(loaders, [None] * job.clients, None, job.outputs))


def main() -> None:
    """Run the job."""
    job = Job.read()
    FlukeENV().set_seed(0)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    watch = Watch(job)
    federation = FedAVG(job.clients, splitter(job), settings(job))
    federation.set_callbacks([Timer(watch)])
    federation.run(job.total, job.share)
    watch.answer()


if __name__ == "__main__":
    main()
