"""Wrong data is refused in one line before anybody trains; arrays by client become federations."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers import SoftmaxLearner, small_task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmerit import Federation, Samples, Split, Task, fedavg, federate
from fedmerit.core.seeds import derive
from fedmerit.errors import DataError, FedmeritError, NoteWarning, RunFailed, UserError

ROWS, CLIENTS = 16, 8


def data(**changed: Any) -> Federation:
    """Eight clients with two rows each, and what a test changes about them."""
    x = np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
    parts: dict[str, Any] = {"x": x, "y": np.arange(ROWS) % 3, "offsets": np.arange(CLIENTS + 1) * 2, "attributes": {}}
    names = changed.pop("names", tuple(f"hospital {i}" for i in range(CLIENTS)))
    classes = changed.pop("classes", 3)
    rows = Split(**parts | changed)
    return Federation(names, rows, rows, classes)


def picture_layout() -> np.ndarray:
    return np.zeros((ROWS, 3, 32, 32), np.uint8)


def holed() -> np.ndarray:
    x = np.ones((ROWS, 4), np.float32)
    x[5, 2] = np.nan
    return x


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "labels from 1": ({"y": np.arange(ROWS) % 2 + 1, "classes": 2}, "labels must be integers 0..1 .* contain 1..2"),
    "labels as floats": ({"y": np.arange(ROWS) % 3 * 1.0}, "contain float64; number them"),
    "labels as text": ({"y": np.array(["ill", "well"] * 8)}, "such as .*ill.*; number them"),
    "negative labels": ({"y": np.arange(ROWS) % 3 - 1}, "contain -1..1"),
    "7 names": ({"names": tuple("abcdefg")}, "7 names, 8 clients"),
    "9 names": ({"names": tuple("abcdefghi")}, "9 names, 8 clients"),
    "one text": ({"names": "abcdefgh"}, "names must be one text per client"),
    "numbers as names": ({"names": (1, 2, 3, 4, 5, 6, 7, 8)}, "names must be one text per client"),
    "an empty name": ({"names": ("", *"bcdefgh")}, "every client needs a name .that of client 0 is ''"),
    "a blank name": ({"names": (*"abcdefg", " ")}, "every client needs a name .that of client 7 is ' '"),
    "two of one name": ({"names": tuple("abcdefga")}, "2 clients are called 'a'"),
    "NaN": ({"x": holed()}, "row 5 of the training rows contains NaN"),
    "text inputs": ({"x": np.full((ROWS, 4), "b")}, r"inputs must be numbers \(the training rows contain str_ such as"),
    "objects": ({"x": np.full((ROWS, 4), None)}, "inputs must be numbers"),
    "short attribute": ({"attributes": {"sex": np.zeros(9)}}, "16 rows, 9 values of sex"),
    "short labels": ({"y": np.arange(15) % 3}, "16 rows, 15 labels"),
    "channels first": ({"x": picture_layout()}, "channels first: use x.transpose"),
    "one column": ({"x": np.zeros(ROWS, np.float32)}, r"shape \(rows, features\)"),
    "ragged": ({"x": [[1.0, 2.0], [1.0]]}, "must form one array"),
    "column of labels": ({"y": np.zeros((ROWS, 1), np.int64)}, r"labels \(N,\)"),
    "short offsets": ({"offsets": np.arange(CLIENTS + 1)}, "offsets must be integers from 0 to the number of rows, 16"),
    "falling offsets": ({"offsets": [0, 4, 2, 6, 8, 10, 12, 14, 16]}, "offsets must not decrease"),
    "no classes": ({"classes": 0}, r"classes must be an integer, 1 or more \(got 0\)"),
    "classes as text": ({"classes": "two"}, "classes must be an integer"),
    "no rows": ({"x": np.zeros((0, 4)), "y": [], "offsets": [0] * 9}, "no client has a training row"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_is_refused_in_one_line(name: str) -> None:
    changed, message = WRONG[name]
    with pytest.raises(DataError, match=message) as caught:
        data(**changed)
    assert "\n" not in str(caught.value)


def test_splits_are_alike() -> None:
    rows, wide = data().train, Split(np.zeros((8, 5), np.float32), np.zeros(8, np.int64), np.arange(9))
    with pytest.raises(DataError, match=r"training rows \(4,\), test rows \(5,\)"):
        Federation(tuple("abcdefgh"), rows, wide, 3)
    bytes_ = Split(np.zeros((8, 4), np.uint8), np.zeros(8, np.int64), np.arange(9))
    with pytest.raises(DataError, match=r"all be bytes .* or none .training rows float32, test rows uint8"):
        Federation(tuple("abcdefgh"), rows, bytes_, 3)
    with pytest.raises(DataError, match=r"server's rows contain 7..7"):
        Federation(tuple("abcdefgh"), rows, rows, 3, server=Samples(rows.x, np.full(ROWS, 7), 3))


def test_lists_small_integers_and_flags_are_taken_as_they_are_meant() -> None:
    rows = Split([[0.0], [1.0]], [True, False], [0, 1, 2])  # type: ignore[arg-type]
    assert Federation(["a", "b"], rows, rows, 2).client(0).train.y.dtype == np.int64  # type: ignore[arg-type]
    assert Split(np.zeros((2, 1)), np.array([0, 1], np.uint8), np.array([0, 2])).y.dtype == np.int64


def test_a_client_without_rows_is_left_out_and_the_others_train() -> None:
    task = small_task(sizes=(0, 12, 20, 8))
    with pytest.warns(NoteWarning, match="client 0 was left out: no training samples"):
        run = federate(task, fedavg(), rounds=1)
    assert len(run.explain(1)) == 3


@dataclass(frozen=True)
class Refusing(SoftmaxLearner):
    """Cannot train."""

    def train(self, *arguments: Any, **named: Any) -> np.ndarray:
        raise ValueError("a tensor is too large")


def test_a_run_in_which_nobody_trains_warns_and_fails_with_the_first_reason() -> None:
    task = small_task(learner=Refusing())
    with (
        pytest.warns(NoteWarning, match="round 1: nothing was learned: all 4 clients of the round were dropped"),
        pytest.raises(RunFailed, match=r"no client trained in 2 rounds.*client 0: ValueError: a tensor is too large"),
    ):
        federate(task, fedavg(), rounds=2)


def test_a_model_that_cannot_read_the_rows_is_told_before_anybody_trains() -> None:
    with pytest.raises(DataError, match=r"the model cannot read a row of float32 of shape \(4,\): ValueError"):
        federate(small_task(learner=SoftmaxLearner(features=7)), fedavg(), rounds=1)


NASTY = st.sampled_from([0.0, 1.0, -1.0, 1e38, np.nan, np.inf, -np.inf])
LABELS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "good": lambda random, n: random.integers(0, 3, n),
    "shifted": lambda random, n: random.integers(1, 4, n),
    "negative": lambda random, n: random.integers(-3, 0, n),
    "floats": lambda random, n: random.normal(size=n),
    "text": lambda random, n: np.array(["ill"] * n),
    "objects": lambda random, n: np.array([None] * n),
    "column": lambda random, n: np.zeros((n, 1), np.int64),
    "nothing": lambda random, n: [],
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "rows": lambda n: (n, 4),
    "wide": lambda n: (n, 5),
    "flat": lambda n: (n,),
    "picture": lambda n: (n, 3, 8, 8),
    "empty": lambda n: (0, 4),
    "one more": lambda n: (n + 1, 4),
}
DTYPES = (*[np.float32] * 4, np.float64, np.float16, np.uint8, np.int64, np.bool_, np.complex64, np.str_, np.object_)


def outcome_of(pick: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """One federation, mostly a wrong one: refused in one line, or a client took part and the model moved."""
    random, sizes = np.random.default_rng(1), pick(st.lists(st.integers(0, 3), max_size=4))
    rows = sum(sizes)
    labels = LABELS[pick(st.sampled_from(["good"] * 8 + sorted(LABELS)))](random, rows)
    x = random.normal(size=SHAPES[pick(st.sampled_from(["rows"] * 8 + sorted(SHAPES)))](rows)) * pick(
        st.sampled_from([1.0, 100.0])
    )
    if x.size and pick(st.booleans()):
        x.flat[pick(st.integers(0, x.size - 1))] = pick(NASTY)
    names = [f"c{i}" for i in range(len(sizes) + pick(st.sampled_from([0, 0, 0, -1, 1])))]
    offsets = np.concatenate([[0], np.cumsum(sizes)]) + pick(st.sampled_from([0, 0, 0, 1]))
    attributes = {"sex": np.zeros(rows + pick(st.sampled_from([0, 0, 0, 1])))}
    try:
        split = Split(x.astype(pick(st.sampled_from(DTYPES))), labels, offsets, attributes)
        task = Task(Federation(names, split, split, pick(st.sampled_from([0, 2, 3]))), SoftmaxLearner())  # type: ignore[arg-type]
        run = federate(task, fedavg(), rounds=1)
    except FedmeritError as error:
        return "refused" if re.fullmatch(r".*\w.*", str(error)) else f"refused in several lines: {error}"
    took_part = run.explain(1)
    assert took_part
    moved = (run.model != SoftmaxLearner().start(derive(0, "model"))).any()
    zeros = not any(split.samples(client.id, 3).x.any() for client in took_part)
    assert moved or zeros, "rows of zeros teach nothing, but they are rows"
    return "trained"


def test_no_wrong_input_trains_silently_on_nothing() -> None:
    outcomes: list[str] = []

    @settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def try_one(draw: st.DataObject) -> None:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            outcomes.append(outcome_of(draw.draw))

    try_one()
    assert outcomes.count("refused") >= 500
    assert set(outcomes) == {"refused", "trained"}


def arrays(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(rows, 4))
    return x, x[:, :3].argmax(axis=1)


def test_arrays_by_client() -> None:
    data = Federation.from_clients({"north": arrays(30, 1), "south": arrays(20, 2)}, test=0.2, server=5)
    assert data.names == ("north", "south")
    assert data.classes == 3
    assert data.train.x.dtype == np.float32
    assert len(data.train.y) + len(data.test.y) + 5 == 50
    assert federate(Task(data, SoftmaxLearner()), fedavg(), rounds=3).accuracy > 0.5


def test_test_rows_and_attributes_of_ones_own() -> None:
    tests = {"south": arrays(4, 3), "north": arrays(6, 4)}
    clients = {"north": (*arrays(30, 1), {"night": np.ones(30)}), "south": (*arrays(20, 2), {"night": np.zeros(20)})}
    data = Federation.from_clients(clients, test=tests)
    assert data.test.sizes.tolist() == [6, 4]
    assert data.train.sizes.tolist() == [30, 20]
    assert data.train.attributes["night"].sum() == 30


X, Y = arrays(10, 1)
WRONG_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"clients": {}}, "at least one client"),
    "no pair": ({"clients": {"a": X}}, r"the rows of a must be \(inputs, labels\)"),
    "empty": ({"clients": {"a": (X[:0], Y[:0])}}, "at least one"),
    "short": ({"clients": {"a": (X, Y[:5])}}, "10 rows, 5 labels in the rows of a"),
    "from one": (
        {"clients": {"a": (X, Y + 1)}},
        "labels must be integers 0..2 for 3 classes; the clients contain 1..3",
    ),
    "floats": ({"clients": {"a": (X, Y * 1.0)}}, "contain float64"),
    "text": ({"clients": {"a": (X, Y.astype(str))}}, "such as"),
    "NaN": ({"clients": {"a": (X * np.nan, Y)}}, "row 0 of the rows of a contains NaN"),
    "shapes": ({"clients": {"a": (X, Y), "b": (X[:, :2], Y)}}, "rows of one shape"),
    "share": ({"clients": {"a": (X, Y)}, "test": 1.5}, "0 to below 1"),
    "strangers": ({"clients": {"a": (X, Y)}, "test": {"b": (X, Y)}}, r"the same clients \(a, b differ"),
    "pictures": ({"clients": {"a": (np.zeros((10, 3, 9, 9), np.uint8), Y)}}, "channels first"),
    "key": ({"clients": {"a": (X, Y)}, "shrads": 2}, "unknown key 'task.shrads'"),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_wrong_arrays_are_refused_in_one_line(name: str) -> None:
    settings, message = WRONG_ARRAYS[name]
    with pytest.raises(UserError, match=message) as caught:
        Federation.from_clients(**settings)
    assert "\n" not in str(caught.value)
