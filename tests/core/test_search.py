"""Searches on numbers alone: which orders are visited, in which order, where they stop; and who counts as the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedmerit import CB, DS, LC, LD, MW, Prioritized, device_aware
from fedmerit.core.round import settle
from fedmerit.core.search.backtracking import Answer, Backtracking, not_worse
from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.mixtures import Mixtures
from fedmerit.core.search.search import Choice, SearchState, Weighting, distinct, kendall
from fedmerit.core.server.optimizers import Adam, HeavyBall, Momentum, Plain, Step
from fedmerit.core.state import Clock, State
from fedmerit.core.types import Evaluation, Model, Replies
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, UnknownName

OWN = Weighting(("DS", "LD", "MW"), Prioritized(), "sum")
ALL = Backtracking().weightings(OWN)
Short = dict[str, float]


def short(way: Weighting) -> str:
    return "".join(name[0] for name in way.priority)


def play(
    search: Backtracking, qualities: Short, reference: float, current: Weighting = OWN
) -> tuple[str, list[list[str]]]:
    """The order chosen, and the orders asked about, exchange by exchange."""
    exchanges: list[list[str]] = []

    def ask(ways: list[Weighting]) -> list[Answer]:
        exchanges.append([short(way) for way in ways])
        return [Answer(qualities[short(way)], qualities[short(way)] >= reference) for way in ways]

    visited = search.visit(current, ALL, np.random.default_rng(3))
    return short(search.pick(visited, ask)), exchanges


WORSE = {"DLM": 0.50, "DML": 0.55, "LDM": 0.60, "LMD": 0.40, "MDL": 0.70, "MLD": 0.65}


def test_all_orders_are_there_and_the_own_one_is_first():
    assert {way.priority for way in ALL} == set(permutations(("DS", "LD", "MW")))
    assert ALL[0] == OWN


def test_the_current_order_is_accepted_when_it_is_not_worse():
    for exchange in ("lazy", "batch"):
        assert play(Backtracking(exchange=exchange), WORSE, 0.50) == ("DLM", [["DLM"]])


@pytest.mark.parametrize(
    ("orders", "reference", "chosen", "visited"),
    [
        ("kendall", 0.55, "DML", ["DLM", "DML"]),
        ("kendall", 0.60, "LDM", ["DLM", "DML", "LDM"]),
        ("kendall", 0.70, "MDL", ["DLM", "DML", "LDM", "LMD", "MDL"]),
        ("kendall", 0.90, "MDL", ["DLM", "DML", "LDM", "LMD", "MDL", "MLD"]),
        ("lexicographic", 0.61, "MDL", ["DLM", "DML", "LDM", "LMD", "MDL"]),
        ("all", 0.10, "MDL", ["DLM", "DML", "LDM", "LMD", "MDL", "MLD"]),
    ],
)
def test_lazily_one_order_after_the_other(orders, reference, chosen, visited):
    search = Backtracking(orders=orders, exchange="lazy")
    assert play(search, WORSE, reference) == (chosen, [[order] for order in visited])


@pytest.mark.parametrize(
    ("orders", "exchanges"),
    [
        ("kendall", [["DLM"], ["DML", "LDM", "LMD", "MDL", "MLD"]]),
        ("all", [["DLM", "DML", "LDM", "LMD", "MDL", "MLD"]]),
    ],
)
def test_in_a_batch_all_that_are_left_at_once(orders, exchanges):
    assert play(Backtracking(orders=orders), WORSE, 0.69) == ("MDL", exchanges)


def test_nearest_first_from_another_order():
    """From MW > LD > DS: one swap away LMD and MDL, two away LDM and DML, three away DLM; ties by name."""
    current = next(way for way in ALL if short(way) == "MLD")
    visited = Backtracking().visit(current, ALL, np.random.default_rng(0))
    assert [short(way) for way in visited] == ["MLD", "LMD", "MDL", "DML", "LDM", "DLM"]
    by_name = Backtracking(orders="lexicographic").visit(current, ALL, np.random.default_rng(0))
    assert [short(way) for way in by_name] == ["MLD", "DLM", "DML", "LDM", "LMD", "MDL"]


def test_a_random_order_begins_with_the_current_one_and_follows_the_seed():
    search = Backtracking(orders="random")
    tours = [[short(way) for way in search.visit(OWN, ALL, np.random.default_rng(seed))] for seed in (1, 1, 2, 3, 4)]
    assert tours[0] == tours[1]
    assert len(set(map(tuple, tours))) > 1
    assert all(tour[0] == "DLM" and sorted(tour) == sorted(map(short, ALL)) for tour in tours)


def test_the_least_bad_and_on_a_tie_the_nearest():
    level = dict.fromkeys(WORSE, 0.4) | {"LDM": 0.5, "MDL": 0.5}
    assert play(Backtracking(), level, 0.9)[0] == "LDM"
    assert play(Backtracking(orders="all"), dict.fromkeys(WORSE, 0.4), 0.9)[0] == "DLM"


def test_where_nobody_answers_the_current_order_stays():
    nobody = dict.fromkeys(WORSE, float("nan"))
    for orders in ("kendall", "all"):
        assert play(Backtracking(orders=orders), nobody, 0.5)[0] == "DLM"


accuracies = st.lists(st.integers(0, 20).map(lambda k: k / 20), min_size=6, max_size=6)


@given(
    accuracies, st.integers(0, 20).map(lambda k: k / 20), st.sampled_from(["kendall", "lexicographic", "random", "all"])
)
def test_batch_and_lazy_choose_the_same(values, reference, orders):
    qualities = dict(zip(WORSE, values, strict=True))
    lazy, one_by_one = play(Backtracking(orders=orders, exchange="lazy"), qualities, reference)
    batch, together = play(Backtracking(orders=orders, exchange="batch"), qualities, reference)
    assert batch == lazy
    assert len(together) <= 2
    assert len(together) <= len(one_by_one)
    asked = [order for exchange in together for order in exchange]
    assert len(set(asked)) == len(asked)  # nothing is asked twice


@given(accuracies, st.integers(0, 20).map(lambda k: k / 20))
def test_what_is_chosen_is_good_or_the_best(values, reference):
    qualities = dict(zip(WORSE, values, strict=True))
    chosen, _ = play(Backtracking(), qualities, reference)
    assert qualities[chosen] >= reference or qualities[chosen] == max(values)


@given(st.permutations("abcd"), st.permutations("abcd"), st.permutations("abcd"))
def test_kendalls_distance_is_one(one, other, third):
    assert (kendall(one, other) == 0) == (one == other)
    assert kendall(one, other) == kendall(other, one) <= 6
    assert kendall(one, third) <= kendall(one, other) + kendall(other, third)


def test_kendalls_distance_counts_missing_criteria():
    assert kendall(("DS", "LD"), ("LD", "DS")) == 1
    assert kendall(("DS", "LD"), ("DS",)) == 1
    assert kendall(("DS",), ("LD",)) == 2


def test_near_weightings_count_as_the_first_of_them():
    weightings = [np.array(pair) for pair in ([0.5, 0.5], [0.505, 0.495], [0.6, 0.4], [0.5, 0.5], [0.595, 0.405])]
    assert distinct(weightings, 0.01) == [0, 0, 2, 0, 2]
    assert distinct(weightings, 0.0) == [0, 1, 2, 0, 4]
    assert distinct(weightings, 1.0) == [0] * 5


def test_ways_can_be_scores_as_well_as_orders():
    owa, large = Weighting(("DS", "LD"), Prioritized(), "max"), Weighting(("LD",), Prioritized(), "sum")
    ways = Backtracking(among=(owa, large, OWN)).weightings(OWN)
    assert ways == (OWN, owa, large)
    assert [way.label(OWN) for way in ways] == ["DS > LD > MW", "DS > LD, max", "LD"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"orders": "alphabetical"}, "all, kendall, lexicographic, random"),
        ({"reference": "first"}, "best_so_far, last"),
        ({"exchange": "all"}, "batch, lazy"),
        ({"adjust_on": "train"}, "test, validation"),
        ({"tolerance": -0.1}, r"in 0\.\.1; got -0\.1"),
        ({"judges": 0}, "at least 2"),
        ({"judges": 1}, "at least 2"),
        ({"confidence": 1.0}, "between 0 and 1"),
        ({"judges": 5, "reference": "best_so_far"}, "needs all clients"),
    ],
)
def test_bad_settings_name_the_rule(settings, message):
    with pytest.raises((ConfigError, UnknownName), match=message):
        Backtracking(**settings)


def test_too_many_criteria_to_go_through_all_orders():
    from fedmerit import IS, Sharpness

    with pytest.raises(ConfigError, match="at most 6 criteria; got 7"):
        device_aware(DS, LD, MW, CB, LC, IS, Sharpness)


def test_a_way_names_criteria_of_the_recipe():
    with pytest.raises(ConfigError, match="names criteria of the recipe, DS, LD; got"):
        device_aware(DS, LD, search=Backtracking(among=(Weighting(("CB",), Prioritized(), "sum"),)))
    with pytest.raises(ConfigError, match=r"lie in 0\.\.1 by themselves; DS"):
        device_aware(DS, LC, search=Backtracking(among=(Weighting(("DS",), Prioritized(), "none"),)))


class Judged:
    """A panel's judges that say of the k-th model asked about that so many of ten rows are right."""

    def __init__(self, right: Sequence[int]) -> None:
        self.right = iter(right)

    def judges(self) -> list[int]:
        return [0]

    def evaluate(
        self, models: Sequence[Model], on: str = "test", clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        return [Evaluation(np.array([next(self.right)]), np.array([10])) for _ in models]


def chosen(search: Backtracking, state: SearchState, right: Sequence[int]) -> Choice:
    """The choice among as many candidates as there are answers, one by one."""
    model, weightings = np.zeros(2, np.float32), np.eye(len(right))
    panel = Panel(
        Judged(right),  # type: ignore[arg-type]
        "test",
        model,
        weightings,
        lambda rows: np.zeros((len(rows), 2), np.float32),
        np.random.default_rng(0),
    )
    return search.choose(panel, state)


LAZY = Backtracking(exchange="lazy")


def test_a_candidate_of_equal_accuracy_is_accepted():
    """[DAFL, Alg. 1] goes on while the accuracy is smaller: 0.6 is not smaller than 0.6."""
    assert chosen(LAZY, SearchState("", 0.6, 0.6), [6, 9]) == Choice(0, 0.6)
    assert chosen(LAZY, SearchState("", 0.7, 0.7), [6, 9]) == Choice(1, 0.9)


def test_a_candidate_is_held_against_the_last_round_or_against_the_best_so_far():
    """After a fall from 0.8 to 0.5, 0.6 is enough for the paper; `best_so_far` looks on."""
    fallen = SearchState("", 0.5, 0.8)
    assert chosen(LAZY, fallen, [6, 9]) == Choice(0, 0.6)
    assert chosen(replace(LAZY, reference="best_so_far"), fallen, [6, 9]) == Choice(1, 0.9)


def test_judges_accept_a_candidate_that_changes_nothing():
    """All answers are in: a difference of 0 is not worse."""
    same = Evaluation(np.array([3, 4]), np.array([5, 5]))
    assert not_worse(same, same, 1.0, 0.95) is True
    assert not_worse(same, same, 0.5, 0.95) is True
    assert not_worse(Evaluation(np.array([3, 3]), np.array([5, 5])), same, 1.0, 0.95) is False


def test_a_single_candidate_is_taken_without_asking():
    assert chosen(LAZY, SearchState("", 0.9, 0.9), [1]) == Choice(0)


def test_how_sure_judges_are_by_hand():
    """Three judges of ten rows gain 2, 2 and 5: d = 9/30, e = (-1, -1, 2), variance 0.5 * 3/2 * 6 / 900 = 0.005."""
    before, after = (Evaluation(np.array(right), np.array([10] * 3)) for right in ([5, 5, 5], [7, 7, 10]))
    reach = 0.3 / np.sqrt(0.005)  # in deviations: 4.24
    assert not_worse(after, before, 0.5, 2 * norm.cdf(reach) - 1 - 1e-9) is True
    assert not_worse(after, before, 0.5, 2 * norm.cdf(reach + 0.01) - 1) is None
    assert not_worse(before, after, 0.5, 0.95) is False


def test_judges_without_rows_decide_nothing_until_everybody_was_asked():
    nobody = Evaluation(np.zeros(2, np.int64), np.zeros(2, np.int64))
    assert not_worse(nobody, nobody, 0.5, 0.95) is None
    assert not_worse(nobody, nobody, 1.0, 0.95) is False


def test_a_single_judge_of_several_decides_nothing():
    """One answer has no spread."""
    one, better = (Evaluation(np.array([right, 0]), np.array([10, 0])) for right in (5, 9))
    assert not_worse(better, one, 0.5, 0.95) is None
    assert not_worse(better, one, 1.0, 0.95) is True


def test_a_choice_by_judges_knows_no_accuracy_of_all():
    """Two of the clients are asked, and the answer of two is not what the next round is held against."""
    panel = Panel(
        Sure(),  # type: ignore[arg-type]
        "test",
        np.zeros(2, np.float32),
        np.eye(2),
        lambda rows: np.asarray(rows, np.float32),
        np.random.default_rng(0),
    )
    assert Backtracking(judges=2).choose(panel, SearchState()) == Choice(0, None)
    assert (panel.exchanges, panel.models_sent, panel.tests) == (1, 2, 4)
    assert panel.before is not None


class Sure:
    """Eight judges of ten rows: every candidate gains two of them on each."""

    def judges(self) -> list[int]:
        return list(range(8))

    def evaluate(
        self, models: Sequence[Model], on: str = "test", clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        sizes = np.zeros(8, np.int64)
        sizes[list(range(8)) if clients is None else list(clients)] = 10
        return [Evaluation((0.7 if model.any() else 0.5) * sizes, sizes) for model in models]


def test_weightings_with_other_steps_are_never_the_same():
    near, far = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    short, long = HeavyBall(1.0), HeavyBall(2.0)
    assert distinct([near, near, near, far, near], 0.01, [short, long, short, long, None]) == [0, 1, 0, 3, 4]


@pytest.mark.parametrize(
    ("step", "built"), [(Plain(), True), (HeavyBall(0.5, carry=0.0), True), (Adam(), False), (Momentum(), False)]
)
def test_clients_build_models_of_steps_that_are_sums_and_are_sent_all_others(step: Step, built: bool):
    """Two weightings and the model before: as mixtures that is the model and two aggregates, else three models."""
    asked: list[Sequence[Model]] = []

    class Judges:
        def judges(self) -> list[int]:
            return [0, 1]

        def evaluate(self, models: Sequence[Model], *_: object, **__: object) -> list[Evaluation]:
            asked.append(models)
            return [Evaluation(np.array([1, 1]), np.array([2, 2])) for _ in models]

    facts = ({"samples": 1.0, "labels": 3.0}, {"samples": 4.0, "labels": 1.0})
    replies = Replies((0, 1), Updates(np.eye(2, dtype=np.float32)), facts)
    recipe = replace(device_aware(DS, LD, normalise="max", search=Backtracking(orders="all")), step=step)
    start = State(np.zeros(2, np.float32))
    done = settle(start, recipe, replies, judges=Judges(), clients=2, seed=0, clock=Clock())  # type: ignore[arg-type]
    (models,) = asked
    assert len(models) == 3
    assert isinstance(models, Mixtures) == built
    assert done.aggregation.bytes_down == 2 * 3 * 2 * 4
    chosen = [one.chosen for one in done.aggregation.results].index(True)
    assert done.state.model == pytest.approx(models[chosen])


def test_judges_that_are_not_sure_are_doubled_until_everybody_was_asked():
    """One gains what the next one loses: no number of them is sure."""
    asked: list[list[int]] = []

    class Unsure:
        def judges(self) -> list[int]:
            return list(range(16))

        def evaluate(
            self, models: Sequence[Model], on: str, clients: Sequence[int] | None, *, losses: bool = False
        ) -> list[Evaluation]:
            asked.append(list(range(16)) if clients is None else list(clients))
            sizes = np.where(np.isin(np.arange(16), asked[-1]), 10, 0)
            right = 5 + np.where(turn.argsort() % 2, 3, -3) * sizes // 10
            return [Evaluation(np.where(sizes, right if place == 0 else 5, 0), sizes) for place in range(len(models))]

    turn = np.arange(16)
    panel = Panel(
        *(Unsure(), "test", np.zeros(2, np.float32), np.eye(2)),  # type: ignore[arg-type]
        lambda rows: np.asarray(rows, np.float32),
        np.random.default_rng(0),
    )
    turn = np.array(panel.turn)
    Backtracking(judges=2, exchange="lazy").choose(panel, SearchState())
    assert [len(some) for some in asked[:4]] == [2, 2, 4, 8]
    assert [client for some in asked[:4] for client in some] == list(panel.turn)
