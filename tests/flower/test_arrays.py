"""Arrays from a wire: what numpy writes is read as it is, and a header that claims more than it sends is refused."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Array, Message
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from test_faults import BAD, Meddling, next_round, task

from fedmerit import fedavg
from fedmerit.flower import GridFleet
from fedmerit.flower.messages import DTYPES, InvalidRecord, read_array

KINDS = st.sampled_from([np.dtype(kind) for kind in DTYPES])


@given(arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0)), st.sampled_from("CF"))
def test_what_numpy_writes_is_read_back(values: np.ndarray, order: str):
    kept = np.asarray(values, order=order)
    read = read_array(Array(kept), "x", shape=values.shape)
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)
    assert not read.flags.writeable


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (Array(np.zeros(3, ">f4")), "dtype >f4"),
        (Array(np.zeros(3, bool)), "dtype bool"),
        (Array(np.zeros(3, complex)), "dtype complex128"),
        (Array(np.array(["a"])), "dtype <U1"),
        (Array("float32", (3,), "torch", b""), "serialised as 'torch'"),
        (Array("float32", (3,), "numpy.ndarray", Array(np.zeros(3)).data[:-1]), "23 bytes are not shape (3,)"),
        (Array("float32", (3,), "numpy.ndarray", Array(np.zeros(3)).data + b"1"), "25 bytes are not shape (3,)"),
    ],
)
def test_what_is_not_numbers_is_refused_with_the_reason(array: Array, says: str):
    with pytest.raises(InvalidRecord, match="x") as refused:
        read_array(array, "x")
    assert says in str(refused.value)


def test_a_message_that_flower_cannot_make_costs_its_node_alone():
    made = task()

    class Grid(Meddling):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))  # gone from the grid, as Flower confirms before it reads
            if any(one.metadata.src_node_id == 1000 + BAD and one.metadata.message_type == "train" for one in replies):
                raise ValueError("Unknown object \x1b[2J")
            return replies

    fleet = GridFleet(Grid(made, lambda reply: [reply]), made.server(), timeout=0.3)
    fleet.meet(4)
    _, record = next_round(fleet, fedavg())
    assert record.ids == (0, 1, 3)
    assert record.dropped == {BAD: "its reply cannot be read: ValueError: Unknown object \\x1b[2J"}
