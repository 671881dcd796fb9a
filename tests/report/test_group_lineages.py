"""Lineages of groups: a picture keeps its colours while groups keep most of their clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedmerit.report.run_detail import lineages

ROUNDS = st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=10), max_size=8).map(
    lambda rounds: [numbered(groups) for groups in rounds]
)


def numbered(groups: dict[int, int]) -> dict[int, int]:
    """Groups numbered from 0 in client order, as the ledger has them."""
    order = {group: place for place, group in enumerate(dict.fromkeys(groups[client] for client in sorted(groups)))}
    return {client: order[group] for client, group in sorted(groups.items())}


@given(ROUNDS)
def test_groups_of_a_round_have_lineages_of_their_own_and_few(rounds: list[dict[int, int]]) -> None:
    for groups, numbers in zip(rounds, lineages(rounds), strict=True):
        assert len(numbers) == len(set(groups.values()))
        assert len(set(numbers)) == len(numbers)
    most = max((len(set(groups.values())) for groups in rounds), default=0)
    assert all(lineage < 2 * most for numbers in lineages(rounds) for lineage in numbers)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 2), min_size=1), st.data())
def test_groups_that_stay_keep_their_lineage_whoever_comes(planted: dict[int, int], data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sets(st.sampled_from(sorted(planted)), min_size=1), max_size=6))
    rounds = [numbered(planted)] + [numbered({client: planted[client] for client in came}) for came in drawn]
    first = dict(enumerate(lineages(rounds)[0]))
    colour = {client: first[group] for client, group in rounds[0].items()}
    for groups, numbers in zip(rounds, lineages(rounds), strict=True):
        assert {client: numbers[group] for client, group in groups.items()} == {c: colour[c] for c in groups}


def test_a_group_that_splits_continues_as_its_larger_part() -> None:
    whole = {0: 0, 1: 0, 2: 0, 3: 1}
    split = {0: 0, 1: 1, 2: 1, 3: 2}
    assert lineages([whole, split]) == [[0, 1], [2, 0, 1]]
