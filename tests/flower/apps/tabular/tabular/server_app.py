"""ServerApp."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tabular.task import IncomeClassifier

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    arrays = ArrayRecord(IncomeClassifier().state_dict())
    strategy = FedAvg()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
