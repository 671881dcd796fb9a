"""Laws of encoded tables: rows seen again become the inputs they were, to the bit, also from the file that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedmerit import Federation
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.formats.table_files import read_frame

NUMBERS = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
WORDS = st.sampled_from(["a", "b", "c ", "1", None])
ROWS = st.lists(st.tuples(st.sampled_from(["north", "south", "west"]), NUMBERS, WORDS), min_size=6, max_size=30)


@settings(max_examples=60)
@given(ROWS, st.sampled_from(["client", "none"]))
def test_training_rows_come_back_as_they_were(rows: list[tuple[Any, ...]], standardise: Any) -> None:
    clients, numbers, words = zip(*rows, strict=True)
    frame = pd.DataFrame({"who": clients, "value": np.array(numbers, dtype=float), "word": words})
    frame = frame.assign(place=np.arange(len(rows)), label=np.arange(len(rows)) % 2)
    assume(len(set(clients)) > 1)
    data = Federation.from_frame(frame, client="who", label="label", test=0.0, standardise=standardise)
    assert data.encoder is not None
    inputs, notes = Encoder.from_json(data.encoder.to_json())(read_frame(frame.drop(columns="label")))
    assert notes == []
    for client, name in enumerate(data.names):
        trained, again = data.samples(client).x, inputs[np.array(clients) == name]
        assert sorted(row.tobytes() for row in trained) == sorted(row.tobytes() for row in again)
