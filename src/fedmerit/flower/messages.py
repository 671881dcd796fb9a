"""Conversion of values to Flower's records and back, with checks of everything that a node sent.

An array is read under limits: a header of at most `MAX_HEADER` characters, and exactly as many bytes as its shape and
dtype need. numpy's own loader also accepts archives and pickles, and allocates as much as a header claims.
"""

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
from fedmerit.core.objectives import ERRORS, ROWS
from fedmerit.core.search.evaluator import Mixtures
from fedmerit.core.showing import printable
from fedmerit.core.types import ClientId, Model, SparseUpdate, Verdict

T = TypeVar("T")

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
HELLO, TRAIN, REWARD, EVALUATE, AUDIT = (
    "query.hello",
    *("train", "train.reward"),
    *("evaluate", "evaluate.audit"),
)
"""Message types: identify the client, train, offer a reward, test models, audit a model."""
UPLOAD, SHARE, MASKED, UNMASK = "train.upload", "train.share", "train.masked", "train.unmask"
"""Message types after facts: upload the update; share secrets, upload it under masks, and reveal shares."""

VECTOR = "vector:"
"""Prefix for the names of vectors that are sent in addition to the model or the update."""

TRAINED, REWARDED = 0, 1
"""The stages of a round in which a client's personal model changes."""

MAX_HEADER = 1024
DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
UNBOUNDED = (*ERRORS, "r2", ROWS.name)
"""Objectives that are not numbers from 0 to 1."""
MAX_COUNT = 2**53
"""The largest accepted count, up to which floats represent every integer."""


class InvalidRecord(Exception):
    """A record without the expected content; the text is the reason for dropping its client."""


def tag_of(index: int, stage: int) -> int:
    """The version of a personal model after a stage of a round, computed by client and server; 0 means no model."""
    return 2 * index + stage


def read_replies(
    read: Callable[[RecordDict], T], contents: Mapping[ClientId, RecordDict]
) -> tuple[dict[ClientId, T], dict[ClientId, str]]:
    """Apply `read` to each reply, in client order; return the values, and a printable reason per unreadable reply.

    All replies pass through this function, so that a hostile reply drops its client and never the round.
    """
    values: dict[ClientId, T] = {}
    failed: dict[ClientId, str] = {}
    for client, content in sorted(contents.items()):
        try:
            values[client] = read(content)
        except Exception as error:  # a hostile reply may cause any error
            failed[client] = reason_of(error)
    return values, failed


def reason_of(error: Exception) -> str:
    """Describe why a reply was rejected, in at most 500 printable characters."""
    expected = isinstance(error, InvalidRecord)
    return printable(str(error) if expected else f"its reply cannot be read: {type(error).__name__}: {error}")


