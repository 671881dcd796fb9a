"""q-FedAvg [Li et al. 2020] and AFL [Mohri et al. 2019]: more weight for clients with a high loss."""

from benchmarks.weighbench.method import Method
from fedmerit import agnostic, qffl

METHODS = {
    "q-FFL, q = 1": Method(weighting=lambda cell: qffl(1.0), sends="1"),
    "AFL": Method(weighting=lambda cell: agnostic(), sends="1"),
}
