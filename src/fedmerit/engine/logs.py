"""Logs as JSON lines on standard error, for log collectors."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError

if TYPE_CHECKING:  # a ClientApp imports this file and must start fast
    from fedmerit.core.state import Record

VARIABLE, FORMATS = "FEDMERIT_LOG", ("text", "json")
LOGGERS = ("flwr", "fedmerit")
FIELDS = "fields"
"""The attribute of a log record with further fields, set by `extra=`."""

log = logging.getLogger("fedmerit")


class JsonLines(logging.Formatter):
    """Format log records as JSON: time (UTC), level, logger, message, process, exception and further fields.

    >>> record = logging.LogRecord("flwr", logging.INFO, "x.py", 1, "round %d", (3,), None)
    >>> json.loads(JsonLines().format(record))["message"]
    'round 3'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        fields |= {"message": printable(record.getMessage(), 5000), "process": record.process}
        fields |= getattr(record, FIELDS, {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def log_format(requested: str | None = None) -> str:
    """The log format, `text` or `json`: as requested, else from the environment variable FEDMERIT_LOG."""
    chosen = requested or os.environ.get(VARIABLE) or FORMATS[0]
    if chosen not in FORMATS:
        raise ConfigError(
            f"the log format ({VARIABLE}, --log-format) must be {' or '.join(FORMATS)} (got {printable(chosen)!r})"
        )
    return chosen


def start_logs(requested: str | None = None, stream: TextIO | None = None) -> bool:
    """Write Flower's log and fedmerit's as JSON lines if the log format is `json`; return whether it is."""
    if log_format(requested) != "json":
        return False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    return True


def as_json(config: dict[str, Any]) -> dict[str, Any]:
    """Replace the formatters of a logging configuration, such as uvicorn's, by JSON lines."""
    return {**config, "formatters": {name: {"()": JsonLines} for name in config["formatters"]}}


class RoundLog:
    """Log a line for each round of a run, each client that was left out and each note."""

    def __init__(self, names: Sequence[str] = (), **fields: Any) -> None:
        self._names, self._fields = names, fields

    def __call__(self, record: Record) -> None:
        """Log a round."""
        about = {**self._fields, "round": record.index}
        numbers: dict[str, Any] = {"clients": len(record.ids), "left_out": len(record.dropped)}
        numbers |= {} if record.value is None or math.isnan(record.value) else {record.measure: round(record.value, 6)}
        numbers["seconds"] = {stage: round(duration, 4) for stage, duration in record.seconds.items()}
        write_log("round", about | numbers)
        for client, reason in record.dropped.items():
            write_log("left out", about | self._client(client) | {"reason": reason}, logging.WARNING)
        for note in (*record.notes, *(record.weights.notes if record.weights else ())):
            who = {} if note.client is None else self._client(note.client)
            write_log(note.text, about | who | {"kind": note.kind})

    def _client(self, client: int) -> dict[str, Any]:
        return {"client": client, "name": self._names[client]} if client < len(self._names) else {"client": client}


def write_log(message: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
    """Log one line with further fields."""
    log.log(level, "%s", message, extra={FIELDS: fields})
