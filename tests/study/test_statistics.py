"""Statistics of paired seeds: laws, values known from elsewhere, and verdicts."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fedmerit.study.metrics import Better
from fedmerit.study.statistics import (
    Paired,
    holm,
    interval,
    paired,
    restricted,
    seeds_for_p,
    wilcoxon,
)
from fedmerit.study.verdicts import judge

numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
differences = st.lists(numbers, min_size=2, max_size=9)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)
times = st.lists(st.one_of(st.just(math.nan), st.integers(1, 40).map(float)), min_size=1, max_size=12)


def smallest_p(seeds: int) -> float:
    """All signs alike, of 2^n: the least p of two sides."""
    return 2.0 ** (1 - seeds)


@given(differences)
def test_an_interval_lies_within_the_differences_and_around_their_mean(values: list[float]):
    low, high = interval(values)
    assert min(values) - 1e-9 <= low <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= high <= max(values) + 1e-9


@given(numbers, st.integers(2, 9))
def test_the_same_difference_in_every_seed_leaves_no_doubt(value: float, seeds: int):
    test = paired([value] * seeds)
    assert (test.low, test.high, test.sd) == (value, value, 0)
    assert test.p == (1.0 if value == 0 else 2.0 ** (1 - seeds))


@given(differences)
def test_swapping_the_rows_flips_the_sign_and_nothing_else(values: list[float]):
    plain, swapped = paired(values), paired([-value for value in values])
    assert swapped.difference == pytest.approx(-plain.difference, abs=1e-9)
    assert (swapped.low, swapped.high) == pytest.approx((-plain.high, -plain.low), abs=1e-6)
    assert swapped.p == pytest.approx(plain.p)


@given(differences, numbers)
def test_an_interval_moves_with_the_differences(values: list[float], shift: float):
    low, high = interval(values)
    moved = interval([value + shift for value in values])
    assert moved == pytest.approx((low + shift, high + shift), abs=1e-6)


@pytest.mark.parametrize(("seeds", "least"), [(5, 0.88), (10, 0.91)])
def test_the_interval_covers_nearly_as_often_as_it_says(seeds: int, least: float):
    random = np.random.default_rng(3)
    covered = [low <= 0 <= high for low, high in (interval(random.normal(size=seeds)) for _ in range(300))]
    assert np.mean(covered) >= least  # plain percentiles of five seeds cover 85 %


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=9))
def test_wilcoxon_is_exact_with_ties_and_zeros(values: list[int]):
    kept = np.array([value for value in values if value])
    assume(len(kept) > 1)
    ranks = stats.rankdata(np.abs(kept))
    observed = abs((ranks * np.sign(kept)).sum())
    signs = itertools.product((-1, 1), repeat=len(kept))
    extreme = np.mean([abs((ranks * np.array(sign)).sum()) >= observed - 1e-9 for sign in signs])
    assert wilcoxon([float(value) for value in values]) == pytest.approx(extreme)


@given(differences)
def test_no_p_is_below_what_so_many_seeds_can_give(values: list[float]):
    assert min(2.0 ** (1 - len(values)), 1.0) - 1e-12 <= wilcoxon(values) <= 1


@pytest.mark.parametrize("seeds", [12, 30, 300])
def test_without_ties_wilcoxon_is_scipys(seeds: int):
    values = np.random.default_rng(1).normal(0.2, 1, seeds)
    assert wilcoxon(values) == pytest.approx(stats.wilcoxon(values).pvalue)


@pytest.mark.parametrize(("rows", "seeds"), [(1, 6), (2, 7), (3, 7), (8, 9)])
def test_from_how_many_seeds_on_p_can_fall_to_a_twentieth(rows: int, seeds: int):
    assert seeds_for_p(rows) == seeds
    assert rows * 2.0 ** (1 - seeds) <= 0.05 < rows * 2.0 ** (2 - seeds)


@given(p_values)
def test_holm_never_lowers_p_and_keeps_the_order(values: list[float]):
    corrected = holm(values)
    assert (corrected >= np.array(values) - 1e-15).all()
    assert (corrected <= 1).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(corrected[order]) >= 0).all()


@given(p_values, st.floats(0.001, 0.2))
def test_holm_rejects_whatever_bonferroni_does(values: list[float], alpha: float):
    assert (holm(values)[np.array(values) * len(values) <= alpha] <= alpha).all()


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, math.nan]) == pytest.approx([0.03, 0.06, 0.06, math.nan], nan_ok=True)


@given(times, st.integers(1, 40))
def test_censoring_only_raises_restricted_means(rounds: list[float], place: int):
    horizon = 40
    censored = list(rounds)
    censored[place % len(rounds)] = math.nan
    assert restricted(censored, horizon).mean() >= restricted(rounds, horizon).mean()
    assert (restricted(rounds, horizon) <= horizon).all()


@given(times)
def test_the_restricted_mean_is_the_area_under_kaplan_meier(rounds: list[float]):
    horizon = 40
    known = [value for value in rounds if not math.isnan(value)]
    data = stats.CensoredData(uncensored=known, right=[horizon] * (len(rounds) - len(known)))
    curve = stats.ecdf(data).sf
    steps = np.concatenate([[0], curve.quantiles[curve.quantiles < horizon], [horizon]])
    heights = curve.evaluate(steps[:-1])
    assert restricted(rounds, horizon).mean() == pytest.approx((np.diff(steps) * heights).sum())


def test_unknown_seeds_do_not_count_and_one_gives_no_interval():
    assert paired([]).seeds == 0
    alone = paired([0.25, math.nan])
    assert (alone.seeds, alone.difference) == (1, 0.25)
    assert math.isnan(alone.low)
    assert paired([1.0, math.nan, 3.0]).difference == 2


@pytest.mark.parametrize(
    ("low", "high", "p", "better", "verdict"),
    [
        (-1, 2, 0.01, "higher", "inside the noise"),
        (0, 2, 0.01, "higher", "inside the noise"),
        (1, 3, 0.2, "higher", "leans better"),
        (1, 3, 0.05, "higher", "better"),
        (1, 3, 0.05, "lower", "worse"),
        (-3, -1, 0.01, "lower", "better"),
        (-3, -1, 0.2, "higher", "leans worse"),
    ],
)
def test_verdicts(low: float, high: float, p: float, better: Better, verdict: str):
    test = Paired(seeds=8, difference=(low + high) / 2, low=low, high=high, p=p / 2, sd=1.0)
    assert judge(test, p, better) == verdict


def test_no_difference_and_too_few_seeds_are_not_noise():
    assert judge(Paired(5, 0.0, 0.0, 0.0, 1.0, 0.0), 1.0, "higher") == "the same"
    assert judge(Paired(1, 0.3, float("nan"), float("nan"), 1.0, float("nan")), 1.0, "higher") == "too few seeds"
    assert judge(Paired(4, 0.3, 0.2, 0.4, 0.125, 0.1), 0.125, "higher") == "too few seeds"
    assert judge(Paired(2, 0.0, 0.0, 0.0, 1.0, 0.0), 1.0, "higher") == "the same"
