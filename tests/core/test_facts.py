"""What clients measure about their own rows."""

import numpy as np
import pytest

from fedmerit import Samples, UserError
from fedmerit.core.facts import FACTS, Fact, find_fact, measure


def labelled(*labels: int, classes: int = 3, **attributes: list[float]) -> Samples:
    columns = {name: np.array(values) for name, values in attributes.items()}
    y = np.array(labels, dtype=np.int64)
    return Samples(np.zeros((len(labels), 2), dtype=np.float32), y, classes, columns)


@pytest.mark.parametrize(
    ("labels", "classes", "facts"),
    [
        ((0, 1, 2), 3, {"samples": 3, "labels": 3, "coverage": 1, "balance": 1}),
        ((0, 0, 0, 1), 2, {"samples": 4, "labels": 2, "coverage": 1, "balance": 1 / 3}),
        ((0, 0, 0, 1), 4, {"samples": 4, "labels": 2, "coverage": 0.5, "balance": 0}),
        ((2, 2), 3, {"samples": 2, "labels": 1, "coverage": 1 / 3, "balance": 0}),
        ((), 3, {"samples": 0, "labels": 0, "coverage": 0, "balance": 0}),
    ],
)
def test_facts_about_labels(labels: tuple[int, ...], classes: int, facts: dict[str, float]):
    assert measure(labelled(*labels, classes=classes), facts) == pytest.approx(facts)


def test_attribute_is_a_share():
    samples = labelled(0, 1, 2, 0, Blurry=[1, 0, 0, 0], region=[True, True, False, True])
    facts = measure(samples, ["sharp", "attribute:Blurry", "attribute:region"])
    assert facts == {"sharp": 0.75, "attribute:Blurry": 0.25, "attribute:region": 0.75}


def test_nobody_has_an_attribute_where_there_are_no_rows():
    assert measure(labelled(Blurry=[]), ["attribute:Blurry"]) == {"attribute:Blurry": 0}


@pytest.mark.parametrize("fact", ["sharp", "attribute:Blurry"])
def test_an_attribute_that_the_data_lacks_is_named(fact: str):
    with pytest.raises(UserError, match=r"no attribute 'Blurry'; it has: region"):
        measure(labelled(0, region=[1]), [fact])


def test_an_unknown_fact_lists_the_known_ones():
    with pytest.raises(UserError, match=r"unknown fact 'sample' \(did you mean 'samples'\?\); valid: .*balance"):
        measure(labelled(0), ["sample"])


def pictures(kind: type, number: int = 3) -> np.ndarray:
    grey = np.random.default_rng(0).integers(0, 256, size=(number, 12, 12, 1))
    return grey.astype(np.uint8) if kind is np.uint8 else (grey / 255).astype(kind)


@pytest.mark.parametrize("fact", [fact for fact in FACTS.values() if fact.measure], ids=lambda fact: fact.name)
def test_every_measured_fact_lies_in_its_own_range(fact: Fact):
    """A fact whose range does not hold for honest rows would leave honest clients out."""
    samples = Samples(pictures(np.uint8, 4), np.array([0, 1, 1, 2]), 3, {"Blurry": np.array([0, 1, 0, 0])})
    assert fact.wrong(fact.measure(samples)) is None


def test_a_limit_of_the_federation_is_tighter_than_the_facts_own():
    labels = find_fact("labels")
    assert labels.wrong(1e6) is None
    assert labels.wrong(1e6, 10) == "fact labels must be in 0..10 (got 1000000.0)"
    assert find_fact("samples").wrong(2e9) == "fact samples must be in 0..1e+09 (got 2000000000.0)"
    assert find_fact("seconds").wrong(0.0) == "fact seconds must be at least 1e-12 (got 0.0)"


FAMILIES = ["attribute:sex", "fact:age", "fact:job is nurse", "validated:accuracy", "contribution:shapley", "their own"]


@pytest.mark.parametrize("name", [*FACTS, *FAMILIES])
def test_the_ends_of_a_range_are_believed_and_what_lies_beyond_is_not(name: str):
    fact = find_fact(name)
    assert fact.wrong(fact.low) is None
    assert fact.wrong(1e300 if fact.high is None else fact.high) is None
    beyond = [fact.low - max(1e-9, fact.low / 2), np.inf, np.nan, -1, 10**400, True, None, "3", [1]]
    for claim in [*beyond, *([] if fact.high is None else [fact.high * 1.01])]:
        assert f"fact {name} " in (fact.wrong(claim) or "")
    assert fact.wrong(2, most=1.5) is not None
    assert fact.wrong(1, most=1.0) is None


def test_before_training_there_is_no_loss_and_no_time():
    nothing = Samples(np.zeros((0, 1)), np.zeros(0, np.int64), 2)
    assert measure(nothing, ["loss", "seconds"]) == {"loss": 0.0, "seconds": 0.0}
