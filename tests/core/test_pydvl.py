"""Shapley values beside those of pyDVL 0.10, the library for them; skipped where it is not installed.

It needs numpy below 2, and the project's is above: give it an environment of its own, and run this file there,
`PYTHONPATH=src python -m pytest --noconftest -c /dev/null tests/core/test_pydvl.py`.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fedmerit.core.criteria.contribution import banzhaf, sampled_shapley, shapley

CLIENTS = 6


def pydvl_values(values: np.ndarray, method: str) -> np.ndarray:
    """What pyDVL makes of a game that is given by the worth of each coalition, numbered by its members' bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        valuation = pytest.importorskip("pydvl.valuation", reason="pyDVL is not installed: pip install pydvl==0.10.*")

    class Worth(valuation.utility.base.UtilityBase):
        def __call__(self, sample: object) -> float:
            members = () if sample is None else sample.subset  # type: ignore[attr-defined]
            return float(values[sum(1 << int(member) for member in members)])

    rows = valuation.Dataset(np.arange(CLIENTS, dtype=float)[:, None], np.zeros(CLIENTS))
    sampler = valuation.DeterministicUniformSampler(batch_size=1)
    kind = valuation.ShapleyValuation if method == "shapley" else valuation.BanzhafValuation
    found = kind(Worth(), sampler, is_done=valuation.NoStopping(sampler), progress=False)
    result = found.fit(rows).result
    ours = np.empty(CLIENTS)
    ours[result.indices] = result.values
    return ours


@pytest.mark.parametrize("seed", range(3))
def test_exact_values_are_pydvls(seed: int):
    values = np.random.default_rng(seed).uniform(size=1 << CLIENTS)
    values[0] = 0

    def worth(who: np.ndarray) -> np.ndarray:
        return values[who @ (1 << np.arange(CLIENTS))]

    theirs = pydvl_values(values, "shapley")
    assert shapley(worth, CLIENTS) == pytest.approx(theirs, abs=1e-9)
    assert banzhaf(worth, CLIENTS) == pytest.approx(pydvl_values(values, "banzhaf"), abs=1e-9)
    drawn, errors = sampled_shapley(worth, CLIENTS, orders=400, seed=seed)
    assert (np.abs(drawn - theirs) < 5 * errors).all()
