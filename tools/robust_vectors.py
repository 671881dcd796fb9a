"""Make tests/golden/robust_vectors.json: what byzfl 0.0.11 (MIT) makes of random updates of ours.

In an environment of its own, with fedmerit not needed: pip install byzfl==0.0.11; python tools/robust_vectors.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import byzfl
import numpy as np

TARGET = Path(__file__).parents[1] / "tests/golden/robust_vectors.json"
CASES = {"even": (10, 6, 2, 11), "odd": (7, 5, 3, 12), "one cut": (5, 4, 1, 13), "spread": (12, 3, 4, 14)}


def main() -> None:
    """A case per number of updates, length, number of attackers f, and seed; the last f rows are attackers."""
    cases = [made(name, *numbers) for name, numbers in CASES.items()]
    text = {"made by": "tools/robust_vectors.py with byzfl 0.0.11", "cases": cases}
    TARGET.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def made(name: str, number: int, length: int, attackers: int, seed: int) -> dict[str, Any]:
    """Inputs that float32 holds exactly, and byzfl's answers in double precision."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, length)).astype(np.float32).astype(np.float64)
    rows[-attackers:] *= 8.0
    mixed = byzfl.NNM(f=attackers)(rows)
    return {
        "name": name,
        "updates": rows.tolist(),
        "f": attackers,
        "mean": byzfl.Average()(rows).tolist(),
        "median": byzfl.Median()(rows).tolist(),
        "trimmed-mean": byzfl.TrMean(f=attackers)(rows).tolist(),
        "geometric-median": byzfl.GeometricMedian(nu=0.1, T=3)(rows).tolist(),
        "geometric-median, 32": byzfl.GeometricMedian(nu=1e-6, T=32)(rows).tolist(),
        "nnm": mixed.tolist(),
        "nnm, trimmed-mean": byzfl.TrMean(f=attackers)(mixed).tolist(),
        "nnm, geometric-median": byzfl.GeometricMedian(nu=0.1, T=3)(mixed).tolist(),
        "clipped at 2": byzfl.Clipping(c=2.0)(rows.copy()).tolist(),
    }


if __name__ == "__main__":
    main()
