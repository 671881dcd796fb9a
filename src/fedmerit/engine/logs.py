"""Logs as JSON: one object to a line on standard error, for programs that collect them."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError

if TYPE_CHECKING:  # a ClientApp imports this file, and little else
    from fedmerit.core.state import Record

VARIABLE, FORMATS = "FEDMERIT_LOG", ("text", "json")
LOGGERS = ("flwr", "fedmerit")
FIELDS = "fields"
"""The key under which a log record carries further fields, by `extra=`."""

log = logging.getLogger("fedmerit")


class JsonLines(logging.Formatter):
    """Time (UTC), level, logger, message and process; an exception as text, and whatever fields the record has.

    >>> one = logging.LogRecord("flwr", logging.INFO, "x.py", 1, "round %d", (3,), None)
    >>> json.loads(JsonLines().format(one))["message"]
    'round 3'
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        told |= {"message": printable(record.getMessage(), 5000), "process": record.process}
        told |= getattr(record, FIELDS, {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def log_format(asked: str | None = None) -> str:
    """`text` or `json`: as asked, else as FEDMERIT_LOG says."""
    found = asked or os.environ.get(VARIABLE) or FORMATS[0]
    if found not in FORMATS:
        raise ConfigError(f"logs are {' or '.join(FORMATS)} ({VARIABLE}, --log-format); got {printable(found)!r}")
    return found


def start_logs(asked: str | None = None, stream: TextIO | None = None) -> bool:
    """Have Flower's log and ours written as JSON lines, where that is asked for; whether it is."""
    if log_format(asked) != "json":
        return False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    return True


class RoundLog:
    """A line for each round of a run, and one for each client that was left out and each note."""

    def __init__(self, names: Sequence[str] = (), **fields: Any) -> None:
        self._names, self._fields = names, fields

    def __call__(self, record: Record) -> None:
        """Write what a round did."""
        about = {**self._fields, "round": record.index}
        tested = record.evaluation
        numbers: dict[str, Any] = {"clients": len(record.ids), "left_out": len(record.dropped)}
        numbers |= {} if tested is None or not tested.sizes.sum() else {"accuracy": round(tested.accuracy, 6)}
        numbers["seconds"] = {stage: round(taken, 4) for stage, taken in record.seconds.items()}
        write_log("round", about | numbers)
        for client, reason in record.dropped.items():
            write_log("left out", about | self._client(client) | {"reason": reason}, logging.WARNING)
        for note in (*record.notes, *(record.weights.notes if record.weights else ())):
            who = {} if note.client is None else self._client(note.client)
            write_log(note.text, about | who | {"kind": note.kind})

    def _client(self, client: int) -> dict[str, Any]:
        return {"client": client, "name": self._names[client]} if client < len(self._names) else {"client": client}


def write_log(message: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
    """One line, with fields of its own."""
    log.log(level, "%s", message, extra={FIELDS: fields})
