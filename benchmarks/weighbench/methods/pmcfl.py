"""PMCFL: prioritized criteria dataset size, label diversity and model weight; three of the six orders."""

from benchmarks.weighbench.method import Method
from fedmerit import prioritized

METHODS = {
    f"PMCFL {' > '.join(order)}": Method(weighting=lambda cell, order=order: prioritized(*order), sends="2")
    for order in (("DS", "LD", "MW"), ("LD", "DS", "MW"), ("MW", "LD", "DS"))
}
