"""`fedmerit report DIR --live`: the page of one run or study in progress; it only reads.

Only GET, on loopback unless asked otherwise; then the link holds a token. On loopback the Host header must name this
machine: a page of a stranger whose name leads here is refused.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedmerit.errors import UserError
from fedmerit.report.data import PageRun, page_data, read_detail, read_runs
from fedmerit.report.html import read_plotly, render
from fedmerit.store.run_folder import LEDGER, MODEL
from fedmerit.store.status import FAILED, STOPPED, read_status

FILES = (LEDGER, f"{LEDGER}-wal", MODEL)
"""Files of a run that change with every round, or when it ends."""
SETTLED = 100_000_000
"""Nanoseconds after which a file that was written to has its own time of change: clocks of file systems are coarse."""
MOST_CONNECTIONS = 64
"""Open connections; further ones are closed at once, so that silent ones do not use up threads and memory."""
IDLE_SECONDS = 20.0
"""Time after which a connection that sends no request is closed; the page asks more often."""
REST = 5
"""Least time between two builds of the page, as a multiple of the time of one build."""
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class LivePage:
    """What the page shows of a folder, built again when files of its runs have changed; several readers share it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, Lock()
        self.runs: Sequence[PageRun] = ()
        self._data: dict[str, Any] = {}
        self._stamp: tuple[tuple[str, int, int], ...] | None = None
        self._due = 0.0

    def data(self) -> dict[str, Any]:
        """What the page shows; its `version` grows with every change. Raises `FolderError` before the first run began.

        What cannot be read at this moment, such as a run that is just ending, is tried again the next time.
        """
        with self._lock:
            stamp, begin = _stamp(self.folder), time.monotonic()
            if stamp != self._stamp and begin >= self._due:
                try:
                    selection, rows, self.runs = read_runs([self.folder])
                except (UserError, sqlite3.Error):
                    if not self._data:
                        raise
                    return self._data
                version = self._data.get("version", 0) + 1
                self._data = page_data(selection, rows, self.runs) | {"version": version}
                newest = max((changed for _, changed, _ in stamp), default=0)
                settled = abs(time.time_ns() - newest) > SETTLED  # else a later commit may look like none
                self._stamp = stamp if settled else None
                self._due = time.monotonic() + REST * (time.monotonic() - begin)
            return self._data


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time of change and size of every file that tells that a run has gone on."""
    found = []
    for path in (path for name in FILES for path in sorted(folder.rglob(name))):
        with suppress(OSError):  # gone since
            about = path.stat()
            found.append((str(path), about.st_mtime_ns, about.st_size))
    return tuple(found)


def run_state(run: PageRun) -> dict[str, Any]:
    """The current state of a run and, if it has a status file, the stage of the round and the training clients."""
    now = read_status(run.folder)
    if now is None:
        finished = (run.folder / MODEL).is_file() and run.result.planned is not None and not run.result.unfinished
        return {"state": "finished" if finished else "silent", "clients": []}
    ended = now.stage if now.stage in (STOPPED, FAILED) else "killed"
    return asdict(now) | {"state": "running" if now.alive else ended, "age": round(time.time() - now.since, 2)}


class LiveServer(ThreadingHTTPServer):
    """A thread for each of at most `MOST_CONNECTIONS`; they all end with the server."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, folder: Path) -> None:
        self.page, self._free = LivePage(folder), BoundedSemaphore(MOST_CONNECTIONS)
        self.token = "" if is_loopback(host) else secrets.token_urlsafe(16)
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """The link to open, with its token where it has one."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{f'{self.token}/' if self.token else ''}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends, and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers that disconnect."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Handler(BaseHTTPRequestHandler):
    """One request: the page, what changed of it, or the detail of a run."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer, or refuse."""
        token, parts = self.server.token, urlsplit(self.path)
        path = parts.path.removeprefix("/")
        if token:
            given, _, path = path.partition("/")
            if not secrets.compare_digest(given.encode(), token.encode()):
                return self._send(403, "the link needs its token\n")
        elif not is_loopback(urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""):
            return self._send(403, "the Host header must name this machine\n")
        try:
            return self._answer(path, parse_qs(parts.query).get("have", [""])[-1])
        except (UserError, sqlite3.Error) as error:
            return self._send(503, f"{error}\n", headers={"Refresh": "1"})

    def _answer(self, path: str, have: str) -> None:
        page = self.server.page
        data, runs = page.data(), page.runs
        if path == "":
            headers = {"Content-Security-Policy": "frame-ancestors 'none'"}  # the page has its own, for its scripts
            return self._send(200, render(data, {}, read_plotly(), live=True), "text/html", headers)
        if path == "now":
            changed = None if have == str(data["version"]) else data
            return self._send_json({"page": changed, "now": [run_state(run) for run in runs]})
        kind, _, number = path.partition("/")
        if kind == "run" and number.isdecimal() and int(number) < len(runs):
            return self._send_json(read_detail(runs[int(number)].folder))
        return self._send(404, "there is no such page\n")

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value, separators=(",", ":"), allow_nan=False), "application/json")

    def _send(self, status: int, text: str, kind: str = "text/plain", headers: Mapping[str, str] | None = None) -> None:
        body = text.encode()
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        self.send_response(status)
        for name, value in {"Content-Security-Policy": POLICY, **HEADERS, **about, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: links may hold a token."""
