"""How long a server waits: the deadline, k of n, and simulated delays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.collect.collect import Uniform
from fedmerit.core.collect.late import Delayed, Staleness, Wait

TIMES = st.lists(st.floats(0, 1000), min_size=1, max_size=20)
EVERYBODY = Uniform(1.0)
WAITS = st.builds(Wait, st.floats(0.01, 1), st.floats(0.1, 500))


def delayed(share: float, seconds: float, wait: Wait, base_seconds: float = 0.0) -> Delayed:
    return Delayed(EVERYBODY, wait, share, seconds, base_seconds)


@given(TIMES, WAITS)
def test_a_round_ends_as_soon_as_it_may_and_no_sooner(times: list[float], wait: Wait):
    ends = wait.ends(times)
    answered = sum(time <= ends for time in times)
    assert answered == len(times) or wait.is_over(answered, len(times), ends)
    assert answered >= wait.enough(len(times))
    before = [time for time in times if time < ends]
    assert ends <= wait.seconds or not wait.is_over(len(before), len(times), max([wait.seconds, *before]))


def test_by_hand():
    wait = Wait(min_fraction=0.7, seconds=60)
    assert wait.enough(10) == 7
    assert wait.ends([1, 2, 3, 50]) == 50  # all are there before the deadline
    assert wait.ends([1, 2, 3, 600]) == 60  # 3 of 4 are enough at the deadline
    assert wait.ends([1, 2, 300, 600]) == 300  # 2 are not: the third is waited for
    assert Wait(0.01, 60).enough(3) == 1


def test_delays_are_drawn_by_round_and_client_alone():
    delays = delayed(0.5, 100.0, Wait(0.5, 10.0))
    whole = delays.arrivals(3, range(20), seed=1)
    assert delays.arrivals(3, [7, 2], seed=1) == {7: whole[7], 2: whole[2]}
    assert delays.arrivals(4, range(20), seed=1) != whole
    assert 3 < sum(time > 0 for time in whole.values()) < 17


def test_nobody_is_late_where_all_are_needed():
    assert delayed(1.0, 100.0, Wait(1.0, 1.0)).late(1, range(9), seed=0) == {}
    late = delayed(1.0, 100.0, Wait(1 / 3, 1.0)).late(1, range(9), seed=0)
    assert len(late) == 6
    assert all(reason.startswith("late: it would have answered after") for reason in late.values())


def test_without_delays_all_are_in_time():
    assert delayed(1e-9, 100.0, Wait(0.5, 1.0)).late(1, range(9), seed=0) == {}


def test_with_more_asked_than_needed_the_first_are_enough():
    wait = Wait(min_fraction=0.5, seconds=60, overselect=1.3)
    assert [wait.needed(asked) for asked in (1, 13, 14, 26)] == [1, 10, 10, 20]
    assert Wait(0.5, 60).needed(7) == 7
    assert [wait.enough(asked) for asked in (1, 13)] == [1, 5]
    assert (wait.is_over(9, 13, 5), wait.is_over(10, 13, 5), wait.is_over(5, 13, 60)) == (False, True, True)
    assert not Wait(0.5, 60).is_over(10, 10, 5), "without over-selection the clock decides"
    assert wait.ends([float(time) for time in range(13)]) == 9
    assert wait.ends([]) == 0
    assert wait.ends([60.0]) == 60


def test_who_answers_at_the_same_time_as_the_last_needed_is_not_needed():
    delays = delayed(1e-9, 1.0, Wait(0.5, 60.0, overselect=2.0), base_seconds=3.0)
    assert delays.arrivals(1, range(3), seed=0) == {0: 3, 1: 3, 2: 3}
    late = delays.late(1, range(10), seed=0)
    assert len(late) == 5
    assert set(late.values()) == {"not needed: 5 of the 10 clients asked had answered after 3.0 s"}
    assert late == delays.late(1, range(10), seed=0)
    assert len({tuple(delays.late(index, range(10), seed=0)) for index in range(5)}) > 1
    assert delayed(1e-9, 1.0, Wait(0.5, 60.0), base_seconds=3.0).late(1, range(10), seed=0) == {}
    assert delays.ends([]) == 60


def test_who_is_late_is_told_when():
    delays = delayed(1.0, 100.0, Wait(0.5, 20.0, overselect=1.25), base_seconds=1.0)
    arrivals = delays.arrivals(2, range(10), seed=3)
    assert min(arrivals.values()) > 1
    ends = delays.ends(list(arrivals.values()))
    late = delays.late(2, range(10), seed=3)
    assert set(late) == {client for client, time in arrivals.items() if time > ends}
    for client, text in late.items():
        assert text == (
            f"late: it would have answered after {arrivals[client]:.1f} s, but the round ended after {ends:.1f} s"
        )


def test_freshness_is_a_degree():
    assert (Staleness().degree, Staleness().required_facts) == (True, ("staleness",))
