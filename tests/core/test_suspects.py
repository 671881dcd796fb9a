"""Suspects: what is odd in a round, and that nobody is suspected for one number."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fedmerit import Prioritized, weigh
from fedmerit.core.state import Record
from fedmerit.core.suspects import (
    LEAST_ROUNDS,
    SUPPORTING,
    Evidence,
    Looked,
    RoundSeen,
    Watch,
    find_suspects,
    is_refusal,
    look,
    seen_of,
)
from fedmerit.core.types import Note
from fedmerit.core.updates import Diagnostics

IDS = tuple(range(6))
PLAIN = RoundSeen(
    1,
    IDS,
    norms=np.array([1.0, 1.1, 0.9, 1.2, 0.8, 1.05]),
    cosines=np.array([0.4, 0.5, 0.45, 0.3, 0.35, 0.42]),
    facts={"samples": np.array([10.0, 12, 9, 30, 8, 11])},
)


def changed(values: np.ndarray, place: int, value: float) -> np.ndarray:
    copy = values.copy()
    copy[place] = value
    return copy


def kinds(seen: RoundSeen) -> list[tuple[int, str]]:
    return [(one.client, one.kind) for one in look(seen).evidence]


def test_zeros_are_seen_even_where_most_send_them() -> None:
    seen = replace(PLAIN, norms=np.array([0.0, 0, 0, 0, 1, 1.1]))
    assert kinds(seen) == [(client, "zero") for client in range(4)]


def test_where_all_disagree_or_one_is_unknown_nobody_points_away() -> None:
    assert kinds(replace(PLAIN, cosines=changed(PLAIN.cosines, 1, float("nan")))) == []
    assert kinds(replace(PLAIN, cosines=np.array([-0.5, 0.5, -0.4, 0.4, -0.3, 0.3]))) == []


def test_claims_refusals_and_notes() -> None:
    seen = replace(
        PLAIN,
        facts={"samples": changed(PLAIN.facts["samples"], 3, 900)},
        refused={9: "fact labels lies in 0..10: 99"},
        notes=((0, "cap", "its weight was cut"), (1, "claim-changed", "labels"), (3, "claim-cut", "counts as 10")),
    )
    assert kinds(seen) == [(0, "noted"), (1, "claim"), (3, "claim"), (9, "refused")]
    assert look(seen).answered == {*IDS, 9}


def test_few_clients_or_nothing_known_is_not_odd() -> None:
    few = RoundSeen(1, (0, 1), np.array([1.0, 99]), np.array([-1.0, -1]), {})
    unknown = replace(PLAIN, norms=np.full(6, np.nan), cosines=np.full(6, np.nan))
    assert kinds(few) == kinds(unknown) == kinds(RoundSeen(1, (), np.empty(0), np.empty(0), {})) == []


def rounds(odd: list[str | None]) -> list[Looked]:
    """Client 0 answers in every round; what is odd of it in each."""
    return [
        Looked(index, frozenset({0, 1}), () if kind is None else (Evidence(index, 0, kind, "something"),))  # type: ignore[arg-type]
        for index, kind in enumerate(odd, start=1)
    ]


def test_since_when_and_how_often() -> None:
    (suspect,) = find_suspects(rounds([None, "long", "long", None, "against", "long"]))
    assert (suspect.client, suspect.since, suspect.answered) == (0, 5, 6)
    assert suspect.kinds == {"long": [2, 3, 6], "against": [5]}
    assert suspect.summary.startswith("in 3 of its 6 rounds: something (round 2); in 1 of its 6")


@given(st.lists(st.sampled_from([None, "claim", "noted"]), max_size=30))
def test_claims_alone_never_suffice(odd: list[str | None]) -> None:
    assert set(odd) - {None} <= set(SUPPORTING)
    assert find_suspects(rounds(odd)) == []


@given(st.lists(st.sampled_from([None, "zero", "long", "claim", "twin"]), max_size=30))
def test_nobody_is_suspected_for_less_than_three_rounds_or_half(odd: list[str | None]) -> None:
    counted = sum(kind in ("zero", "long", "twin") for kind in odd)
    assert bool(find_suspects(rounds(odd))) == (counted >= max(LEAST_ROUNDS, len(odd) / 2))


def test_a_record_tells_what_was_seen_and_said_of_each_client() -> None:
    kind = "zero-scores"
    of_all, of_one = Note(kind, "DS", "all alike"), Note(kind, "DS", "too much", client=3)
    weights = replace(weigh(np.ones((2, 1)), ("DS",), Prioritized()), notes=(of_all, replace(of_one, text="cut")))
    bare = Record(7, ("DS",), (1, 3), {"samples": np.array([1.0, 2])}, None, {5: "did not answer"}, None, 0, 0, {})
    full = replace(
        bare,
        weights=weights,
        notes=(of_all, of_one),
        diagnostics=Diagnostics(np.array([1.0, 2]), np.array([0.5, -0.5])),
    )
    assert seen_of(full).notes == ((3, str(kind), "too much"), (3, str(kind), "cut"))
    assert (seen_of(full).norms.tolist(), seen_of(full).cosines.tolist()) == ([1, 2], [0.5, -0.5])
    assert (seen_of(full).index, seen_of(full).ids, seen_of(full).facts) == (7, (1, 3), bare.facts)
    assert seen_of(bare).notes == ()
    assert not seen_of(bare).refused
    assert np.isnan([seen_of(bare).norms, seen_of(bare).cosines]).all()


FLAT = RoundSeen(3, (0, 1, 2, 3, 4), np.ones(5), np.array([0.5, 0.51, 0.49, 0.52, 0.48]), {})
"""A round in which lengths are 1 and cosines lie about 0.5."""


@pytest.mark.parametrize(
    ("norm", "kind"),
    [(8.0, None), (8.01, "long"), (0.1, None), (0.099, "short"), (2e-6, "short"), (9e-7, "zero"), (1e30, "long")],
)
def test_lengths_at_their_bounds(norm: float, kind: str | None) -> None:
    seen = replace(FLAT, norms=changed(FLAT.norms, 2, norm))
    assert kinds(seen) == ([] if kind is None else [(2, kind)])
    if kind in ("long", "short"):
        assert look(seen).evidence[0].text == f"its update was {norm:.2g} times as long as the median update"


def test_directions_and_scores_at_their_bounds() -> None:
    assert kinds(replace(FLAT, cosines=changed(FLAT.cosines, 0, -0.2))) == []
    odd = look(replace(FLAT, cosines=changed(FLAT.cosines, 0, -0.21))).evidence
    assert [one.text for one in odd] == [
        "its update opposed the remaining clients' (cosine -0.21, median of the round 0.49)"
    ]
    wide = np.array([0.4, 0.2, 0.0, -0.2, -0.3])  # the median is 0, the median deviation 0.2: not below -0.5
    assert kinds(replace(FLAT, cosines=wide)) == []
    assert kinds(replace(FLAT, cosines=changed(wide, 4, -0.51))) == [(4, "against")]
    for score, found in ((0.4, []), (0.39, [(1, "score")])):
        scores = changed(np.array([0.8, 0.8, 0.81, 0.79, 0.8]), 1, score)
        seen = replace(FLAT, facts={"validated:f1": scores, "samples": np.ones(5)})
        assert kinds(seen) == found
    assert look(seen).evidence[0].text == "its update scored f1 0.39 on the server's rows (median of the round 0.80)"


def test_two_and_a_half_deviations_are_not_yet_odd() -> None:
    """Medians 0 and 0.75 with a median deviation of 0.25: the bounds are -0.625 and 0.125."""
    cosines = np.array([0.0, 0.25, -0.25, 0.26, -0.625])
    assert kinds(replace(FLAT, cosines=cosines)) == []
    assert kinds(replace(FLAT, cosines=changed(cosines, 4, -0.626))) == [(4, "against")]
    scores = np.array([0.75, 0.5, 1.0, 1.0, 0.125])
    assert kinds(replace(FLAT, facts={"validated:f1": scores})) == []
    assert kinds(replace(FLAT, facts={"validated:f1": changed(scores, 4, 0.124)})) == [(4, "score")]


def test_claims_at_their_bounds_and_as_said() -> None:
    rows = np.array([10.0, 10, 10, 10, 50])
    assert kinds(replace(FLAT, facts={"samples": rows})) == []
    assert kinds(replace(FLAT, facts={"samples": changed(rows, 4, 50.1)})) == [(4, "claim")]
    assert kinds(replace(FLAT, facts={"samples": rows, "claimed:samples": changed(rows, 4, 99.0)})) == [(4, "claim")]
    assert kinds(replace(FLAT, facts={"samples": np.array([0.0, 0, 0, 0, 9])})) == []


def test_four_clients_are_enough_and_twins_are_counted() -> None:
    four = RoundSeen(1, (0, 1, 2, 3), np.array([1.0, 1, 1, 9]), np.array([0.5, 0.5, 0.5, 0.4]), {})
    assert kinds(four) == [(0, "twin"), (1, "twin"), (2, "twin"), (3, "long")]
    assert look(four).evidence[0].text == "its update was identical to that of 2 other clients"
    three = RoundSeen(1, (0, 1, 2), np.array([1.0, 1, 9]), np.array([0.5, 0.5, 0.4]), {})
    assert kinds(three) == []
    two = look(replace(four, cosines=np.array([0.5, 0.5, 0.3, 0.4]))).evidence
    assert two[0].text == "its update was identical to that of 1 other client"
    still = replace(four, norms=np.zeros(4))
    assert kinds(still) == [], "zeros are alike, and nobody sent anything"


def test_a_watch_says_once_who_is_suspected() -> None:
    watch, told = Watch(), []
    for index in range(1, 6):
        seen = Diagnostics(np.array([1.0, 1, 1, 1, 9]), np.array([0.5, 0.4, 0.3, 0.2, 0.1]))
        record = Record(index, ("DS",), (0, 1, 2, 3, 4), {}, None, {}, None, 0, 0, {})
        told.append([(one.client, one.since) for one in watch(replace(record, diagnostics=seen))])
    assert told == [[], [], [(4, 3)], [], []]


def test_only_what_was_sent_is_refused() -> None:
    assert [is_refusal(text) for text in ("fact labels lies", "update has NaN", "did not answer")] == [
        True,
        True,
        False,
    ]
