"""FedAvg: weights by the number of rows [McMahan et al. 2017]; and equal weights."""

import numpy as np

from benchmarks.weighbench.method import Method

METHODS = {
    "rows (FedAvg)": Method(lambda cell: cell.rows, lambda cell: cell.shares),
    "equal": Method(lambda cell: np.ones(cell.number), lambda cell: np.full(cell.number, 1 / cell.number)),
}
