"""FedLab 1.3: the standalone pipeline with its serial FedAvg trainer, in one process.

FedLab's FedAvg handler averages with equal weights; all clients here hold the same number of rows, so that is the same.
"""

from __future__ import annotations

import peers.torchvision_without_cuda  # noqa: F401  # isort: skip
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader, TensorDataset

from peers.common import Data, Job, Watch, network


class Rows(FedDataset):
    """The clients' rows behind FedLab's interface."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.num = job.clients
        self.sets = [TensorDataset(x, y) for x, y in Data.open(job).clients()]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> DataLoader:
        """A loader of one client's rows."""
        return DataLoader(self.sets[id], batch_size=batch_size or len(self.sets[id]), shuffle=True)


class Timed(StandalonePipeline):
    """The pipeline calls `evaluate` at the end of each round: here only the watch is looked at."""

    watch: Watch

    def evaluate(self) -> None:
        """Note the time."""
        self.watch.lap()


def main() -> None:
    """Run the job."""
    job = Job.read()
    model = network(job)
    trainer = FedAvgSerialClientTrainer(model, job.clients)
    trainer.setup_dataset(Rows(job))
    trainer.setup_optim(job.epochs, job.batch, job.lr)
    pipeline = Timed(FedAvgServerHandler(model, job.total, job.share), trainer)
    pipeline.watch = Watch(job)
    pipeline.main()
    pipeline.watch.answer()


if __name__ == "__main__":
    main()
