"""Late answers, dropped or used, and over-selection: by the same draws wherever they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedmerit import Run, run_config
from fedmerit.config.schema import make_config
from fedmerit.core.collect.collect import Collect, InTime, Uniform
from fedmerit.core.collect.late import Delayed, PendingUpdate, Wait
from fedmerit.core.host import Host
from fedmerit.core.seeds import Draws
from fedmerit.core.state import History, View
from fedmerit.core.types import Download, Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

USE = {"wait": {"min_fraction": 0.5, "seconds": 10.0, "late": "use"}}
DELAYS = {"delays": {"share": 0.6, "seconds": 30.0, "base_seconds": 5.0}}
DISCOUNTED = {"name": "prioritized", "criteria": ["DS", "Staleness"], "normalise": "max", "score": "product"}


def settings(recipe: dict[str, Any] = DISCOUNTED, rounds: int = 6, **run: Any) -> Any:
    settings = {"rounds": rounds, "fraction": 1.0, "workers": 1, "evaluate_every": rounds, **run}
    task = {"clients": 6, "model": "digits-linear"}
    return make_config({"task": task, "train": {"epochs": 1}, "recipe": recipe, "run": settings})


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(settings(**USE, **DELAYS), tmp_path_factory.mktemp("stale") / "run")


def test_a_late_answer_counts_in_the_round_in_which_it_comes_at_a_discount(used: Run):
    stale = [event for event in used.events() if event.kind == "stale"]
    assert stale
    for event in stale:
        weighed = {one.id: one for one in used.explain(event.round)}
        late = weighed[event.client]
        began = int(event.text.partition("its update of round ")[2].partition(" ")[0])
        assert late.facts["staleness"] == event.round - began > 0
        assert late.criteria["Staleness"] == (1 + event.round - began) ** -0.5
        reasons = {one.round: one.text for one in used.events() if (one.client, one.kind) == (event.client, "left-out")}
        assert reasons[began].startswith("late: it would have answered after ")
        for between in range(began + 1, event.round):  # it is asked for nothing meanwhile
            assert reasons[between] == f"late: still busy with round {began}"
    here = {number: {one.id for one in used.explain(number)} for number in range(1, 7)}
    away = {number: {e.client for e in used.ledger.events(number) if e.kind == "left-out"} for number in here}
    assert all(here[number] | away[number] == set(range(6)) and not here[number] & away[number] for number in here)


def test_over_selection_goes_on_with_the_first(tmp_path: Path):
    over = {"wait": {"min_fraction": 1.0, "seconds": 60.0, "overselect": 1.5}, "fraction": 0.5}
    run = run_config(settings({"name": "fedavg"}, 4, **over, **DELAYS), tmp_path / "run")
    for number in range(1, 5):
        unused = [event.text for event in run.ledger.events(number) if event.kind == "left-out"]
        assert len(run.explain(number)) == 3
        assert len(unused) == 2
        assert all(text.startswith(("late: it would", "not needed: 3 of the 5")) for text in unused)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wait": {"overselect": 1.3}}, "is more than all clients; set fraction to 0.77 or less"),
        (
            {"wait": {"overselect": 1.3}, "fraction": 0.5, "selection": "poisson"},
            "needs uniform selection",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        settings({"name": "fedavg"}, **changes)


def test_runs_that_cannot_use_late_answers_are_refused(tmp_path: Path):
    drop = {"wait": USE["wait"] | {"late": "drop"}}
    with pytest.raises(ConfigError, match="late answers are dropped"):
        run_config(settings(**drop, **DELAYS), tmp_path / "run")
    task = {"clients": 6, "model": "digits-linear", "validation": 0.1}
    run = {"rounds": 1, "workers": 1, **USE, **DELAYS}
    with pytest.raises(ConfigError, match="late answers are used"):
        run_config(make_config({"task": task, "recipe": {"name": "m2f"}, "run": run}), tmp_path / "run")


class Clients:
    """Clients whose update is their number and the round's; 0 and 1 took 2 seconds, the others nobody knows."""

    def train(self, index: int, downloads: Mapping[int, Download], facts: Sequence[str], seed: int) -> Replies:
        ids = tuple(sorted(downloads))
        updates = Updates(np.array([[client, index] for client in ids], np.float32).reshape(-1, 2))
        told = tuple({"samples": float(client + 1), "mood": "good"} for client in ids)
        return Replies(ids, updates, told, {}, {client: 2.0 for client in ids if client < 2}, bytes_up=updates.nbytes)


