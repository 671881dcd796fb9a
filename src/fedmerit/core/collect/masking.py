"""Masked sums: integers that clients add masks to, so that the server learns only their sum [Bonawitz 2017, Bell 2020].

    v_i = round(units_i * scale * clip(update_i, C))  modulo 2^32,    scale = (2^31 - n) / (C * sum of the units)
    sum_i factor_i * update_i ~ sum_i v_i / (scale * UNITS),          factor_i ~ units_i / UNITS

The units are the clients' weights as integers: they follow from facts, so the server knows them before any update. The
scale follows from the clip, the units and the number of clients n, and the sum of all v_i always fits the field. An
entry of the weighted mean differs from that of exact arithmetic by at most n * C / (2^31 - n), see `error_bound`.
Values are rounded at random to one of their neighbours, so that the errors of n clients add up to sqrt(n) of one, not
to n. With noise they are cut towards zero: a client's part is never longer than its clip, as differential privacy needs
it.

The masks themselves are in `fedmerit.flower.masks`: on one machine there is nobody to hide updates from, and the sum
has the same bits without them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.parts import Doc, check_settings
from fedmerit.core.seeds import generator
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.types import ClientId, Model, Note, Summed
from fedmerit.core.updates import WIDE, square

UNITS = 1 << 24
"""The units of a factor of 1."""
LARGEST_SUM = (1 << 31) - 1
"""The largest sum of the field: half of 2^32, because sums may be negative."""
MIN_CLIENTS = 3
"""A masked round needs at least this many clients, because the sum of two reveals each to the other."""
MIN_UPLOADED = 2 / 3
"""Share of the asked clients that must upload; with fewer the round changes nothing."""

Words32 = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Masking:
    """Settings of masked sums.

    clip       C, the largest norm of an update; longer ones are scaled down at the client
    unbiased   round values at random; else towards zero

    >>> Masking().clip
    100.0
    """

    clip: Annotated[float, Interval(gt=0), Doc("the largest norm of an update, which fixes the scale of the sum")] = (
        100.0
    )
    unbiased: Annotated[bool, Doc("round values at random to one of their neighbours, else towards zero")] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def scale(self, units: Iterable[int]) -> float:
        """Return the factor from units times values to integers, for clients with these units."""
        listed = list(units)
        return (LARGEST_SUM - len(listed)) / (self.clip * max(sum(listed), 1))

    def error_bound(self, clients: int) -> float:
        """Return the largest error of an entry of the weighted mean of this number of clients.

        >>> f"{Masking(clip=1.0).error_bound(1000):.1e}"
        '4.7e-07'
        """
        return clients * self.clip / (LARGEST_SUM - clients)


@dataclass(frozen=True, slots=True)
class MaskedTotal:
    """Sum modulo 2^32 of what clients uploaded; the last entry counts the clients whose update was clipped."""

    total: Words32
    uploaded: tuple[ClientId, ...]
    failed: Mapping[ClientId, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


def in_units(factors: Mapping[ClientId, float]) -> dict[ClientId, int]:
    """Return factors as integers, cut towards zero; clients whose factor is 0 are left out.

    >>> in_units({0: 0.25, 1: 0.0, 2: 0.75})
    {0: 4194304, 2: 12582912}
    """
    units = {client: int(factor * UNITS) for client, factor in factors.items()}
    return {client: number for client, number in units.items() if number}


def as_integers(
    update: Model, units: int, scale: float, clip: float, random: np.random.Generator | None = None
) -> Words32:
    """Return a client's part of the sum, before masks; an update that is not finite raises ValueError.

    random   for unbiased rounding; None: towards zero

    >>> as_integers(np.array([3.0, -4.0], np.float32), units=1, scale=10.0, clip=2.5).astype(np.int32).tolist()
    [15, -20, 1]
    """
    # In double precision, or rounding could make an update longer than its clip and the sum larger than the field; in
    # blocks, because double precision needs twice the memory.
    blocks = [slice(start, start + WIDE) for start in range(0, len(update), WIDE)]
    norm = np.sqrt(sum(float(np.square(update[block], dtype=np.float64).sum()) for block in blocks))
    if not np.isfinite(norm):
        raise ValueError("the update contains NaN, infinity or values too large to square")
    factor = float(clip_factors(np.array([norm]), clip)[0])
    integers = np.empty(len(update) + 1, np.uint32)
    for block in blocks:
        part = update[block].astype(np.float64) * (units * scale * factor)
        whole = np.trunc(part) if random is None else np.floor(part + random.random(len(part)))
        integers[block.start : block.start + len(part)] = whole.astype(np.int64).astype(np.uint32)
    integers[-1] = factor < 1
    return integers


def rounding(masking: Masking, index: int, client: ClientId) -> np.random.Generator | None:
    """Return the draws for a client's rounding; nothing secret, so that every fleet draws the same."""
    return generator(0, "rounding", index, client) if masking.unbiased else None


