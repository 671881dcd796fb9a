"""Successive halving: who goes on, by which rule, and what a tuning refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import UserError
from fedmerit.config.schema import validate
from fedmerit.study.tuning import Outcome, Tuning, halve

LRS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def tuning(**settings: Any) -> Tuning:
    return validate(Tuning, {"grid": {"train.lr": LRS}} | settings)


def outcomes(means: list[float], seeds: tuple[int, ...] = (101, 102, 103, 104, 105), **more: Any) -> Any:
    return {(point, seed): Outcome(mean, 0.5) for point, mean in enumerate(means) for seed in seeds} | more.get(
        "but", {}
    )


def test_half_goes_on_with_twice_the_seeds_and_two_points_to_the_last():
    halving = halve(tuning(), outcomes([0.1, 0.6, 0.3, 0.5, 0.2, 0.4]))
    assert [heat.points for heat in halving.heats] == [(1, 3, 5, 2, 4, 0), (1, 3, 5), (1, 3), (1, 3)]
    assert [len(heat.seeds) for heat in halving.heats] == [1, 2, 4, 5]
    assert halving.best == 1
    assert len(halving.asked) == tuning().runs == 6 + 3 + 2 * 2 + 2


def test_a_later_seed_can_turn_the_order_among_those_that_are_left():
    but = {(3, seed): Outcome(0.9, 0.5) for seed in (102, 103, 104, 105)}
    assert halve(tuning(), outcomes([0.1, 0.6, 0.3, 0.5, 0.2, 0.4], but=but)).best == 3
    dropped = {(0, seed): Outcome(0.9, 0.5) for seed in (102, 103, 104, 105)}
    assert halve(tuning(), outcomes([0.1, 0.6, 0.3, 0.5, 0.2, 0.4], but=dropped)).best == 1


def test_with_as_many_first_seeds_as_there_are_no_point_drops_out():
    whole = tuning(first=5)
    assert whole.heat_sizes == [(6, 5)]
    assert whole.runs == 30
    assert halve(whole, outcomes([0.1, 0.6, 0.3, 0.5, 0.2, 0.4])).best == 1


def test_ties_go_to_the_higher_accuracy_and_then_to_the_earlier_point():
    by_rounds = tuning(target=0.5)
    same = {(point, seed): Outcome(9.0, 0.4) for point in range(6) for seed in by_rounds.seeds}
    assert halve(by_rounds, same).best == 0
    higher = same | {(4, seed): Outcome(9.0, 0.6) for seed in by_rounds.seeds}
    assert halve(by_rounds, higher).best == 4
    fewer = higher | {(2, seed): Outcome(8.0, 0.1) for seed in by_rounds.seeds}
    assert halve(by_rounds, fewer).best == 2


def test_what_is_not_known_is_the_worst():
    known = outcomes([0.1] * 6) | {(0, seed): Outcome(math.nan, math.nan) for seed in tuning().seeds}
    halving = halve(tuning(), known)
    assert halving.heats[0].points[-1] == 0
    assert halving.best == 1


def test_a_halving_asks_for_what_its_heat_lacks_and_no_more():
    halving = halve(tuning(), {})
    assert halving.missing == tuple((point, 101) for point in range(6))
    assert halving.best is None
    first = outcomes([0.1, 0.6, 0.3, 0.5, 0.2, 0.4], seeds=(101,))
    assert halve(tuning(), first).missing == ((1, 102), (3, 102), (5, 102))


@given(
    st.integers(2, 12),
    st.integers(1, 9),
    st.data(),
)
def test_step_by_step_or_at_once_the_halving_is_the_same(number: int, seeds: int, data: st.DataObject):
    """So a tuning that was stopped after any run goes on to the same end."""
    grid = {"train.lr": [(i + 1) / 10 for i in range(number)]}
    plan = tuning(grid=grid, seeds=seeds, first=data.draw(st.integers(1, seeds)))
    values = st.sampled_from([0.1, 0.2, 0.3, math.nan])
    everything = {
        (p, seed): Outcome(data.draw(values), data.draw(values)) for p in range(number) for seed in plan.seeds
    }
    known: dict[tuple[int, int], Outcome] = {}
    while missing := halve(plan, known).missing:
        known[missing[0]] = everything[missing[0]]
    assert len(known) == plan.runs
    assert halve(plan, known) == halve(plan, everything)
    last = halve(plan, known).heats[-1]
    assert last.seeds == plan.seeds
    assert len(last.points) >= 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": []}, "at least one seed"),
        ({"seeds": 0}, "at least one seed"),
        ({"seeds": [7, 7]}, "tuning seeds must differ from each other; got more than once: 7"),
        ({"seeds": [-1]}, "greater than or equal to 0"),
        ({"seeds": 10**9}, "at most 10,000 seeds"),
        ({"first": 0}, "first"),
        ({"first": 6}, "first is at most the number of tuning seeds, 5; got 6"),
        ({"by": "acuracy"}, "unknown measure to tune by 'acuracy' (did you mean 'accuracy'?)"),
        ({"by": "rounds"}, "needs a target accuracy, such as target = 0.75"),
        ({"by": "best", "target": 0.5}, "target and share have no effect in tuning by best"),
        ({"share": 0.5}, "target and share have no effect in tuning by accuracy"),
        ({"target": 1.5}, "target"),
        ({"target": math.nan}, "target"),
        ({"target": 0.5, "share": 0.0}, "share"),
        ({"by": "audit accuracy"}, "tuning by audit accuracy needs run.audit = ['accuracy']; got []"),
        (
            {"by": "gap accuracy", "base": {"run": {"audit": ["accuracy"]}}},
            "runs write accuracy down as 'audit accuracy'",
        ),
        ({"grid": []}, "a grid is a table of keys and values"),
        ({"grid": {}}, "got no key"),
        ({"grid": {"train.lr": 0.1}}, "the grid of train.lr is a list of values to try"),
        ({"base": {"tsk": {}}}, "unknown key 'tsk' (did you mean 'task'?)"),
        ({"grids": {}}, "unknown key 'grids' (did you mean 'grid'?)"),
    ],
)
def test_a_mistake_is_named(settings: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        tuning(**settings)
    assert message in str(caught.value)


def test_the_measure_is_rounds_where_a_target_is_set():
    assert (tuning().measure, tuning().better) == ("accuracy", "higher")
    assert (tuning(target=0.75).measure, tuning(target=0.75).better) == ("rounds", "lower")
    assert tuning(target=0.75).about == "rounds until 50% of the devices are above 75%"
    audited = tuning(by="gap parity:sex", base={"run": {"audit": ["parity:sex"]}})
    assert audited.better == "lower"
