"""Constants: thresholds and guards as they were chosen; one that moves changes what every run does, without a word."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

CONSTANTS: dict[str, dict[str, Any]] = {
    "adaptive_clip": {"OF_EXPECTED": 20},
    "aggregators": {"ROUNDING": 1e-9},
    "boldest": {
        "STEPS": ((2.0, 0.9), (1.0, 0.9), (0.5, 0.9), (0.3, 0.9), (1.0, 0.5), (1.0, 0.0), (0.2, 0.8), (0.3, 0.3))
    },
    "capacity": {"TOLERANCE": 1e-9, "LARGEST": 16},
    "caps": {"OUR_CAP": 2.0, "ANCHOR_SHARES": 2.0, "SLACK": 1e-12},
    "centring": {"LARGEST": 1e6},
    "check": {"SHORTEST_TRIP": 1e-3},
    "claims": {"ANCHOR_MEDIANS": 2.0},
    "company": {
        "FEWEST": 6,
        "OPPOSED": 0.9,
        "OPPOSED_COSINE": 0.1,
        "SEEN": 0.35,
        "CLOSER": 1.5,
        "OTHERS": 1 / 3,
        "SHARP": 0.5,
        "BEYOND": 0.2,
        "CERTAIN": 0.97,
        "SWEEPS": 20,
        "LEAST_USUAL": 0.5,
        "LEAST_COMMON": 0.7,
    },
    "computation": {"SHORTEST": 1e-9},
    "consistency": {
        "ZERO_SUM": 1e-3,
        "LABELS_PER_PUSHED": 3.0,
        "PUSHED_BY_BALANCE": 2.5,
        "NEAR_MEAN": 0.75,
        "SUSPECT": 0.5,
    },
    "contribution": {"MOST_EXACT": 12},
    "criteria": {"NO_GAIN": 1e-6},
    "facts": {"MOST_SAMPLES": 1e9},
    "groups": {"FARTHEST": 2.0},
    "lateness": {"ROUNDING": 1e-9},
    "learner": {"LEAST_PROBABILITY": 1e-12, "LOSS_UNIT": 2.0**-20, "MOST_LOSS": 28.0},
    "measures": {
        "PERCENTILES": (10, 50, 90),
        "WORST": 0.1,
        "TARGETS": (0.7, 0.8, 0.9, 0.95),
        "SHARES": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    },
    "objectives": {"LOWEST": -1e6},
    "panel": {"AT_ONCE": 8},
    "reasons": {"NEAR": 1e-9},
    "results": {"USUAL_DEVIATION": 2.0, "FARTHEST": 1e6, "SUM_TO_ONE": 1000.0},
    "rewards": {"ROUNDING": 1e-9},
    "robust_criteria": {
        "SHORTEST": 0.1,
        "LONGEST": 8.0,
        "SAME": 1e-6,
        "LEFT_ALONE": 0.03,
        "FEW": 0.7,
        "TOGETHER": 0.02,
        "DOUBTED": 0.7,
    },
    "scores": {"SUM_TOLERANCE": 1e-6},
    "search": {"MOST_CRITERIA": 6},
    "selection": {"FEWEST": 10},
    "showing": {"MOST_TEXT": 500},
    "suspects": {
        "LEAST_ROUNDS": 3,
        "LEAST_SHARE": 0.5,
        "LEAST_COHORT": 4,
        "ZERO": 1e-6,
        "SHORT": 0.3,
        "LONG": 3.0,
        "AGAINST": -0.2,
        "DEVIATIONS": 2.5,
        "LOW_SCORE": 0.5,
        "LARGE_CLAIM": 5.0,
    },
    "types": {"RECENT": 9},
    "updates": {"NARROW": 64, "MANY": 16, "SQUARED": 131072},
    "validation": {"SERVER": -1},
    "weights": {"VISIBLE": 0.01, "SHOWN": 8},
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_as_they_were_chosen(name: str):
    module = import_module(f"fedmerit.core.{name}")
    assert {constant: getattr(module, constant) for constant in CONSTANTS[name]} == CONSTANTS[name]
