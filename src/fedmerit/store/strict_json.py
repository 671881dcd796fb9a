"""Strict JSON: output without NaN, input of bounded size, one clear message for invalid text."""

import json
import math
from collections.abc import Mapping
from typing import Any

from fedmerit.core.showing import printable
from fedmerit.errors import DataError


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which a number that is not finite is null.

    >>> dump_json({"accuracy": float("nan"), "rounds": (1, 2)})
    '{"accuracy": null, "rounds": [1, 2]}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def load_json(text: str, what: str) -> Any:
    """Parse a JSON text; raise a DataError that names `what` if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} is not JSON: {printable(str(error), 100)}") from None
