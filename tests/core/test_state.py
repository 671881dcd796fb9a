"""What the server remembers of a round, and where its seconds went."""

from __future__ import annotations

import numpy as np

from fedmerit.core.facts import LOSS
from fedmerit.core.state import RECENT, Clock, History, remember, remember_facts
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates


def cohort(**facts: list[float]) -> Cohort:
    rows = Updates(np.zeros((2, 1), np.float32))
    return Cohort(1, (3, 5), rows, {name: np.array(column) for name, column in facts.items()})


def test_rounds_and_participations_are_counted():
    once = remember(History(), cohort(samples=[10.0, 20.0], **{LOSS: [0.5, 1.0]}), ["samples"])
    twice = remember(once, cohort(samples=[11.0, 20.0], **{LOSS: [0.25, 1.0]}), ["samples"])
    assert (once.rounds, twice.rounds) == (1, 2)
    assert twice.participations == {3: 2, 5: 2}
    assert twice.first["samples"] == {3: 10.0, 5: 20.0}
    assert twice.recent["samples"] == {3: (10.0, 11.0), 5: (20.0, 20.0)}


def test_the_latest_facts_are_kept():
    told = [(3, {"samples": float(number)}) for number in range(RECENT + 2)]
    history = remember_facts(History(rounds=4), told, ["samples"])
    assert history.recent["samples"][3] == tuple(float(number) for number in range(2, RECENT + 2))
    assert (history.rounds, history.participations[3]) == (4, RECENT + 2)


def test_at_first_sight_the_claim_is_remembered():
    history = remember_facts(History(), [(3, {"samples": 10.0, "claimed:samples": 90.0})], ["samples"])
    assert history.first["samples"][3] == 90.0
    assert history.recent["samples"][3] == (10.0,)


def test_seconds_are_booked_to_stages():
    clock = Clock()
    clock.lap("train")
    clock.lap("aggregate", search=2.0)
    assert clock.laps["search"] == 2.0
    assert -2.0 < clock.laps["aggregate"] < 60 - 2.0, "the seconds of the search are not counted twice"
    clock.lap("score", search=0.0)
    assert set(clock.laps) == {"train", "aggregate", "search", "score"}
