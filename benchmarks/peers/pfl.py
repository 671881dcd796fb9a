"""pfl 0.6: FederatedAveraging on a simulated backend, weights by data points, in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from peers.common import Data, Job, Watch, network

NEVER = 10**9


class Model(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.network = network(job)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy."""
        self.train()
        return cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Asked for once, before the first round."""
        return {"loss": Weighted(float(cross_entropy(self.network(x), y, reduction="sum")), len(y))}


class Timer(TrainingProcessCallback):
    """Notes the end of each round."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def after_central_iteration(self, *args: Any, **kwargs: Any) -> tuple[bool, Metrics]:
        """Note the time; go on."""
        self.watch.lap()
        return False, Metrics()


def backend(job: Job) -> SimulatedBackend:
    """The clients' rows, and how they are drawn and weighted."""
    rows = Data.open(job).clients()
    sampler = get_user_sampler("minimize_reuse", list(range(job.clients)))
    users = FederatedDataset(lambda user: Dataset(list(rows[user]), user_id=str(user)), sampler)
    return SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()])


def main() -> None:
    """Run the job."""
    job = Job.read()
    np.random.seed(0)
    watch, module = Watch(job), Model(job)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(job.total, NEVER, job.per_round, None),
        backend=backend(job),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=job.batch or None, local_num_epochs=job.epochs, local_learning_rate=job.lr
        ),
        callbacks=[Timer(watch)],
    )
    watch.answer()


if __name__ == "__main__":
    main()
