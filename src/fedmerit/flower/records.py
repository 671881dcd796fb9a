"""Records: our values as Flower's records and back; nothing that comes back is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedmerit.core.centring import FeatureSums
from fedmerit.core.mixtures import Mixtures
from fedmerit.core.types import Model, SparseUpdate, Verdict

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


class Unfit(Exception):
    """A record that is not what it should be; its text is the reason."""


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


def array(content: RecordDict, name: str) -> NDArray[Any]:
    """A named array of the content."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord) or name not in record:
        raise Unfit(f"array {name!r} is missing")
    try:
        return record[name].numpy()
    except (TypeError, ValueError, EOFError, OSError) as error:
        raise Unfit(f"array {name!r} cannot be read: {error}") from None


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
    row = array(content, name)
    if row.dtype != np.float32:
        raise Unfit(f"{name} has dtype {row.dtype}, not float32")
    if row.shape != (length,):
        raise Unfit(f"{name} has shape {row.shape}, the model has {length} values")
    return cast(Model, row)


def setting(content: RecordDict, name: str, kind: type) -> Any:
    """A named setting of the content, of that kind."""
    record = content.get(CONFIG)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, kind):
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


def counts(content: RecordDict, name: str, number: int) -> Sequence[int]:
    """A named list of that many whole numbers, none negative."""
    value = numbers(content).get(name)
    good = isinstance(value, list) and len(value) == number and all(type(one) is int and one >= 0 for one in value)
    if not good:
        raise Unfit(f"metric {name!r} must be {number} whole numbers >= 0: {value!r:.80}")
    return cast(Sequence[int], value)


def pack_sums(sums: FeatureSums) -> RecordDict:
    """A client's sums as a message's content."""
    return pack({"sums": sums.sums, "squares": sums.squares}, metrics={"rows": [sums.rows]})


def as_sums(content: RecordDict) -> FeatureSums:
    """A client's sums from a message, not yet checked against those of others."""
    (rows,), sums, squares = counts(content, "rows", 1), array(content, "sums"), array(content, "squares")
    for name, values in (("sums", sums), ("squares", squares)):
        if values.dtype != np.float64 or values.ndim != 1:
            raise Unfit(f"{name} must be one row of float64; got {values.dtype} of shape {values.shape}")
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
        reason = setting(content, "reason", str)
    except Unfit as error:
        reason = str(error)
    if not (isinstance(before, float | int) and isinstance(after, float | int)):
        return Verdict(False, reason=reason or "its accuracies before and after the reward are not numbers")
    return Verdict(answer.get("accepted") == 1 and not reason, float(before), float(after), reason)
