"""ServerApp."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sklearnquick.task import create_model, get_model_params, set_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model = create_model()
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_model_params(model)),
        num_rounds=context.run_config["num-server-rounds"],
    )
    set_model_params(model, result.arrays.to_numpy_ndarrays())
    np.savez("final_model.npz", *get_model_params(model))
