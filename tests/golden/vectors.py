"""The numbers of operator_vectors.json: every operator on every vector, computed by two formulae where two exist."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedmerit import Choquet, Prioritized, Product, Score, WeightedMean
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import (
    AS_MANY_AS_POSSIBLE,
    AT_LEAST_HALF,
    MOST,
    Power,
    PrioritizedAnd,
    PrioritizedMean,
    QuantifierOWA,
)

GOLDEN = json.loads((Path(__file__).parent / "operator_vectors.json").read_text(encoding="utf-8"))
CRITERIA = np.array([vector["c"] for vector in GOLDEN["vectors"]], dtype=float)
PAIRS = {tuple(map(int, key.split("-"))): value for key, value in GOLDEN["choquet_2additive"]["interaction"].items()}
SHAPLEY = tuple(GOLDEN["choquet_2additive"]["shapley"])
CLOSE = 1e-9  # the file has ten digits

QUANTIFIERS = {
    "mean": Power(1),
    "rim_alpha2": Power(2),
    "most_03_08": MOST,
    "atleasthalf_0_05": AT_LEAST_HALF,
    "asmanyaspossible_05_1": AS_MANY_AS_POSSIBLE,
}

OPERATORS: dict[str, Score] = {
    "prioritized_scoring": Prioritized(),
    "prioritized_and": PrioritizedAnd(),
    "prioritized_average": PrioritizedMean(),
    "mean": WeightedMean(),
    "product": Product(),
    **{f"owa_{name}": QuantifierOWA(quantifier) for name, quantifier in QUANTIFIERS.items()},
    "choquet_2additive": Choquet(Capacity.two_additive(SHAPLEY, PAIRS)),
}

NAMES = "abc"
_INTERACTION = ", ".join(f'"{NAMES[i]}+{NAMES[j]}" = {value}' for (i, j), value in PAIRS.items())
OPTIONS = {  # what --score is given
    "prioritized_scoring": ["prioritized"],
    "prioritized_and": ["prioritized-and"],
    "prioritized_average": ["prioritized-mean"],
    "mean": ["weighted-mean", '{name = "owa", weights = [0.3333333333, 0.3333333333, 0.3333333334]}'],
    "product": ["product"],
    "owa_mean": ['{name = "owa", quantifier = 1}', '{name = "owa", quantifier = 1, importances = [2, 2, 2]}'],
    "owa_rim_alpha2": ['{name = "owa", quantifier = 2.0}'],
    "owa_most_03_08": ['{name = "owa", quantifier = "most"}', '{name = "owa", quantifier = [0.3, 0.8]}'],
    "owa_atleasthalf_0_05": ['{name = "owa", quantifier = "at-least-half"}'],
    "owa_asmanyaspossible_05_1": ['{name = "owa", quantifier = "as-many-as-possible"}'],
    "choquet_2additive": [
        f'{{name = "choquet", shapley = {list(SHAPLEY)}, interaction = {{{_INTERACTION}}}}}',
        '{name = "choquet", capacity = {a = 0.45, b = 0.15, c = 0.2, "a+b" = 0.8, "a+c" = 0.55, "b+c" = 0.45}}',
    ],
}
