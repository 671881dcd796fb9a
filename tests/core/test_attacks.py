"""Attacks by hand: each formula on numbers small enough to check, and who is drawn to attack."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fedmerit.core.attacks import (
    AnswerAttack,
    Coalition,
    FreeRider,
    Gauss,
    InnerProduct,
    Liar,
    LittleIsEnough,
    Mimic,
    ScaledUpdate,
    SignFlip,
    draw_attackers,
)
from fedmerit.core.seeds import generator
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

UPDATE = np.array([3, -4, 0, 0.5], np.float32)
FACTS = {"samples": 30.0, "balance": 0.0, "labels": 2.0, "loss": 1.5}
HONEST = np.array([[1, 2, 0], [3, 2, 0], [2, 8, 3]], np.float32)


def sent(attack: AnswerAttack) -> tuple[np.ndarray, dict[str, float]]:
    return attack.answer(UPDATE, FACTS, 10, generator(1, "test"))


@pytest.mark.parametrize(
    ("attack", "update"),
    [
        (SignFlip(1), [-3, 4, 0, -0.5]),
        (SignFlip(2), [-6, 8, 0, -1]),
        (ScaledUpdate(10), [30, -40, 0, 5]),
        (FreeRider(), [0, 0, 0, 0]),
        (Liar({"samples": 2}), [3, -4, 0, 0.5]),
    ],
)
def test_what_an_attacker_sends_and_only_liars_touch_facts(attack: AnswerAttack, update: list[float]) -> None:
    vector, facts = sent(attack)
    assert (vector.tolist(), vector.dtype) == (update, np.float32)
    assert (facts == FACTS) == (not isinstance(attack, Liar))


def test_a_liar_stays_within_what_everybody_knows() -> None:
    lies = Liar({"samples": 1e12, "balance": 0.3, "labels": 7, "sharp": 9})
    assert sent(lies)[1] == {"samples": 1e9, "balance": 0.3, "labels": 10, "loss": 1.5}


def test_noise_is_as_long_as_told_and_the_same_from_the_same_seed() -> None:
    update = np.full(40_000, 0.5, np.float32)
    one, two, other = (Gauss(10).answer(update, {}, 2, generator(seed, "test"))[0] for seed in (1, 1, 2))
    assert one.tobytes() == two.tobytes() != other.tobytes()
    assert np.linalg.norm(one) == pytest.approx(10 * np.linalg.norm(update), rel=0.02)
    assert abs(one.mean()) < 0.1
    assert sent(Gauss())[1] == FACTS


def test_a_little_is_enough() -> None:
    # means 2, 4, 1; deviations sqrt(2/3), sqrt(8), sqrt(2)
    wanted = np.array([2, 4, 1]) - 1.5 * np.sqrt([2 / 3, 8, 2])
    assert LittleIsEnough(1.5).collude(Updates(HONEST)) == pytest.approx(wanted, rel=1e-6)


def test_inner_product_manipulation() -> None:
    assert InnerProduct(0.5).collude(Updates(HONEST)) == pytest.approx([-1, -2, -0.5], rel=1e-6)


def test_mimic_copies_the_client_that_stands_out() -> None:
    assert Mimic().collude(Updates(HONEST)).tolist() == HONEST[2].tolist()
    assert Mimic().collude(Updates(HONEST[:1])).tolist() == HONEST[0].tolist()


@pytest.mark.parametrize("attack", [LittleIsEnough(), InnerProduct(), Mimic()])
def test_rows_in_a_larger_block_give_the_same_bits(attack: LittleIsEnough) -> None:
    rows = np.full((7, 40_000), np.nan, np.float32)
    places = np.array([1, 4, 6])
    rows[places] = np.random.default_rng(0).normal(size=(3, 40_000))
    assert attack.collude(Updates(rows, places)).tobytes() == attack.collude(Updates(rows[places])).tobytes()


@given(st.integers(2, 60), st.integers(0, 9), st.floats(0.05, 0.5), st.floats(0.05, 0.4))
def test_attackers_are_their_share_and_in_one_coalition(clients: int, seed: int, one: float, two: float) -> None:
    coalitions = [Coalition(ScaledUpdate(), one), Coalition(FreeRider(), two)]
    numbers = [round(one * clients), round(two * clients)]
    if 0 in numbers:
        return
    drawn = draw_attackers(coalitions, clients, seed)
    assert [list(drawn.members.values()).count(place) for place in (0, 1)] == numbers
    assert drawn == draw_attackers(coalitions, clients, seed)
    assert all(drawn.of(client) is None for client in range(clients) if client not in drawn.members)


def test_a_share_that_is_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 attackers"):
        draw_attackers([Coalition(ScaledUpdate(), 0.1)], 4, 1)
    with pytest.raises(ConfigError, match="1 to 1, the number of clients left"):
        draw_attackers([Coalition(ScaledUpdate(), 0.5)], 4, 1, taken=[0, 1, 2])


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_mimic_copies_who_is_farthest_along_the_widest_direction(clients: int, seed: int) -> None:
    rows = (3 + np.random.default_rng(seed).normal(size=(clients, 5))).astype(np.float32)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    along = np.abs(centred @ np.linalg.svd(centred)[2][0])
    copied = int(np.flatnonzero((rows == Mimic().collude(Updates(rows))).all(axis=1))[0])
    assert along[copied] == pytest.approx(along.max(), rel=1e-3)