def read_array(
    array: Array, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = DTYPES
) -> NDArray[Any]:
    """Return a read-only view of an array, checked to have this shape and one of these dtypes.

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
        expected = " or ".join(np.dtype(code).name for code in dtypes)
        raise InvalidRecord(f"{name} has dtype {dtype!s:.80}, not {expected}")
    if shape is not None and sizes != tuple(shape):
        raise InvalidRecord(f"{name} has shape {sizes!r:.80}, the model has {tuple(shape)}")
    start = file.tell()
    if min(sizes, default=0) < 0 or math.prod(sizes) * dtype.itemsize != len(data) - start:
        raise InvalidRecord(
            f"array {name!r} cannot be read: {len(data) - start} bytes are not shape {sizes!r:.80} of {dtype}"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(sizes, order="F" if by_columns else "C")


def to_vector(arrays: ArrayRecord, like: ArrayRecord | None = None, out: Model | None = None) -> Model:
    """Concatenate all arrays to one float32 vector, in `out` if given; `like` fixes order, names and shapes."""
    names = list(arrays if like is None else like)
    if set(arrays) != set(names):
        raise InvalidRecord(f"the reply has the arrays {sorted(arrays)[:5]!r:.200}, the model has {sorted(names)[:5]}")
    shapes = dict.fromkeys(names) if like is None else {name: like[name].shape for name in names}
    parts = [read_array(arrays[name], name, shape=shapes[name]).reshape(-1) for name in names]
    out = np.empty(sum(map(len, parts)), np.float32) if out is None else out
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes infinite, and the update is then dropped
        return np.concatenate([np.empty(0, np.float32), *parts], out=out, casting="unsafe")


def to_arrays(model: Model, like: ArrayRecord) -> ArrayRecord:
    """Split a vector into arrays with the names, shapes and dtypes of `like`."""
    arrays, start = {}, 0
    for name, array in like.items():
        size, dtype = math.prod(array.shape), np.dtype(array.dtype)
        part = model[start : start + size].reshape(array.shape)
        whole = np.issubdtype(dtype, np.integer)
        arrays[name] = Array(np.asarray(np.rint(part) if whole else part, dtype=dtype))
        start += size
    return ArrayRecord(arrays)


def vector_bytes(arrays: ArrayRecord) -> int:
    """Count the bytes of a record's numbers, without headers.

    >>> vector_bytes(ArrayRecord({"weight": Array(np.zeros((2, 3), np.float32)), "steps": Array(np.array(7))}))
    32
    """
    return sum(read_array(array, name).nbytes for name, array in arrays.items())


def pack(
    arrays: Mapping[str, NDArray[Any] | Array] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> RecordDict:
    """Make the content of a message: one record for each argument that is given."""
    content = RecordDict()
    if arrays is not None:
        content[ARRAYS] = ArrayRecord({name: to_array(array) for name, array in arrays.items()})
    if config is not None:
        content[CONFIG] = ConfigRecord(dict(config))
    if metrics is not None:  # a MetricRecord accepts Python's own numbers only
        content[METRICS] = MetricRecord({name: np.asarray(value).tolist() for name, value in metrics.items()})
    return content


def to_array(values: NDArray[Any] | Array) -> Array:
    """Serialise an array; an Array stays as it is, so that several messages can share it."""
    return values if isinstance(values, Array) else Array(np.ascontiguousarray(values))


def release_arrays(content: RecordDict) -> None:
    """Remove the arrays of a message that was read, so that they do not stay in memory."""
    for record in content.array_records.values():
        record.clear()


def arrays_in(content: RecordDict) -> Mapping[str, Array]:
    """The named arrays of a message; empty if it has none."""
    record = content.get(ARRAYS)
    return record if isinstance(record, ArrayRecord) else {}


def array(
    content: RecordDict, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = DTYPES
) -> NDArray[Any]:
    """Return a writable copy of a named array, checked to have this shape and one of these dtypes."""
    record = arrays_in(content)
    if name not in record:
        raise InvalidRecord(f"array {name!r} is missing")
    return read_array(record[name], name, shape=shape, dtypes=dtypes).copy()


def setting(content: RecordDict, name: str, kind: type) -> Any:
    """Return a named setting, checked to have this type."""
    record = content.get(CONFIG)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidRecord(f"setting {name!r} must be of type {kind.__name__} (got {value!r:.80})")
    return value


def numbers(content: RecordDict) -> dict[str, Any]:
    """All metrics of a message; empty if it has none."""
    record = content.get(METRICS)
    return dict(record) if isinstance(record, MetricRecord) else {}


def counts(content: RecordDict, name: str, number: int) -> Sequence[int]:
    """Return a named list, checked to have `number` integers between 0 and MAX_COUNT."""
    value = numbers(content).get(name)
    valid = isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_COUNT for item in value)
    if not valid or len(cast(list[int], value)) != number:
        raise InvalidRecord(
            f"metric {name!r} must be {number} whole numbers from 0 to {MAX_COUNT} (got {_shorten(value)})"
        )
    return cast(Sequence[int], value)


def _shorten(value: Any) -> str:
    """Format the start of a value of any length."""
    return f"{value[:8] if isinstance(value, list) else value!r:.80}"


def models_as_records(models: Sequence[Model]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Convert models to arrays and settings; mixtures are sent as their basis vectors and coefficients."""
    if not isinstance(models, Mixtures):
        return {str(place): model for place, model in enumerate(models)}, {"models": len(models), "mixed": []}
    vectors = {str(place): vector for place, vector in enumerate((models.start, *models.basis))}
    return vectors, {"models": len(models), "mixed": [float(value) for row in models.coefficients for value in row]}


