"""fresh: the ServerApp."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fresh.task import get_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start the strategy."""
    num_rounds = context.run_config["num-server-rounds"]
    fraction_train = context.run_config["fraction-train"]
    arrays = ArrayRecord(get_model())
    strategy = FedAvg(fraction_train=fraction_train)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=num_rounds)