def in_time(
    index: int, collect: Collect, pending: Sequence[PendingUpdate] = (), clients: int = 4
) -> tuple[Replies, list[PendingUpdate]]:
    asked = {client: Download(np.zeros(2, np.float32)) for client in range(clients)}
    host = Host(cast(Any, Clients()), tuple("abcd"))
    view = View(index, np.zeros(2, np.float32), History(), host, Draws(0, index))
    own = {"pending": {str(one.client): one.as_own() for one in pending}}
    replies, kept = collect.collect(asked, ("samples",), view, own)
    return replies, [PendingUpdate.from_own(client, one) for client, one in kept.get("pending", {}).items()]


def late(wait: Wait) -> Delayed:
    """Nobody is delayed to speak of: all answer after 3 seconds."""
    return Delayed(Uniform(1.0), wait, delayed=1e-12, seconds=1.0, base_seconds=3.0)


def test_who_is_not_needed_has_answered_and_counts_in_the_next_round_by_hand():
    """All answer after 3 seconds, and two of four are needed: the answers of the others are there at once."""
    delays = late(Wait(0.5, 60.0, overselect=2.0, late="use"))
    first, away = in_time(1, delays)
    assert len(first.ids) == len(away) == 2
    assert {*first.ids, *(one.client for one in away)} == {0, 1, 2, 3}
    assert first.bytes_up == first.updates.nbytes == 2 * 2 * 4
    for one in away:
        assert (one.started, one.seconds, one.clock) == (1, 0.0, 2.0 if one.client < 2 else 0.0)
        assert (one.update.tolist(), one.facts) == ([one.client, 1], {"samples": one.client + 1.0})
        assert first.failed[one.client].startswith("not needed: 2 of the 4")
    second, still = in_time(2, delays, away)
    now = {one.client for one in away}
    assert now < set(second.ids)
    assert second.started == dict.fromkeys(now, 1)
    for place, client in enumerate(second.ids):
        assert second.updates.row(place).tolist() == [client, 1 if client in now else 2]
        assert second.facts[place]["samples"] == client + 1
    assert second.bytes_up == len(second.ids) * 2 * 4
    assert {one.client for one in still} == set(second.failed) == {0, 1, 2, 3} - set(second.ids)
    assert {client: second.seconds[client] for client in now} == {one.client: one.clock for one in away}


def test_answers_come_when_their_time_is_over_and_not_before():
    """A round lasts 3 seconds: what needs 3 more comes in it, what needs 4 is one second short of it afterwards."""
    delays = late(Wait(1.0, 60.0, late="use"))
    update = np.array([9.0, 9.0], np.float32)
    away = [PendingUpdate(client, 1, seconds, 7.0, update, {}) for client, seconds in ((1, 3.0), (2, 4.0))]
    replies, still = in_time(2, delays, away)
    assert (replies.ids, replies.started) == ((0, 1, 3), {1: 1})
    assert [(one.client, one.started, one.seconds, one.clock) for one in still] == [(2, 1, 1.0, 7.0)]
    assert replies.failed == {2: "late: still busy with round 1"}
    assert replies.seconds == {0: 2.0, 1: 7.0}
    assert replies.server_facts["staleness"] == {0: 0, 1: 1, 3: 0}


def test_in_time_all_answers_count_and_what_is_dropped_is_named():
    replies, away = in_time(1, InTime(Uniform(1.0)))
    assert (replies.ids, away) == ((0, 1, 2, 3), [])
    replies, away = in_time(1, late(Wait(0.5, 60.0, overselect=2.0, late="drop")))
    assert (len(replies.ids), len(replies.failed), away) == (2, 2, [])
    assert in_time(1, late(Wait(1.0, 60.0)))[0].failed == {}


LATE = {"wait": {"min_fraction": 0.5, "seconds": 10.0}, "delays": {"share": 0.5, "seconds": 100.0}}


def late_settings(**run: Any) -> Any:
    task, train = {"clients": 6, "model": "digits-linear"}, {"epochs": 1}
    return make_config({"task": task, "train": train, "run": {"rounds": 3, "fraction": 1.0, "workers": 1, **run}})


def test_a_round_that_cannot_do_without_anybody_waits(tmp_path: Path):
    waits = LATE | {"wait": {"min_fraction": 1.0, "seconds": 10.0}}
    late, plain = run_config(late_settings(**waits), tmp_path / "late"), run_config(late_settings(), tmp_path / "plain")
    assert np.array_equal(late.model, plain.model)


def test_a_key_without_effect_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="delays have no effect without a timeout"):
        late_settings(delays={"share": 0.5})
    with pytest.raises(ConfigError, match=r"run.wait has no effect on this machine"):
        run_config(late_settings(wait={"seconds": 5.0}), tmp_path / "run")