def as_mixtures(content: RecordDict) -> Mixtures | None:
    """Read the mixtures that a server sent; None if it sent models."""
    mixed, number = setting(content, "mixed", list), setting(content, "models", int)
    if not mixed:
        return None
    start, *basis = (np.asarray(array(content, str(place)), np.float32) for place in range(len(mixed) // number + 1))
    rows = tuple(tuple(row) for row in np.reshape(mixed, (number, len(basis))).tolist())
    return Mixtures(start, tuple(basis), rows)


def as_reward(content: RecordDict) -> SparseUpdate:
    """Read a reward, without checking it against a model; without `places` it covers all coordinates."""
    places = array(content, "places") if "places" in arrays_in(content) else None
    return SparseUpdate(array(content, "values"), places)


def verdict(content: RecordDict) -> Verdict:
    """Read a client's answer to a reward."""
    answer, reason = numbers(content), printable(setting(content, "reason", str))
    before, after = (answer.get(name, float("nan")) for name in ("before", "after"))
    if not (is_share(before) and is_share(after)):
        raise InvalidRecord(reason or "its accuracies before and after the reward must be numbers from 0 to 1")
    return Verdict(answer.get("accepted") == 1 and not reason, float(before), float(after), reason)


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1, or NaN for an unknown one."""
    return isinstance(value, float | int) and (0 <= value <= 1 or value != value)


def evaluation(content: RecordDict, models: int, *, losses: bool) -> tuple[Sequence[int], Sequence[int], int]:
    """Read correct rows and summed losses of each model, and the number of rows; check that they are possible."""
    correct, (size,) = counts(content, "correct", models), counts(content, "size", 1)
    summed = counts(content, "losses", models) if losses else [0] * models
    if size > MOST_SAMPLES or max(correct, default=0) > size or max(summed, default=0) > size * MOST_LOSS / LOSS_UNIT:
        raise InvalidRecord(
            f"a test of {size} rows cannot have {_shorten(correct)} correct rows and losses of {_shorten(summed)}"
        )
    return correct, summed, size


def audited(content: RecordDict, names: Sequence[str]) -> dict[str, float]:
    """Return the named objectives, each checked to be a number that is possible, or NaN."""
    values = numbers(content)
    for name in names:
        value, bounded = values.get(name), name not in UNBOUNDED
        if not (is_share(value) if bounded else isinstance(value, float | int) and abs(value) < MAX_COUNT):
            raise InvalidRecord(f"metric {name} must be a {'number from 0 to 1' if bounded else 'finite number'}")
    return {name: float(values[name]) for name in names}


def consistent_metrics(
    contents: Mapping[ClientId, RecordDict], weight: str
) -> tuple[dict[ClientId, RecordDict], dict[ClientId, str]]:
    """Select replies whose MetricRecord is finite and has the majority's names and lengths; reasons for the rest.

    `weight` names the metric with the number of rows, by which a reply is weighted.
    """
    forms, failed = read_replies(partial(_metric_form, weight=weight), contents)
    most = Counter(forms.values()).most_common(1)[0][0] if forms else ()
    failed |= {client: "its metric names differ from most nodes'" for client, form in forms.items() if form != most}
    return {client: contents[client] for client, form in forms.items() if form == most}, failed


def _metric_form(content: RecordDict, weight: str) -> tuple[tuple[str, int], ...]:
    """The names of the metrics, and the length of each; -1 for a single number."""
    (record,) = content.metric_records.values()
    rows = record.get(weight)
    if not isinstance(rows, float | int) or not 0 <= rows <= MOST_SAMPLES:
        raise InvalidRecord(f"metric {weight!r} must be a number from 0 to {MOST_SAMPLES:g} (got {_shorten(rows)})")
    infinite = [name for name, value in record.items() if not np.isfinite(np.asarray(value, np.float64)).all()]
    if infinite:
        raise InvalidRecord(f"metric {infinite[0]!r} is not finite")
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in record.items()))
