"""DAFL: the order of the criteria is chosen in each round by the clients' accuracy; they judge on their own rows."""

from benchmarks.weighbench.method import Method
from fedmerit import device_aware

METHODS = {"DAFL": Method(weighting=lambda cell: device_aware("DS", "LD", "MW"), sends="2 + 1 per candidate")}
