"""Recipes of this project: robust without and with server rows, and the memory of last answers."""

from benchmarks.weighbench.method import Method
from fedmerit import last_answers, robust

METHODS = {
    "robust": Method(weighting=lambda cell: robust()),
    "robust, server rows": Method(weighting=lambda cell: robust(server_rows=True), server=True),
    "last answers": Method(weighting=lambda cell: last_answers()),
}
