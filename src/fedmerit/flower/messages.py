"""The contents of messages: our values as Flower's records and back. Everything that a node sent is checked.

Arrays are read under limits: a header of at most `MAX_HEADER` characters, and exactly the bytes that its shape and
dtype need. numpy's own loader also accepts archives and pickles, and allocates what a header claims.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedmerit.core.facts import MOST_SAMPLES
from fedmerit.core.learner import LOSS_UNIT, MOST_LOSS
from fedmerit.core.search.evaluator import Mixtures
from fedmerit.core.server.centring import FeatureSums
from fedmerit.core.showing import printable
from fedmerit.core.types import ClientId, Model, SparseUpdate, Verdict

T = TypeVar("T")

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
HELLO, SUM, TRAIN, REWARD, EVALUATE, AUDIT = (
    *("query.hello", "query.sum"),
    *("train", "train.reward"),
    *("evaluate", "evaluate.audit"),
)
"""Message types: which client are you, sum your inputs, train, accept this reward, test these models, audit a model."""

VECTOR = "vector:"
"""Prefix for the names of vectors that travel in addition to the model or the update."""

TRAINED, REWARDED = 0, 1
"""The stages of a round in which a client's personal model changes."""

MAX_HEADER = 1024
DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
MAX_COUNT = 2**53
"""The largest count that is accepted: floats represent every integer up to it."""


class InvalidRecord(Exception):
    """A record that does not have the expected content; its text is the reason."""


def tag_of(index: int, stage: int) -> int:
    """A number for a state of a personal model, the same on both sides; 0 means none. Rounds count from 1."""
    return 2 * index + stage


def read_replies(
    read: Callable[[RecordDict], T], contents: Mapping[ClientId, RecordDict]
) -> tuple[dict[ClientId, T], dict[ClientId, str]]:
    """Apply `read` to each reply, in client order; for replies that cannot be read, return a printable reason.

    This is the one guard of replies: a hostile reply drops that client and never the round.
    """
    values: dict[ClientId, T] = {}
    failed: dict[ClientId, str] = {}
    for client, content in sorted(contents.items()):
        try:
            values[client] = read(content)
        except Exception as error:  # a reply may break whatever reads it
            failed[client] = reason_of(error)
    return values, failed


def reason_of(error: Exception) -> str:
    """Why a reply was rejected, in at most 500 printable characters."""
    known = isinstance(error, InvalidRecord)
    return printable(str(error) if known else f"its reply cannot be read: {type(error).__name__}: {error}")


