"""Reasons hold: for random tables and every score, the numbers in the words are what the rule gives."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import operators

from fedmerit.core.reasons import NEAR, ORDINALS, Change, Gate, Reason, Rule, explain, number, percent
from fedmerit.core.weights.scores import Prioritized, Product, Ranked, Score
from fedmerit.core.weights.weigh import Normalise, scale, weigh

NAMES = ("LD", "DS", "CB", "MW")
WORDS = {"label diversity": "LD", "dataset size": "DS", "class balance": "CB", "model nearness": "MW"}


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, Score, Normalise, list[float]]:
    """A table with values that five digits show exactly, a client, any score, any way to normalise, samples."""
    clients, m = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    normalise: Normalise = draw(st.sampled_from(["sum", "max", "minmax", "none"]))
    raw = np.array(
        draw(st.lists(st.lists(st.integers(0, 100), min_size=m, max_size=m), min_size=clients, max_size=clients))
    )
    score = draw(operators(m))
    ranked = draw(st.sampled_from([None, "borda", "squared", "exponential", "top"]))
    score = score if ranked is None else Ranked(score, ranked)
    samples = [float(draw(st.integers(1, 500))) for _ in range(clients)]
    scaled = raw / 100 if normalise == "none" else raw.astype(float)
    return scaled, draw(st.integers(0, clients - 1)), score, normalise, samples


def again(raw: np.ndarray, names: tuple[str, ...], case: tuple[object, ...]) -> np.ndarray:
    """The weights by the road that rounds take."""
    _, _, score, normalise, samples = case
    return weigh(raw, names, score, normalise, np.array(samples)).weights  # type: ignore[arg-type]


def by_words(words: str, raw: np.ndarray, place: int, names: tuple[str, ...], case: tuple[object, ...]) -> float:
    """The weight of a change, from nothing but its words."""
    changed = raw.copy()
    if words == "with FedAvg":
        samples = np.array(case[4])
        return float((samples / samples.sum())[place])
    if first := re.fullmatch(r"with (.*) first", words):
        order = (WORDS[first[1]], *(name for name in names if name != WORDS[first[1]]))
        return float(again(raw[:, [names.index(name) for name in order]], order, case)[place])
    if rows := re.match(r"with (\S+) rows, the median", words):
        changed[place, names.index("DS")] = float(rows[1])
    elif value := re.match(r"with its (.*) at (\S+), the median", words):
        changed[place, names.index(WORDS[value[1]])] = float(value[2])
    else:
        raise AssertionError(f"words that nobody can follow: {words}")
    return float(again(changed, names, case)[place])


@given(cases())
def test_the_words_recompute_to_the_weights(case: tuple[np.ndarray, int, Score, Normalise, list[float]]):
    raw, place, score, normalise, samples = case
    names = NAMES[: raw.shape[1]]
    reason = explain(raw, place, Rule(names, score, normalise, tuple(samples)), samples=samples)
    weight = float(again(raw, names, case)[place])
    assert reason.weight == pytest.approx(weight, abs=1e-9)
    if reason.total:
        assert reason.score / reason.total == pytest.approx(weight, abs=1e-9)
    assert reason.terms.score == pytest.approx(reason.score, abs=1e-9)
    for column, part in enumerate(reason.parts):
        alike = raw.copy()
        alike[:, column] = raw[place, column]
        assert part.alike == pytest.approx(float(again(alike, names, case)[place]), abs=1e-9)
        assert part.rank == 1 + sum(raw[:, column] > raw[place, column])
    for change in reason.changes:
        assert change.weight == pytest.approx(by_words(change.words, raw, place, names, case), abs=1e-9)
        assert abs(change.weight - weight) > NEAR


@given(cases())
def test_the_text_has_no_number_of_its_own(case: tuple[np.ndarray, int, Score, Normalise, list[float]]):
    raw, place, score, normalise, samples = case
    names = NAMES[: raw.shape[1]]
    reason = explain(raw, place, Rule(names, score, normalise, tuple(samples)), samples=samples)
    text = "\n".join(reason.lines("hospital"))
    known = [reason.weight, reason.kept, reason.equal, *(part.alike for part in reason.parts)]
    known += [change.weight for change in reason.changes]
    assert set(re.findall(r"[\d.e+-]+%", text)) <= set(map(percent, known))
    assert text.startswith(f"hospital got {percent(reason.weight)} of the round")
    values = re.findall(r", ([\d.e+-]+)(?:, which counts first,|,) is ", text)
    assert set(values) <= {number(part.value) for part in reason.parts}


@given(cases())
def test_what_a_sentence_gives_as_a_cause_pulled_that_way(case: tuple[np.ndarray, int, Score, Normalise, list[float]]):
    raw, place, score, normalise, samples = case
    names = NAMES[: raw.shape[1]]
    reason = explain(raw, place, Rule(names, score, normalise, tuple(samples)), samples=samples)
    cause, _, counter = reason.sentence("hospital").partition(" because ")[2].partition(";")[0].partition(" but ")
    way = np.sign(reason.weight - reason.equal)
    for part in reason.parts:
        if f"its {part.words}" in cause:
            assert way * (reason.weight - part.alike) > 0
        if f"its {part.words}" in counter:
            assert way * (reason.weight - part.alike) < 0


def reason_of(raw: list[list[float]], place: int, names: tuple[str, ...], **more: object) -> Reason:
    table = np.array(raw)
    return explain(table, place, Rule(names, Prioritized(), "max"), **more)  # type: ignore[arg-type]


def test_a_hospital_can_read_it():
    sizes = [30.0, 60, 110, 100, 200, 90, 100, 110]
    reason = reason_of([[2, size] for size in sizes], 0, ("LD", "DS"), samples=sizes)
    assert reason.lines("hospital 3", "round 12") == [
        "hospital 3 got 9.58% of round 12, less than an equal share (12.50%), because its dataset size, 30, is the "
        "smallest of 8; label diversity, which counts first, is the same for all clients (2).",
        "Dataset size mattered most: if every client had 30 rows, hospital 3 would get 12.50%.",
        "Score: 1.0000 + 1.0000 * 0.1500 = 1.15; weight = 1.15 / 12 = 9.58%.",
        "It would get 3.75% with FedAvg; 12.15% with 100 rows, the median of the other clients; 3.75% with dataset "
        "size first.",
    ]


def test_a_criterion_that_pulls_the_other_way_is_no_cause():
    reason = reason_of([[6, 312], [5, 153], [7, 172], [10, 259]], 0, ("LD", "DS"))
    assert reason.sentence("client").endswith(
        "because its label diversity, 6, which counts first, is below the highest (10), but its dataset size, 312, is "
        "the largest of 4."
    )


def test_the_lowest_value_is_no_cause_of_much_weight():
    """It has the fewest rows; the others lose more by theirs, since their class balance lets them count more."""
    raw = [[1, 0.9, 2.5], [0, 0.4, 10], [1, 0.15, 0.5], [0, 0.8, 5]]
    reason = reason_of(raw, 2, ("fact:female is true", "CB", "DS"))
    assert reason.parts[2].alike < reason.weight
    assert reason.sentence("client") == (
        "client got 34.31% of the round, more than an equal share (25.00%), because its female is true, which counts "
        "first, but its class balance, 0.15, is the lowest of 4; its dataset size, 0.5, is the smallest of 4."
    )
    assert (
        "Whether female is true mattered most: if every client's female were true, client" in reason.lines("client")[1]
    )
    assert reason.changes[0] == Change("if its female were not true", 0.0)


def test_a_word_that_is_not_a_clients_is_told_as_such():
    reason = reason_of([[1, 30], [0, 60], [1, 20]], 1, ("fact:job is nurse", "DS"))
    assert reason.sentence("client") == (
        "client got 0.00% of the round, less than an equal share (33.33%), because its job is not nurse, which counts "
        "first; its dataset size, 60, is the largest of 3."
    )
    assert reason.changes[0].words == "if its job were nurse"


@given(cases())
def test_no_extreme_is_a_cause_of_its_opposite(case: tuple[np.ndarray, int, Score, Normalise, list[float]]):
    raw, place, score, normalise, samples = case
    names = NAMES[: raw.shape[1]]
    reason = explain(raw, place, Rule(names, score, normalise, tuple(samples)), samples=samples)
    cause = reason.sentence("hospital").partition(" because ")[2].partition(";")[0].partition(" but ")[0]
    for part in reason.parts:
        wrong_end = part.worst if reason.weight > reason.equal else part.best
        if f"its {part.words}, " in cause and part.value == wrong_end:
            assert part.name == reason.decided


def test_a_gate_is_named_with_what_was_measured():
    name = "validated:parity:sex"
    raw = np.array([[0.0], [0.8]])
    gates = {name: Gate(measured=0.97, accuracy=0.31, least=0.5)}
    reason = explain(raw, 0, Rule((name,), Product(), "none"), gates=gates)
    assert reason.sentence("north") == (
        "north got 0.00% of the round, less than an equal share (50.00%), because its parity:sex at the server counts "
        "as 0 instead of 0.97, because its accuracy at the server, 0.31, is below the gate of 0.5."
    )
    assert [(change.words, change.weight) for change in reason.changes] == [
        ("without the gate", pytest.approx(0.97 / 1.77))
    ]


def test_what_a_cap_made_of_the_weight_is_said():
    table, rule = np.array([[1.0], [3.0]]), Rule(("DS",), Prioritized())
    cut, grown = explain(table, 1, rule, kept=0.6).lines("south"), explain(table, 0, rule, kept=0.4).lines("north")
    assert "Its score gives 75.00%; the cap reduced it to 60.00%." in cut
    assert any(line.endswith("that the cap took from other clients raised it to 40.00%.") for line in grown)
    assert cut[-1].endswith(" before the cap.")


@pytest.mark.parametrize(
    ("fallback", "words"),
    [
        (None, "all clients get the same weight"),
        ((1.0, 1.0), "all clients get the same weight"),
        ((0.0, 0.0), "the model did not change"),
        ((1.0, 3.0), "weights are proportional to dataset size"),
    ],
)
def test_zero_scores_say_what_weights_follow(fallback: tuple[float, ...] | None, words: str):
    reason = explain(np.zeros((2, 1)), 1, Rule(("CB",), Product(), "none", fallback))
    assert f"every score is 0, so {words}." in reason.sentence("south")


def test_the_only_client_has_all():
    assert reason_of([[5.0]], 0, ("DS",)).lines("alone")[0] == "alone got 100.00% of the round: it was the only client."


def test_where_the_first_criterion_decided_the_second_is_tried_first():
    reason = reason_of([[6, 312], [5, 153], [7, 172], [10, 259]], 2, ("LD", "DS"))
    first = reason_of([[6, 312], [5, 153], [7, 172], [10, 259]], 3, ("LD", "DS"))
    assert first.decided == "LD"
    assert [change.words for change in first.changes][-1] == "with dataset size first"
    assert all("diversity first" not in change.words for change in (*reason.changes, *first.changes))


def test_scales_count_where_values_are_divided_by_them():
    raw, names = np.array([[1.0, 100.0], [0.5, 400.0], [0.25, 900.0]]), ("CB", "DS")
    by_scale = Rule(names, Prioritized(), scale({"DS": 500}))
    assert by_scale.table(raw).tolist() == [[1.0, 0.2], [0.5, 0.8], [0.25, 1.0]]
    assert explain(raw, 1, by_scale).weight == pytest.approx(float(by_scale.weights(raw)[1]))
    assert Rule(names, Prioritized(), "max").table(raw)[:, 0].tolist() == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    ("values", "place", "words", "rank"),
    [
        ([3, 1, 2], 0, "the highest of 3", 1),
        ([3, 1, 2], 1, "the lowest of 3", 3),
        ([3, 1, 2], 2, "second of 3", 2),
        ([3, 3, 2], 0, "among the highest of 3", 1),
        ([3, 2, 2], 2, "among the lowest of 3", 2),
        ([4, 2, 2, 1], 1, "tied for second of 4", 2),
        ([*range(12)], 1, "number 11 of 12", 11),
    ],
)
def test_where_a_value_ranks(values: list[float], place: int, words: str, rank: int):
    part = reason_of([[value] for value in values], place, ("CB",)).parts[0]
    assert (part.rank_word(len(values)), part.rank) == (words, rank)


RANKS = (
    r"(?:the|among the) (?P<end>\w+) of (?P<all>\d+)",
    r"(?P<far>far )?(?P<side>above|below) the (?P<other>\w+) \((?P<than>[\d.]+)",
    rf"(?:tied for )?(?P<rank>{'|'.join(ORDINALS)}) of (?P<of>\d+)",
)


@given(cases(), st.sets(st.sampled_from(NAMES)))
def test_no_rank_is_the_reverse_of_the_table(
    case: tuple[np.ndarray, int, Score, Normalise, list[float]], lower: set[str]
):
    """Every rank in the words holds for the raw column, whichever direction is better in it."""
    raw, place, score, normalise, samples = case
    names = NAMES[: raw.shape[1]]
    sentence = explain(raw, place, Rule(names, score, normalise, tuple(samples), tuple(lower))).sentence("hospital")
    for name, column in zip(names, raw.T, strict=True):
        words = next(words for words, symbol in WORDS.items() if symbol == name)
        found = re.search(rf"its {words}, ([\d.]+),(?: which counts first,)? is (?:{'|'.join(RANKS)})(.*)", sentence)
        if found is None:
            assert f"its {words}" not in sentence
            continue
        mine, said = column[place], found.groupdict()
        ends = {"highest": column.max(), "largest": column.max(), "lowest": column.min(), "smallest": column.min()}
        assert float(found[1]) == pytest.approx(mine)
        assert ("lower is better" in found.groups()[-1].partition(" its ")[0]) == (name in lower)
        if said["end"]:
            assert (mine, int(said["all"])) == (ends[said["end"]], len(raw))
        elif said["side"]:
            assert float(said["than"]) == pytest.approx(ends[said["other"]])
            assert mine > ends[said["other"]] if said["side"] == "above" else mine < ends[said["other"]]
        else:
            better = (column < mine) if name in lower else (column > mine)
            assert (said["rank"], int(said["of"])) == (ORDINALS[better.sum()], len(raw))


def test_how_numbers_and_names_are_written():
    assert [percent(one) for one in (0.0, 0.0005, 0.001, 0.12345, 1.0)] == [
        "0.00%",
        "0.05%",
        "0.10%",
        "12.35%",
        "100.00%",
    ]
    assert percent(0.00012345) == "0.012%"
    assert [number(one) for one in (3.0, 0.123456789, 99999.4, 100000.4, 1e6 + 0.5)] == [
        *("3", "0.12346", "99,999", "100,000", "1,000,000")
    ]
    assert number(1e5 + 0.6) == "100,001"
    alone = reason_of([[1.0], [3.0]], 0, ("DS",))
    assert alone.sentence("7").startswith("client 7 got 25.00%")
    assert alone.sentence("ward 7").startswith("ward 7 got 25.00%")
    assert alone.lines("7")[1].endswith(", client 7 would get 50.00%.")


def test_places_count_the_heavier_and_an_equal_share_is_said_to_be_one():
    raw = [[4.0], [2.0], [2.0], [0.0]]
    assert [reason_of(raw, place, ("DS",)).place for place in range(4)] == [1, 2, 2, 4]
    assert "the same as an equal share (25.00%)" in reason_of(raw, 1, ("DS",)).sentence("x")
    assert "more than an equal share" in reason_of(raw, 0, ("DS",)).sentence("x")
    assert "less than an equal share" in reason_of(raw, 3, ("DS",)).sentence("x")


def test_what_another_value_would_give():
    """The median of the other clients is the lower of two in the middle; a client that has it gets no such line."""
    changes = reason_of([[10.0], [20.0], [40.0], [50.0], [5.0]], 4, ("DS",)).changes
    assert [change.words for change in changes] == ["with 20 rows, the median of the other clients"]
    changes = reason_of([[0.1], [0.2], [0.9]], 2, ("CB",)).changes
    assert [change.words for change in changes] == ["with its class balance at 0.1, the median of the other clients"]
    first = reason_of([[1.0], [2.0], [2.0]], 1, ("DS",), samples=[1.0, 2.0, 2.0]).changes[0]
    assert first.words.startswith("with 1 rows")
    nobody = reason_of([[2.0], [2.0], [1.0]], 0, ("CB",), samples=[0.0, 0.0, 0.0])
    assert all(change.words != "with FedAvg" for change in nobody.changes), "no shares of nothing"
    known = reason_of([[2.0], [2.0], [1.0]], 0, ("CB",), samples=[1.0, 0.0, 3.0])
    assert (known.changes[0].words, known.changes[0].weight) == ("with FedAvg", 0.25)


@given(cases())
def test_what_decided_moved_the_weight_most_in_its_direction(
    case: tuple[np.ndarray, int, Score, Normalise, list[float]],
):
    raw, place, score, normalise, samples = case
    reason = explain(raw, place, Rule(NAMES[: raw.shape[1]], score, normalise, tuple(samples)))
    moved = {part.name: reason.weight - part.alike for part in reason.parts}
    pulls = {name: np.sign(reason.weight - 1 / len(raw)) * by for name, by in moved.items()}
    if reason.zero or max(map(abs, moved.values())) <= NEAR:
        assert reason.decided is None
    elif max(pulls.values()) > NEAR:
        assert pulls[str(reason.decided)] == pytest.approx(max(pulls.values()), abs=1e-12)
    else:
        assert abs(moved[str(reason.decided)]) == pytest.approx(max(map(abs, moved.values())), abs=1e-12)


def test_what_decided_is_told_from_an_equal_share():
    """The first has more than 1/4 for its labels and in spite of its rows; the others less for theirs."""
    raw = [[9.0, 100.0], [5.0, 300.0], [5.0, 300.0], [5.0, 300.0]]
    assert [reason_of(raw, place, ("LD", "DS")).decided for place in range(4)] == ["LD"] * 4
    raw = [[9.0, 100.0], [9.0, 300.0], [2.0, 300.0], [2.0, 300.0]]
    assert [reason_of(raw, place, ("LD", "DS")).decided for place in range(4)] == ["LD", "LD", "LD", "LD"]
