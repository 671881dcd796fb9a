"""ServerApp."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result

from torchadvanced.task import Net, load_data, test

app = ServerApp()


class CustomFedAvg(FedAvg):
    """Halves the learning rate, keeps the best model, writes results to a file; has its own loop over rounds."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 2:
            config["lr"] = config["lr"] * 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        self.summary()
        result, arrays, best = Result(), initial_arrays, 0.0
        train_config, evaluate_config = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        for current in range(1, num_rounds + 1):
            messages = self.configure_train(current, arrays, train_config, grid)
            new, metrics = self.aggregate_train(current, grid.send_and_receive(messages=messages, timeout=timeout))
            if new is not None:
                result.arrays = arrays = new
            if metrics is not None:
                result.train_metrics_clientapp[current] = metrics
            messages = self.configure_evaluate(current, arrays, evaluate_config, grid)
            tested = self.aggregate_evaluate(current, grid.send_and_receive(messages=messages, timeout=timeout))
            if tested is not None:
                result.evaluate_metrics_clientapp[current] = tested
            found = evaluate_fn(current, arrays) if evaluate_fn else None
            if found is not None:
                result.evaluate_metrics_serverapp[current] = found
                if found["accuracy"] > best:
                    best = found["accuracy"]
                    torch.save(arrays.to_torch_state_dict(), "best_model.pt")
        results = {number: dict(one) for number, one in result.evaluate_metrics_clientapp.items()}
        Path("results.json").write_text(json.dumps(results), encoding="utf-8")
        return result


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    config = context.run_config
    strategy = CustomFedAvg(fraction_train=config["fraction-train"], fraction_evaluate=config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    _, _, x, y = load_data(0, 1)
    loss, accuracy = test(net, x, y)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