def read_array(
    array: Array, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = DTYPES
) -> NDArray[Any]:
    """A read-only view of an array's numbers, of this shape and one of these dtypes.

    >>> read_array(Array(np.arange(3.0)), "row", shape=[3]).tolist()
    [0.0, 1.0, 2.0]
    >>> read_array(Array(np.arange(3.0)), "row", shape=[4])
    Traceback (most recent call last):
    fedmerit.flower.messages.InvalidRecord: row has shape (3,), the model has (4,)
    """
    data = array.data
    try:
        if array.stype != "numpy.ndarray":
            raise ValueError(f"serialised as {array.stype!r:.80}, not as numpy.ndarray")
        file = io.BytesIO(data)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        sizes, by_columns, dtype = readers[npy.read_magic(file)](file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy raises errors of many kinds for bytes that are not an array
        raise InvalidRecord(f"array {name!r} cannot be read: {type(error).__name__}: {error!s:.200}") from None
    if dtype.str[1:] not in dtypes or not dtype.isnative:
        raise InvalidRecord(f"{name} has dtype {dtype!s:.80}, not {' or '.join(np.dtype(one).name for one in dtypes)}")
    if shape is not None and sizes != tuple(shape):
        raise InvalidRecord(f"{name} has shape {sizes!r:.80}, the model has {tuple(shape)}")
    start = file.tell()
    if min(sizes, default=0) < 0 or math.prod(sizes) * dtype.itemsize != len(data) - start:
        raise InvalidRecord(
            f"array {name!r} cannot be read: {len(data) - start} bytes are not shape {sizes!r:.80} of {dtype}"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(sizes, order="F" if by_columns else "C")


def to_vector(arrays: ArrayRecord, like: ArrayRecord | None = None, out: Model | None = None) -> Model:
    """Concatenate all arrays as one float32 vector, into `out` if given; `like` fixes order, names and shapes."""
    names = list(arrays if like is None else like)
    if set(arrays) != set(names):
        raise InvalidRecord(f"arrays are {sorted(arrays)[:5]!r:.200}, the model has {sorted(names)[:5]}")
    shapes = dict.fromkeys(names) if like is None else {name: like[name].shape for name in names}
    parts = [read_array(arrays[name], name, shape=shapes[name]).reshape(-1) for name in names]
    out = np.empty(sum(map(len, parts)), np.float32) if out is None else out
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes infinite, and such an update is dropped
        return np.concatenate([np.empty(0, np.float32), *parts], out=out, casting="unsafe")


def to_arrays(model: Model, like: ArrayRecord) -> ArrayRecord:
    """Cut a vector into arrays with the names, shapes and dtypes of `like`."""
    arrays, start = {}, 0
    for name, array in like.items():
        size, dtype = math.prod(array.shape), np.dtype(array.dtype)
        part = model[start : start + size].reshape(array.shape)
        whole = np.issubdtype(dtype, np.integer)
        arrays[name] = Array(np.asarray(np.rint(part) if whole else part, dtype=dtype))
        start += size
    return ArrayRecord(arrays)


def vector_bytes(arrays: ArrayRecord) -> int:
    """The bytes of a record's numbers as they travel, without headers.

    >>> vector_bytes(ArrayRecord({"weight": Array(np.zeros((2, 3), np.float32)), "steps": Array(np.array(7))}))
    32
    """
    return sum(read_array(array, name).nbytes for name, array in arrays.items())


def pack(
    arrays: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> RecordDict:
    """The content of one message, with a new record of each kind that is given."""
    content = RecordDict()
    if arrays is not None:
        content[ARRAYS] = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    if config is not None:
        content[CONFIG] = ConfigRecord(dict(config))
    if metrics is not None:  # a MetricRecord accepts Python's own numbers only
        content[METRICS] = MetricRecord({name: np.asarray(value).tolist() for name, value in metrics.items()})
    return content


def arrays_in(content: RecordDict) -> Mapping[str, Array]:
    """The named arrays of a content; empty where it has none."""
    record = content.get(ARRAYS)
    return record if isinstance(record, ArrayRecord) else {}


def array(
    content: RecordDict, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = DTYPES
) -> NDArray[Any]:
    """A writable copy of a named array, of this shape and one of these dtypes."""
    record = arrays_in(content)
    if name not in record:
        raise InvalidRecord(f"array {name!r} is missing")
    return read_array(record[name], name, shape=shape, dtypes=dtypes).copy()


def setting(content: RecordDict, name: str, kind: type) -> Any:
    """A named setting of the content, of that type."""
    record = content.get(CONFIG)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidRecord(f"setting {name!r} is missing or not of type {kind.__name__}: {value!r:.80}")
    return value


def numbers(content: RecordDict) -> dict[str, Any]:
    """All metrics of the content; empty where it has none."""
    record = content.get(METRICS)
    return dict(record) if isinstance(record, MetricRecord) else {}


def counts(content: RecordDict, name: str, number: int) -> Sequence[int]:
    """A named list of that many integers between 0 and MAX_COUNT."""
    value = numbers(content).get(name)
    valid = isinstance(value, list) and all(type(one) is int and 0 <= one <= MAX_COUNT for one in value)
    if not valid or len(cast(list[int], value)) != number:
        raise InvalidRecord(f"metric {name!r} must be {number} whole numbers from 0 to {MAX_COUNT}: {_start(value)}")
    return cast(Sequence[int], value)


def _start(value: Any) -> str:
    """The first characters of a value of any length."""
    return f"{value[:8] if isinstance(value, list) else value!r:.80}"


def models_as_records(models: Sequence[Model]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Models to be tested, as arrays and settings; mixtures as the vectors that they combine."""
    if not isinstance(models, Mixtures):
        return {str(place): model for place, model in enumerate(models)}, {"models": len(models), "mixed": []}
    vectors = {str(place): vector for place, vector in enumerate((models.start, *models.basis))}
    return vectors, {"models": len(models), "mixed": [float(one) for row in models.coefficients for one in row]}


def as_mixtures(content: RecordDict) -> Mixtures | None:
    """The mixtures that a server sent; None where it sent models."""
    mixed, number = setting(content, "mixed", list), setting(content, "models", int)
    if not mixed:
        return None
    start, *basis = (np.asarray(array(content, str(place)), np.float32) for place in range(len(mixed) // number + 1))
    rows = tuple(tuple(row) for row in np.reshape(mixed, (number, len(basis))).tolist())
    return Mixtures(start, tuple(basis), rows)


def as_sums(content: RecordDict) -> FeatureSums:
    """A client's sums of inputs, not yet compared with those of the remaining clients."""
    (rows,) = counts(content, "rows", 1)
    sums, squares = (array(content, name, dtypes=("f8",)) for name in ("sums", "squares"))
    if sums.ndim != 1 or sums.shape != squares.shape:
        raise InvalidRecord(f"sums and squares must be vectors alike; got shapes {sums.shape} and {squares.shape}")
    return FeatureSums(rows, sums, squares)


def as_reward(content: RecordDict) -> SparseUpdate:
    """A reward, not yet checked against a model; without `places` it covers all coordinates."""
    places = array(content, "places") if "places" in arrays_in(content) else None
    return SparseUpdate(array(content, "values"), places)


def verdict(content: RecordDict) -> Verdict:
    """A client's answer to a reward; an invalid one counts as a refusal."""
    answer = numbers(content)
    before, after = (answer.get(name, float("nan")) for name in ("before", "after"))
    try:
        reason = printable(setting(content, "reason", str))
    except InvalidRecord as error:
        reason = reason_of(error)
    if not (is_share(before) and is_share(after)):
        return Verdict(False, reason=reason or "its accuracies before and after the reward are not numbers in 0..1")
    return Verdict(answer.get("accepted") == 1 and not reason, float(before), float(after), reason)


def is_share(value: Any) -> bool:
    """Whether this is a number in 0..1, or NaN for an unknown one."""
    return isinstance(value, float | int) and (0 <= value <= 1 or value != value)


def evaluation(content: RecordDict, models: int, *, losses: bool) -> tuple[Sequence[int], Sequence[int], int]:
    """Correct rows and summed losses of each model, and the number of rows, if these numbers are possible."""
    correct, (size,) = counts(content, "correct", models), counts(content, "size", 1)
    summed = counts(content, "losses", models) if losses else [0] * models
    if size > MOST_SAMPLES or max(correct, default=0) > size or max(summed, default=0) > size * MOST_LOSS / LOSS_UNIT:
        raise InvalidRecord(f"a test of {size} rows cannot have {_start(correct)} right and losses of {_start(summed)}")
    return correct, summed, size


def shares(content: RecordDict, names: Sequence[str]) -> dict[str, float]:
    """The metrics of these names, each a number in 0..1, or NaN."""
    values = numbers(content)
    if not all(is_share(values.get(name)) for name in names):
        raise InvalidRecord(f"metrics {', '.join(names)} must be numbers in 0..1")
    return {name: float(values[name]) for name in names}


def consistent_metrics(
    contents: Mapping[ClientId, RecordDict], weight: str
) -> tuple[dict[ClientId, RecordDict], dict[ClientId, str]]:
    """The replies whose MetricRecord is finite and has the names and lengths that most have; reasons for the rest.

    `weight` names the number of rows that a reply is weighted by.
    """
    forms, failed = read_replies(partial(_metric_form, weight=weight), contents)
    most = Counter(forms.values()).most_common(1)[0][0] if forms else ()
    failed |= {client: "its metrics are not those of most nodes" for client, form in forms.items() if form != most}
    return {client: contents[client] for client, form in forms.items() if form == most}, failed


def _metric_form(content: RecordDict, weight: str) -> tuple[tuple[str, int], ...]:
    """The names of the metrics and the length of each, -1 for a single number."""
    (record,) = content.metric_records.values()
    rows = record.get(weight)
    if not isinstance(rows, float | int) or not 0 <= rows <= MOST_SAMPLES:
        raise InvalidRecord(f"metric {weight!r} must be a number from 0 to {MOST_SAMPLES:g}: {_start(rows)}")
    infinite = [name for name, value in record.items() if not np.isfinite(np.asarray(value, np.float64)).all()]
    if infinite:
        raise InvalidRecord(f"metric {infinite[0]!r} is not finite")
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in record.items()))
