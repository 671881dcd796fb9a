"""Records: our values as Flower's records and back; nothing that comes back is trusted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedmerit.core.facts import MOST_SAMPLES
from fedmerit.core.learner import LOSS_UNIT, MOST_LOSS
from fedmerit.core.search.evaluator import Mixtures
from fedmerit.core.server.centring import FeatureSums
from fedmerit.core.showing import printable
from fedmerit.core.types import ClientId, Model, SparseUpdate, Verdict
from fedmerit.flower.arrays import TYPES, Unfit, read_array

T = TypeVar("T")

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
HELLO, SUM, TRAIN, REWARD, EVALUATE, AUDIT = (
    *("query.hello", "query.sum"),
    *("train", "train.reward"),
    *("evaluate", "evaluate.audit"),
)
"""What a server asks: who are you, sum up your inputs, train, take this reward, test these models, measure these."""

EXTRA = "extra:"
"""Before the names of vectors that travel beside the model or the update."""

TRAINED, REWARDED = 0, 1
"""When in a round a client's personal model came about."""


def tag_of(index: int, stage: int) -> int:
    """A number for a state of a personal model, the same on both sides; 0 is for none. Rounds count from 1."""
    return 2 * index + stage


def read_replies(
    read: Callable[[RecordDict], T], contents: Mapping[ClientId, RecordDict]
) -> tuple[dict[ClientId, T], dict[ClientId, str]]:
    """What `read` makes of each reply, in client order; for those that it cannot read, a printable reason.

    The one guard of replies: whatever a client sent, it costs that client its part and nobody the round.
    """
    good: dict[ClientId, T] = {}
    failed: dict[ClientId, str] = {}
    for client, content in sorted(contents.items()):
        try:
            good[client] = read(content)
        except Exception as error:  # a reply may break whatever reads it
            failed[client] = reason_of(error)
    return good, failed


def reason_of(error: Exception) -> str:
    """Why a reply is not taken, in at most 500 printable characters."""
    text = str(error) if isinstance(error, Unfit) else f"its reply cannot be read: {type(error).__name__}: {error}"
    return printable(text)


