"""Inverted pictures: ink on white paper as light on black, so that most pixels are zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import Samples
from fedmerit.errors import ConfigError
from fedmerit.tasks.federation import ClientData, Federation, Split


def inverted(x: NDArray[Any]) -> NDArray[Any]:
    """The negatives of pictures: 255 - x of bytes, 1 - x of floats.

    >>> inverted(np.full((1, 1, 1, 1), 245, np.uint8)).item()
    10
    """
    if x.ndim != 4:
        raise ConfigError(
            "task.invert is for pictures, rows of height x width x channels; these rows have shape "
            f'{x.shape[1:]}; leave it away, or set task.centre = "mean", which is for tables, too'
        )
    return np.asarray(np.array(255 if x.dtype == np.uint8 else 1, x.dtype) - x)


def inverted_rows(rows: Samples) -> Samples:
    """Somebody's rows with inverted pictures."""
    return replace(rows, x=inverted(rows.x))


def inverted_client(data: ClientData) -> ClientData:
    """A client's rows with inverted pictures."""
    train, test, validation = map(inverted_rows, (data.train, data.test, data.validation))
    return replace(data, train=train, test=test, validation=validation)


def inverted_federation(federation: Federation) -> Federation:
    """Everybody's rows with inverted pictures, the server's too."""

    def split(rows: Split) -> Split:
        return replace(rows, x=inverted(rows.x))

    return replace(
        federation,
        train=split(federation.train),
        test=split(federation.test),
        validation=split(federation.validation),
        server=inverted_rows(federation.server) if federation.server else None,
    )
