"""The libraries of the `data` extra: imported when first needed, kept quiet, named when they are missing."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import warnings
from collections.abc import Iterator
from typing import Any

from fedmerit.errors import DataError


def need(module: str) -> Any:
    """The module, or a DataError that says how to install it."""
    # flwr reports every loaded split to its makers unless told otherwise before it is imported.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"loading and spreading data needs {module.partition('.')[0]}, which cannot be imported ({error}); "
            "way out: pip install 'fedmerit[data]'"
        ) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings and no progress bars from the libraries inside: their advice is about options we do not show."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
