"""Flower 1.41: the Message API on the simulation runtime (Ray), one core per client, so two clients at a time."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from peers.common import Data, Job, Watch, network

CORES = 2


def client_app(job: Job) -> ClientApp:
    """A client that trains its own rows, as in Flower's PyTorch tutorial."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = network(job)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        rows = TensorDataset(*Data.open(job).client(int(context.node_config["partition-id"])))
        loader = DataLoader(rows, batch_size=job.batch or len(rows), shuffle=True)
        fit(model, loader, job)
        metrics = MetricRecord({"num-examples": len(rows)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def fit(model: torch.nn.Module, loader: Any, job: Job) -> None:
    """Epochs of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr)
    model.train()
    for _ in range(job.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()


def server_app(job: Job, watch: Watch) -> ServerApp:
    """FedAvg; Flower calls `evaluate_fn` before the first round and after each one: here it only notes the time."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=job.share, fraction_evaluate=0.0, min_available_nodes=job.clients)
        arrays = ArrayRecord(network(job).state_dict())
        strategy.start(grid, arrays, num_rounds=job.total, evaluate_fn=lambda round, _: watch.lap() if round else None)

    return app


def main() -> None:
    """Run the job."""
    job = Job.read()
    watch = Watch(job)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": CORES}}
    run_simulation(server_app(job, watch), client_app(job), num_supernodes=job.clients, backend_config=resources)
    watch.answer()


if __name__ == "__main__":
    main()
