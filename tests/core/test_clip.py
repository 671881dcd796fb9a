"""Clip: who is cut, by how much, and who says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import CannedFleet, CommandLine
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import DS, MW, fedavg, prioritized
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.round import play
from fedmerit.core.server.aggregators import CoordinateMedian
from fedmerit.core.stages.clip import Clip
from fedmerit.core.stages.norms import usual_length
from fedmerit.core.state import Record, State
from fedmerit.core.types import Cohort, History
from fedmerit.core.updates import Updates

UPDATES = np.array([[3, 4], [0, 1], [0, 0], [600, 800], [0, 5]], dtype=np.float32)


def play_once(recipe: object, updates: np.ndarray = UPDATES) -> tuple[np.ndarray, Record]:
    fleet = CannedFleet(updates, [{"samples": 10}] * len(updates))
    start = State(np.zeros(updates.shape[1], np.float32))
    state, record = play(start, recipe, fleet, selection=Uniform(1.0), seed=3, evaluate=False)  # type: ignore[arg-type]
    return state.model, record


def test_long_updates_are_cut_to_the_median_of_those_that_are_not_zero() -> None:
    model, record = play_once(replace(fedavg(), clip=Clip()))
    np.testing.assert_allclose(record.facts["clip"], [1, 1, 1, 5 / 1000, 1])
    np.testing.assert_allclose(model, np.array([3 + 3, 4 + 1 + 4 + 5]) / 5, rtol=1e-6)
    (note,) = record.notes
    assert note.kind == "clipped"
    assert note.text == (
        "1 of 5 updates are cut to a length of 5, the median length; the longest, of client 3, to 0.50% of what it was"
    )


def test_the_median_of_cut_updates_is_that_of_shorter_ones() -> None:
    model, _ = play_once(replace(fedavg(), clip=Clip(2.0), aggregate=CoordinateMedian()))
    np.testing.assert_allclose(model, [0, 1.6], rtol=1e-6)


def test_criteria_see_the_updates_as_they_came() -> None:
    whole, cut = play_once(prioritized(MW, DS))[1], play_once(replace(prioritized(MW, DS), clip=Clip(1e-3)))[1]
    assert whole.weights is not None
    assert cut.weights is not None
    assert whole.weights.raw.tolist() == cut.weights.raw.tolist()


@pytest.mark.parametrize("norm", [1000.0, 1e9])
def test_a_limit_that_nobody_reaches_changes_no_bit_and_says_nothing(norm: float) -> None:
    model, record = play_once(replace(fedavg(), clip=Clip(norm)))
    assert model.tobytes() == play_once(fedavg())[0].tobytes()
    assert record.notes == ()


@given(st.lists(st.floats(0, 1e18), min_size=1, max_size=20), st.one_of(st.just("median"), st.floats(1e-3, 1e9)))
def test_no_update_is_longer_than_the_limit_and_short_ones_stay(lengths: list[float], norm: float) -> None:
    norms = np.array(lengths)
    clip = Clip(norm)
    left = clip(norms)
    assert ((left >= 0) & (left <= 1)).all()
    assert (norms * left <= clip.limit(norms) * (1 + 1e-9)).all()
    assert (left[norms <= clip.limit(norms)] == 1).all()


def test_the_ledger_and_explain_say_who_was_cut(cli: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "clip.toml"
    config.write_text(
        '[task]\ndata = "digits"\nclients = 5\n[run]\nrounds = 1\nfraction = 1.0\n'
        '[recipe.clip]\nnorm = "median"\n[recipe.aggregate]\nname = "median"\n'
    )
    assert cli("run", config, "--out", tmp_path / "run").code == 0
    answer = cli("explain", tmp_path / "run", "--round", "1", "--json")
    assert answer.code == 0, answer.err
    left = [client["facts"]["clip"] for client in answer.json["clients"]]
    assert sorted(left)[:2] < [1.0, 1.0]
    assert sum(share == 1 for share in left) == 3
    assert any("2 of 5 updates are cut" in note for note in answer.json["notes"])


def test_updates_of_zeros_are_of_no_length_that_is_usual() -> None:
    def usual(norms: list[float], past: dict[int, float]) -> float:
        updates = Updates(np.array(norms, np.float32)[:, np.newaxis])
        kept = {"length": {client: (9.0, length) for client, length in past.items()}}
        return usual_length(Cohort(2, tuple(range(len(norms))), updates, {}), History(1, recent=kept))

    assert usual([0.0, 0.0, 0.25, 0.75], {}) == 0.5
    assert usual([0.0, 0.0], {}) == 0
    assert usual([0.0, 0.25], {0: 7.0, 5: 0.0, 6: 0.75}) == 0.5, "what client 0 sent last counts, and zeros never"
    assert Clip().limit(np.array([0.0, 0.0, 0.25, 0.75])) == 0.5
