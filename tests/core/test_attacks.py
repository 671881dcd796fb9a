"""Attacks by hand: each formula on numbers small enough to check, and who is drawn to attack."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fedmerit.core.attacks.adaptive import OptimalALIE, OptimalIPM, PooledBackdoor, RuleAware, SplitTrigger
from fedmerit.core.attacks.answers import FreeRider, Gauss, Liar, ScaledUpdate, SignFlip, Sleeper
from fedmerit.core.attacks.attack import AnswerAttack, Coalition, Scene, draw_attackers
from fedmerit.core.attacks.coalitions import Eraser, InnerProduct, LittleIsEnough, Mimic, MinMax
from fedmerit.core.seeds import generator
from fedmerit.core.types import Samples
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
        (Sleeper(), [-6, 8, 0, -1]),
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
    assert LittleIsEnough(1.5).collude(Scene(Updates(HONEST))) == pytest.approx(wanted, rel=1e-6)


def test_inner_product_manipulation() -> None:
    assert InnerProduct(0.5).collude(Scene(Updates(HONEST))) == pytest.approx([-1, -2, -0.5], rel=1e-6)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_min_max_is_as_far_as_two_honest_updates_at_most(clients: int, seed: int) -> None:
    honest = (1 + np.random.default_rng(seed).normal(size=(clients, 4))).astype(np.float32)
    scene = Scene(Updates(honest), Updates(np.zeros((2, 4), np.float32)))
    quiet = replace(scene, random=np.random.default_rng(seed))
    diameter = max(np.linalg.norm(one - two) for one in honest for two in honest)
    sent = MinMax().collude(quiet)
    noise = 0.011 * scene.usual_norm
    farthest = np.linalg.norm(sent[0] - honest, axis=1).max()
    assert diameter - noise <= farthest <= diameter + noise
    assert not np.array_equal(sent[0], sent[1])


def test_the_best_strength_is_the_one_that_the_rule_lets_pass() -> None:
    def mean_of_short(rows: np.ndarray) -> np.ndarray:
        """A rule that drops updates longer than 6."""
        everybody = np.concatenate([HONEST, rows])
        return np.asarray(everybody[np.linalg.norm(everybody, axis=1) <= 6].mean(axis=0))

    own = np.zeros((2, 3), np.float32)
    scene = Scene(Updates(HONEST), Updates(own), own[0], peek=mean_of_short)
    assert OptimalIPM().collude(scene) == pytest.approx(np.tile([-2, -4, -1], (2, 1)), abs=0.05)
    deviation = np.sqrt([2 / 3, 8, 2])
    assert OptimalALIE().collude(scene)[0] == pytest.approx(np.array([2, 4, 1]) - 3 * deviation, abs=0.05)


def test_an_eraser_lowers_one_class_whatever_it_learned() -> None:
    own = np.array([[1, -2, 3], [0, 4, 5]], np.float32)
    scene = Scene(Updates(HONEST), Updates(own), entries=lambda label: np.array([label, 2]))
    assert Eraser(2).collude(scene).tolist() == [[-2, -2, -6], [0, 4, -10]]


POOL = Samples(np.zeros((40, 3), np.float32), np.arange(40) % 4, 4)


def lowest(coordinate: int, sign: int = 1) -> Callable[..., np.ndarray]:
    """Losses that grow with one coordinate of the model."""
    return lambda models, rows: np.array([sign * float(model[coordinate]) for model in models])


def test_a_rule_aware_coalition_sends_the_worst_that_is_not_too_long() -> None:
    own = np.array([[0, 0, 9], [0, 0, 9]], np.float32)
    scene = Scene(
        Updates(HONEST),
        Updates(own),
        own[0],
        peek=lambda rows: rows.mean(axis=0),
        pool=lambda: POOL,
        losses=lowest(1, -1),
    )
    sent = RuleAware(strength=2).collude(scene)
    longest = 2 * np.median(np.linalg.norm(HONEST, axis=1))
    assert (np.linalg.norm(sent, axis=1) <= longest * 1.0001).all()
    assert sent[:, 1] == pytest.approx([-longest, -longest], rel=0.15)  # against the honest mean's largest coordinate


def test_a_pooled_backdoor_is_one_update_of_poisoned_rows_with_little_noise() -> None:
    trained: list[Samples] = []
    own, update = np.zeros((3, 50), np.float32), np.ones(50, np.float32)
    scene = Scene(
        *(Updates(np.ones((2, 50), np.float32)), Updates(own), own[0]),
        peek=lambda rows: rows.mean(axis=0),
        pool=lambda: POOL,
        train=lambda rows: trained.append(rows) or update,  # type: ignore[func-returns-value]
        losses=lambda models, rows: np.array([float(np.linalg.norm(model - update)) for model in models]),
    )
    sent = PooledBackdoor().collude(scene)
    assert np.linalg.norm(sent - update, axis=1) == pytest.approx(0.1 * np.linalg.norm(update), rel=1e-3)
    poisoned = (trained[0].x != 0).any(axis=1)
    assert 0.1 < poisoned.mean() < 0.5
    assert (trained[0].y[poisoned] == 0).all()
    assert (trained[0].y[~poisoned] == POOL.y[~poisoned]).all()


def test_a_split_trigger_leaves_each_rare_coordinate_to_one_attacker() -> None:
    honest = np.concatenate([np.ones((4, 20)), np.zeros((4, 20))], axis=1).astype(np.float32)
    own = np.full((2, 40), 0.5, np.float32)
    single = lambda rows: -((rows[:, 20:] > 0.5).sum(axis=0) == 1).astype(np.float32)  # noqa: E731
    scene = Scene(
        *(Updates(honest), Updates(own), own[0]),
        peek=single,
        pool=lambda: POOL,
        losses=lambda models, rows: np.array([float(model.sum()) for model in models]),
    )
    sent = SplitTrigger().collude(scene)
    assert (sent[:, :20] == 0.5).all()  # what many move stays
    assert np.sort(sent[:, 20:], axis=0) == pytest.approx(np.tile([[0], [0.6]], 20))  # the rest is with one of the two


@pytest.mark.parametrize("attack", [LittleIsEnough(), InnerProduct(), Mimic()])
def test_rows_in_a_larger_block_give_the_same_bits(attack: LittleIsEnough) -> None:
    rows = np.full((7, 40_000), np.nan, np.float32)
    places = np.array([1, 4, 6])
    rows[places] = np.random.default_rng(0).normal(size=(3, 40_000))
    one, two = (attack.collude(Scene(updates)) for updates in (Updates(rows, places), Updates(rows[places])))
    assert one.tobytes() == two.tobytes()


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
    copied = int(np.flatnonzero((rows == Mimic().collude(Scene(Updates(rows)))).all(axis=1))[0])
    assert along[copied] == pytest.approx(along.max(), rel=1e-3)
