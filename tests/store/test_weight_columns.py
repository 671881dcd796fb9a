"""Columns of a round's weights: the quick way to read them gives what reading them one by one gives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.store.weight_columns import _of_any_form, _of_one_form

NAME = st.text(min_size=1, max_size=6) | st.text("AaE1,.e-", min_size=1, max_size=3)
NAMES = st.lists(NAME, min_size=1, max_size=5, unique=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)


def joined(rows: list[dict[str, object]]) -> str:
    return ",".join(json.dumps(row) for row in rows)


@given(NAMES, st.data())
def test_objects_of_one_form_are_read_to_the_same_bits(names: list[str], data: st.DataObject) -> None:
    values = st.lists(NUMBERS, min_size=len(names), max_size=len(names))
    rows = [dict(zip(names, row, strict=True)) for row in data.draw(st.lists(values, min_size=1, max_size=4))]
    quick, slow = _of_one_form(joined(rows)), _of_any_form(joined(rows))
    if quick is not None:  # a name such as `}` or `": ` is left to the other way
        assert list(quick) == list(slow)
        assert all(quick[name].tobytes() == slow[name].tobytes() for name in slow)


@pytest.mark.parametrize(
    "odd",
    [
        {"b": 1.0, "a": 2.0},
        {"a": 1.0},
        {"a": 1.0, "b": 2.0, "c": 3.0},
        {"a": None, "b": 1.0},
        {"a": "A", "b": 1.0},
        {"a1": 1.0, "b": 2.0},
        {"a": 1.0, "eb": 2.0},
        {},
    ],
)
def test_an_object_of_another_form_is_not_read_the_quick_way(odd: dict[str, object]) -> None:
    rows: list[dict[str, object]] = [{"a": 1.5, "b": 2e-7}]
    assert _of_one_form(joined(rows)) is not None
    assert _of_one_form(joined([*rows, odd])) is None
    assert _of_one_form(joined([odd, *rows])) is None
