"""The numbers of operator_vectors.json: every operator on every vector."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedmerit import OWA, Choquet, Prioritized, Product, Score, WeightedMean

GOLDEN = json.loads((Path(__file__).parent / "operator_vectors.json").read_text(encoding="utf-8"))
CRITERIA = np.array([vector["c"] for vector in GOLDEN["vectors"]], dtype=float)
SHAPLEY = tuple(GOLDEN["choquet_2additive"]["shapley"])
PAIRS = tuple((*map(int, key.split("-")), value) for key, value in GOLDEN["choquet_2additive"]["interaction"].items())
CLOSE = 1e-9  # the file has ten digits

NAMES = "abc"
OPERATORS: dict[str, tuple[Score, str]] = {
    "prioritized_scoring": (Prioritized(), "prioritized"),
    "mean": (WeightedMean(), "weighted-mean"),
    "product": (Product(), "product"),
    **{
        f"owa_{name}": (OWA(tuple(weights)), f'{{name = "owa", weights = {weights}}}')
        for name, weights in GOLDEN["owa_weights_n3"].items()
    },
    "choquet_2additive": (
        Choquet(SHAPLEY, PAIRS),
        f'{{name = "choquet", shapley = {list(SHAPLEY)}, interaction = {list(map(list, PAIRS))}}}',
    ),
}
"""Each operator, and what `--score` is given for it."""
