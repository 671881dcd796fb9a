"""FedVal: weights by the accuracy of each client's model at the server, or by its gain over the global model."""

from benchmarks.weighbench.method import Method
from fedmerit import fedval

METHODS = {
    "FedVal accuracy": Method(weighting=lambda cell: fedval("accuracy"), server=True),
    "FedVal gain": Method(weighting=lambda cell: fedval("accuracy", marginal=True), server=True),
}