def pack(
    arrays: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> RecordDict:
    """One message's content; a record of each kind that is given, made anew for every message."""
    content = RecordDict()
    if arrays is not None:
        content[ARRAYS] = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    if config is not None:
        content[CONFIG] = ConfigRecord(dict(config))
    if metrics is not None:
        content[METRICS] = MetricRecord({name: _plain(value) for name, value in metrics.items()})
    return content


def _plain(value: Any) -> Any:
    """MetricRecord takes Python's numbers alone."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def array(
    content: RecordDict, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = TYPES
) -> NDArray[Any]:
    """A named array of the content, to be written to; of this shape and one of these types."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord) or name not in record:
        raise Unfit(f"array {name!r} is missing")
    return read_array(record[name], name, shape=shape, dtypes=dtypes).copy()


def has_array(content: RecordDict, name: str) -> bool:
    """Whether the content has that array."""
    record = content.get(ARRAYS)
    return isinstance(record, ArrayRecord) and name in record


def sent_extras(content: RecordDict) -> list[str]:
    """The names of the vectors that travel beside the model."""
    record = content.get(ARRAYS)
    names = record if isinstance(record, ArrayRecord) else ()
    return [name.removeprefix(EXTRA) for name in names if name.startswith(EXTRA)]


def vector(content: RecordDict, name: str, length: int) -> Model:
    """A named float32 row of that length."""
    return cast(Model, array(content, name, shape=(length,), dtypes=("f4",)))


def setting(content: RecordDict, name: str, kind: type) -> Any:
    """A named setting of the content, of that kind."""
    record = content.get(CONFIG)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Unfit(f"setting {name!r} is missing or not of type {kind.__name__}: {value!r:.80}")
    return value


def numbers(content: RecordDict) -> dict[str, Any]:
    """All metrics of the content; empty where it has none."""
    record = content.get(METRICS)
    return dict(record) if isinstance(record, MetricRecord) else {}


def models_as_records(models: Sequence[Model]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Models to be tested, as arrays and settings; mixtures as the vectors that they are made of."""
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


MOST_COUNT = 2**53
"""The largest whole number that is taken: floats hold all up to it."""


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


def _shown(value: Any) -> str:
    """The start of a value, however long it is."""
    return f"{value[:8] if isinstance(value, list) else value!r:.80}"


def counts(content: RecordDict, name: str, number: int) -> Sequence[int]:
    """A named list of that many whole numbers, none negative, none past what a sum of counts can hold."""
    value = numbers(content).get(name)
    good = isinstance(value, list) and len(value) == number and all(map(_is_count, value))
    if not good:
        raise Unfit(f"metric {name!r} must be {number} whole numbers from 0 to {MOST_COUNT}: {_shown(value)}")
    return cast(Sequence[int], value)


def pack_sums(sums: FeatureSums) -> RecordDict:
    """A client's sums as a message's content."""
    return pack({"sums": sums.sums, "squares": sums.squares}, metrics={"rows": [sums.rows]})


def as_sums(content: RecordDict) -> FeatureSums:
    """A client's sums from a message, not yet checked against those of others."""
    (rows,) = counts(content, "rows", 1)
    sums, squares = (array(content, name, dtypes=("f8",)) for name in ("sums", "squares"))
    if sums.ndim != 1 or sums.shape != squares.shape:
        raise Unfit(f"sums and squares must be rows alike; got shapes {sums.shape} and {squares.shape}")
    return FeatureSums(rows, sums, squares)


def reward_arrays(reward: SparseUpdate) -> dict[str, NDArray[Any]]:
    """A reward as arrays: its values, and their places where they are not all."""
    return {"values": reward.values} | ({} if reward.places is None else {"places": reward.places})


def as_reward(content: RecordDict) -> SparseUpdate:
    """A reward from arrays, not yet checked against a model."""
    places = array(content, "places") if has_array(content, "places") else None
    return SparseUpdate(array(content, "values"), places)


def verdict(content: RecordDict) -> Verdict:
    """A client's answer to a reward; one that does not fit is a refusal."""
    answer = numbers(content)
    before, after = (answer.get(name, float("nan")) for name in ("before", "after"))
    try:
        reason = printable(setting(content, "reason", str))
    except Unfit as error:
        reason = reason_of(error)
    if not (is_share(before) and is_share(after)):
        return Verdict(False, reason=reason or "its accuracies before and after the reward are not numbers in 0..1")
    return Verdict(answer.get("accepted") == 1 and not reason, float(before), float(after), reason)


def is_share(value: Any) -> bool:
    """Whether this is a number in 0..1, or NaN for one that nobody knows."""
    return isinstance(value, float | int) and (0 <= value <= 1 or value != value)


def evaluation(content: RecordDict, models: int, *, losses: bool) -> tuple[Sequence[int], Sequence[int], int]:
    """Of each model the right rows and the sum of the losses, and how many rows there are; all of it possible."""
    correct, (size,) = counts(content, "correct", models), counts(content, "size", 1)
    summed = counts(content, "losses", models) if losses else [0] * models
    if size > MOST_SAMPLES or max(correct, default=0) > size or max(summed, default=0) > size * MOST_LOSS / LOSS_UNIT:
        raise Unfit(f"no test of {size} rows comes to that: {_shown(correct)} right, losses of {_shown(summed)}")
    return correct, summed, size


def shares(content: RecordDict, names: Sequence[str]) -> dict[str, float]:
    """Metrics of these names, each a number in 0..1, or NaN."""
    values = numbers(content)
    if not all(is_share(values.get(name)) for name in names):
        raise Unfit(f"metrics {', '.join(names)} must be numbers in 0..1")
    return {name: float(values[name]) for name in names}


def alike_metrics(
    contents: Mapping[ClientId, RecordDict], weight: str
) -> tuple[dict[ClientId, RecordDict], dict[ClientId, str]]:
    """The replies whose one MetricRecord has the names and lengths that most have, all finite; why others do not count.

    `weight` names the number of rows that a reply counts by.
    """
    forms, failed = read_replies(partial(_form, weight=weight), contents)
    most = Counter(forms.values()).most_common(1)[0][0] if forms else ()
    failed |= {client: "its metrics are not those of most nodes" for client, form in forms.items() if form != most}
    return {client: contents[client] for client, form in forms.items() if form == most}, failed


def _form(content: RecordDict, weight: str) -> tuple[tuple[str, int], ...]:
    """The names of the metrics and how many numbers each has, -1 for one that is no list."""
    (record,) = content.metric_records.values()
    rows = record.get(weight)
    if not isinstance(rows, float | int) or not 0 <= rows <= MOST_SAMPLES:
        raise Unfit(f"metric {weight!r} must be a number from 0 to {MOST_SAMPLES:g}: {_shown(rows)}")
    values = {name: value if isinstance(value, list) else [value] for name, value in record.items()}
    unfit = [name for name, numbers in values.items() if not all(map(math.isfinite, numbers))]
    if unfit:
        raise Unfit(f"metric {unfit[0]!r} is not finite")
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in record.items()))
