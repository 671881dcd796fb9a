"""Centring: the federation's mean input, from sums that clients send once before the first round.

Inputs far from zero slow down every learner: FEMNIST's mean pixel is 245 of 255. Clients send sums per feature, never
rows; the server builds one `Centring` from them. It is stored inside the model, so that a model that is saved, sent or
resumed knows its inputs. The sums of very few rows reveal much about them: that is the cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import CentredLearner, Learner
from fedmerit.core.types import ClientId, Model, Vector
from fedmerit.errors import ConfigError, RunFailed

Centre: TypeAlias = Literal["mean", "standard"]
"""Inputs minus the federation's mean; with `standard`, also divided by its deviation."""

ROWS = 1000  # rows per step: as float64 they take eight times the memory of the bytes they come from
LARGEST_MEAN = 1e6
"""Largest mean input that is accepted: beyond it no learner learns, and one client could shift all inputs."""


@dataclass(frozen=True, slots=True)
class FeatureSums:
    """Sums over a client's training inputs, pixels in 0..1: rows, and per feature the sum and sum of squares."""

    rows: int
    sums: Vector
    squares: Vector

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.sums.nbytes + self.squares.nbytes


Sums: TypeAlias = tuple[Mapping[ClientId, FeatureSums], Mapping[ClientId, str]]
"""Clients' sums, unchecked, and the reason for each client without any."""


class SummingClients(Protocol):
    """Clients that sum their inputs."""

    def sum_features(self) -> Sums:
        """Collect every client's sums in one exchange."""


@dataclass(frozen=True, slots=True)
class Centring:
    """Mean per feature over all clients' rows and, for standardised inputs, the deviation.

    >>> Centring(np.array([2.0]), np.array([4.0]))(np.array([[10.0]])).tolist()
    [[2.0]]
    """

    mean: Vector
    deviation: Vector | None = None

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """(x - mean) / deviation."""
        flat = x.reshape(len(x), -1) - self.mean
        return (flat if self.deviation is None else flat / self.deviation).reshape(x.shape)


def feature_sums(x: NDArray[Any]) -> FeatureSums:
    """Sum a client's inputs; bytes are pixels and count as 0..1.

    >>> feature_sums(np.array([[0], [255]], np.uint8)).sums.tolist()
    [1.0]
    """
    flat = x.reshape(len(x), int(np.prod(x.shape[1:])))
    sums, squares = np.zeros((2, flat.shape[1]))
    for start in range(0, len(flat), ROWS):
        part = flat[start : start + ROWS].astype(np.float64)
        sums += part.sum(axis=0)
        squares += np.square(part).sum(axis=0)
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    return FeatureSums(len(x), sums / unit, squares / unit**2)


def check_sums(sums: Sums, rows: float | None = None) -> Sums:
    """Return the sums that can be added up, and the reason for every client that is left out.

    Sums must be finite, as long as those of most clients, of at most `rows` rows, at most LARGEST_MEAN per row, and no
    mean may exceed the root of the mean square. A client without rows is skipped.
    """
    answers, failed = sums
    lengths = Counter(len(one.sums) for one in answers.values() if np.ndim(one.sums) == 1 and one.rows)
    length = lengths.most_common(1)[0][0] if lengths else 0
    reasons = {client: _wrong(one, length, rows) for client, one in sorted(answers.items()) if one.rows}
    good = {client: answers[client] for client, reason in reasons.items() if not reason}
    return good, {**failed, **{client: reason for client, reason in reasons.items() if reason}}


def _wrong(one: FeatureSums, length: int, rows: float | None) -> str:
    if one.rows < 0 or (rows is not None and one.rows > rows):
        return f"its sums cover {one.rows} rows, but the federation has {rows}"
    if one.sums.shape != (length,) or one.squares.shape != (length,):
        return f"its sums have shape {one.sums.shape} and {one.squares.shape}; those of most clients have ({length},)"
    if not (np.isfinite(one.sums).all() and np.isfinite(one.squares).all()):
        return "its sums contain NaN or infinity"
    means = one.sums / one.rows
    if np.abs(means).max(initial=0) > LARGEST_MEAN:
        return f"its mean input exceeds {LARGEST_MEAN:g}"
    # Jensen: mean(x)^2 <= mean(x^2). Sums that violate it come from no data at all.
    possible = np.square(means) <= one.squares / one.rows * (1 + 1e-6) + 1e-9
    return "" if possible.all() else "its sums of squares are too small for its sums"


def make_centring(sums: Mapping[ClientId, FeatureSums], centre: Centre) -> Centring:
    """Compute mean and deviation over all rows of these clients, added up in client order.

    A constant feature gets deviation 1: centred, it is zero anyway.

    >>> rows = {0: feature_sums(np.array([[1.0]])), 1: feature_sums(np.array([[2.0], [3.0]]))}
    >>> make_centring(rows, "mean").mean.tolist()
    [2.0]
    """
    rows = sum(one.rows for one in sums.values())
    mean = np.sum([sums[client].sums for client in sorted(sums)], axis=0) / rows
    if centre == "mean":
        return Centring(mean)
    square = np.sum([sums[client].squares for client in sorted(sums)], axis=0) / rows
    variance = square - np.square(mean)
    constant = variance <= 1e-12 * np.maximum(square, 1e-12)  # rounding leaves a little variance in a constant feature
    return Centring(mean, np.sqrt(np.where(constant, 1.0, variance)))


def check_centred(learner: Learner, centre: Centre | None) -> None:
    """Reject an unknown centring, and a learner that cannot centre."""
    if centre not in (None, *get_args(Centre)):
        raise ConfigError(f"centre must be one of {', '.join(get_args(Centre))}, or None (got {centre!r})")
    if centre is not None and not isinstance(learner, CentredLearner):
        raise ConfigError(
            f"task.centre = {centre!r} needs a learner with a method `centred`, which this task's learner does not "
            "have; remove task.centre, or centre the data beforehand"
        )


def centre_model(
    model: Model,
    learner: Learner,
    clients: SummingClients,
    centre: Centre,
    rows: float | None,
) -> tuple[Model, Mapping[ClientId, str], str]:
    """Add the federation's centring to the first model; return it, the clients left out, and a line for the ledger."""
    check_centred(learner, centre)
    assert isinstance(learner, CentredLearner)
    good, left_out = check_sums(clients.sum_features(), rows)
    if not good:
        raise RunFailed(
            f"no client sent valid sums to centre the inputs (got {dict(list(left_out.items())[:3])}); "
            "fix the clients' data, or remove task.centre"
        )
    centring = make_centring(good, centre)
    about = (
        f"inputs centred ({centre}) by {sum(one.rows for one in good.values())} rows of {len(good)} clients, "
        f"{sum(one.nbytes for one in good.values())} bytes up; mean input {centring.mean.mean():.4g}"
    )
    return learner.centred(model, centring), left_out, about