def from_integers(total: Words32, scale: float) -> Model:
    """Return the sum of factor times update from the sum of the integers.

    >>> from_integers(np.array([15, 2**32 - 20, 1], np.uint32), scale=10.0 / UNITS).tolist()
    [1.5, -2.0]
    """
    return np.asarray(total[:-1].view(np.int32) / (scale * UNITS), np.float32)


def add_unmasked(
    uploads: Iterable[tuple[ClientId, Model | str]],
    index: int,
    units: Mapping[ClientId, int],
    masking: Masking,
    length: int,
) -> MaskedTotal:
    """Add up clients' parts without masks: for clients that are simulated on one machine, with the same result."""
    total, uploaded, failed = np.zeros(length + 1, np.uint32), list[ClientId](), dict[ClientId, str]()
    scale = masking.scale(units.values())
    for client, row in uploads:
        try:
            if isinstance(row, str):
                raise ValueError(row)
            total += as_integers(row, units[client], scale, masking.clip, rounding(masking, index, client))
            uploaded.append(client)
        except ValueError as error:
            failed[client] = str(error)
    return MaskedTotal(total, tuple(uploaded), failed, bytes_up=len(uploaded) * total.nbytes)


def read_total(result: MaskedTotal, units: Mapping[ClientId, int], masking: Masking) -> Summed:
    """Turn a masked total into the sum for the aggregator; too few uploads, or an impossible sum, change nothing."""
    asked, clients, length = len(units), len(result.uploaded), len(result.total) - 1
    scale = masking.scale(units.values())
    reason = ""
    if clients < max(MIN_CLIENTS, MIN_UPLOADED * asked):
        reason = f"only {clients} of {asked} clients uploaded; a masked sum needs {max(MIN_CLIENTS, _needed(asked))}"
    total = np.zeros(length, np.float32) if reason else from_integers(result.total, scale)
    sent = sum(units[client] for client in result.uploaded) / UNITS
    slack = masking.error_bound(asked) * np.sqrt(length)
    if not reason and np.sqrt(square(total)) > masking.clip * sent * (1 + 1e-6) + slack:
        reason = "the sum is longer than its parts can be: at least one client sent something else than its update"
    if reason:
        failed = {**dict.fromkeys(units, reason), **result.failed}
        return Summed(np.zeros(length, np.float32), {}, failed, result.bytes_down, result.bytes_up)
    # Drop-outs leave less weight to divide by than the scale was made for, so the bound grows.
    error = clients / (scale * sent * UNITS)
    clipped = int(result.total[-1])
    text = f"{clipped} of {clients} updates were clipped to a norm of {masking.clip:g} at their clients"
    return Summed(
        total,
        {client: units[client] / UNITS for client in result.uploaded},
        result.failed,
        result.bytes_down,
        result.bytes_up,
        exact=False,
        numbers={"error": error, "clip": masking.clip},
        notes=(Note("clipped", "updates", text),) if clipped else (),
    )


def _needed(asked: int) -> int:
    return int(np.ceil(MIN_UPLOADED * asked))
