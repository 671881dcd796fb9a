"""Aggregators and clipping equal byzfl's own answers; tools/robust_vectors.py made the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit.core.server.aggregators import NNM, CoordinateMedian, GeometricMedian, TrimmedMean, weiszfeld
from fedmerit.core.server.server import Aggregator, Batch, Mean
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.updates import Updates

CASES = json.loads((Path(__file__).parent / "robust_vectors.json").read_text(encoding="utf-8"))["cases"]
CLOSE = 1e-6


def short_geometric_median(batch: Batch, weights: np.ndarray) -> np.ndarray:
    """byzfl's default: three steps, smoothed by 0.1."""
    rows = [weiszfeld(batch.updates.products, one, 0.1, 3) for one in np.atleast_2d(weights)]
    return batch.updates.combine(np.stack(rows)).reshape(*weights.shape[:-1], batch.updates.length)


def rules(share: float) -> dict[str, Aggregator]:
    """Without Multi-Krum: byzfl's score has n - f - 1 neighbours, the paper's n - f - 2."""
    return {
        "mean": Mean(),
        "median": CoordinateMedian(),
        "trimmed-mean": TrimmedMean(share),
        "geometric-median": short_geometric_median,
        "geometric-median, 32": GeometricMedian(),
        "nnm, trimmed-mean": NNM(TrimmedMean(share), share),
        "nnm, geometric-median": NNM(short_geometric_median, share),
    }


@pytest.mark.parametrize("rule", rules(0.2))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_with_equal_weights_it_is_the_published_rule(case: dict[str, Any], rule: str) -> None:
    updates = Updates(np.array(case["updates"], dtype=np.float32))
    number = len(updates)
    aggregator = rules(case["f"] / number)[rule]
    for weights in (np.full(number, 1 / number), np.full((2, number), 1 / number)):
        found = np.atleast_2d(aggregator(Batch(updates), weights))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [case[rule]] * len(found), atol=CLOSE, rtol=CLOSE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_clipped_updates(case: dict[str, Any]) -> None:
    updates = Updates(np.array(case["updates"], dtype=np.float32))
    cut = updates.mix(clip_factors(updates.norms, 2.0))
    np.testing.assert_allclose(cut.combine(np.eye(len(cut))), case["clipped at 2"], atol=CLOSE)
