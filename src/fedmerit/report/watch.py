"""The server of `fedmerit watch`: pages of runs and studies while they grow; it reads and never writes.

Only GET, on loopback unless asked otherwise; then the way to it holds a token. On loopback the Host header must name
this machine: a page of a stranger whose name leads here is refused.
"""

from __future__ import annotations

import gzip
import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from string import Template
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedmerit.errors import FolderError, UserError
from fedmerit.report.html import read_part, read_plotly, render, script_policy
from fedmerit.report.live_view import View, doings, piece
from fedmerit.report.watch_index import Entry, find_entries, index_rows

EVERY, BEAT = 0.2, 10.0
"""Seconds between two looks for a reader, and after which an idle stream says that it is there."""
READERS = 32
"""Streams at once."""
SMALL = 2000
"""Bytes up to which an answer is not compressed."""
INDEX, WAITING = "index.html", "waiting.html"
INDEX_STYLES = ("colours.css", "report.css", "tables.css", "controls.css", "index.css")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Watched:
    """The folders that are watched, by a key of their path; views are made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, Lock()
        self._views: dict[str, View] = {}
        self._entries: dict[str, Entry] = {}
        self._found = 0.0
        if not self.entries():
            raise FolderError(
                f"no run and no study in {folder}; give a folder made by `fedmerit run` or `compare`, or one that "
                "holds such"
            )

    def entries(self) -> dict[str, Entry]:
        """Every run, study and tuning under the folder; looked for again after two seconds."""
        with self._lock:
            if time.monotonic() - self._found > 2.0:
                found = find_entries(self.folder)
                self._entries = {_key(self.folder, entry.folder): entry for entry in found}
                self._found = time.monotonic()
            return self._entries

    @property
    def alone(self) -> str | None:
        """The key of what is watched, where that is one run or study itself."""
        entries = self.entries()
        return next((key for key, entry in entries.items() if entry.folder == self.folder), None)

    def view(self, key: str) -> View | None:
        """A view by its key; None for one that is not among the entries."""
        entry = self.entries().get(key)
        with self._lock:
            return None if entry is None else self._views.setdefault(key, View(entry.folder))


def _key(root: Path, folder: Path) -> str:
    return sha256(str(folder.relative_to(root)).encode()).hexdigest()[:12]


class WatchServer(ThreadingHTTPServer):
    """A thread for each reader; they all end with the server."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, watched: Watched) -> None:
        self.watched, self.readers = watched, BoundedSemaphore(READERS)
        self.token = "" if is_loopback(host) else secrets.token_urlsafe(16)
        self.closing = False
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """The link to open, with its token where it has one."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{f'{self.token}/' if self.token else ''}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is nothing to tell."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Handler(BaseHTTPRequestHandler):
    """One request: a page, data, or the stream of what changes."""

    server: WatchServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer, or refuse."""
        if not self.server.token and not self._from_here():
            return self._send(403, b"the Host header must name this machine\n", "text/plain")
        parts = urlsplit(self.path)
        path = parts.path
        if self.server.token:
            given, _, path = path.removeprefix("/").partition("/")
            path = f"/{path}"
            if not secrets.compare_digest(given.encode(), self.server.token.encode()):
                return self._send(403, b"the link needs its token\n", "text/plain")
        try:
            return self._answer(path, {key: values[-1] for key, values in parse_qs(parts.query).items()})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except (UserError, sqlite3.Error) as error:
            return self._send(409, f"{error}\n".encode(), "text/plain; charset=utf-8")

    def _from_here(self) -> bool:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        return is_loopback(host)

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        watched = self.server.watched
        if path == "/":
            if watched.alone is not None:
                return self._redirect(f"view/{watched.alone}/")
            return self._index()
        if path == "/index":
            return self._json(index_rows(watched.entries()))
        head, _, rest = path.removeprefix("/view/").partition("/")
        view = watched.view(head) if path.startswith("/view/") else None
        if view is None:
            return self._send(404, b"there is no such page\n", "text/plain")
        if rest == "":
            return self._page(view)
        if rest == "events":
            return self._stream(view)
        kind, _, number = rest.partition("/")
        run = view.run(int(number)) if kind == "run" and number.isdecimal() else None
        if run is None:
            return self._send(404, b"there is no such run\n", "text/plain")
        after = int(query["after"]) if query.get("after", "").isdecimal() else 0
        return self._json(run.detail(after, query.get("hash", ""), sums=query.get("sums") == "1"))

    def _page(self, view: View) -> None:
        try:
            page, _ = view.look()
        except FolderError as error:
            text = Template(read_part(WAITING)).substitute(style=_styles(), text=_escaped(str(error)))
            return self._html(text, f"{STRICT}; img-src data:; style-src 'unsafe-inline'")
        return self._html(render(page, {}, read_plotly(), live=True), "frame-ancestors 'none'")

    def _index(self) -> None:
        script = read_part("index.js")
        text = Template(read_part(INDEX)).substitute(style=_styles(), script=script)
        policy = f"{STRICT}; img-src data:; style-src 'unsafe-inline'; connect-src 'self'"
        return self._html(text, f"{policy}; script-src {script_policy(script)}")

    def _stream(self, view: View) -> None:
        """Server-sent events: first all rows, then what changes of them."""
        if not self.server.readers.acquire(blocking=False):
            return self._send(503, b"too many readers\n", "text/plain")
        try:
            self._start(200, "text/event-stream", {"Connection": "close"})
            self.close_connection = True
            before: dict[str, Any] | None = None
            said: Any = None
            last = 0.0
            while not self.server.closing:
                page, now = view.look()
                told = piece(before, page) if page is not before else {}
                if doings(now) != said:
                    told["now"] = now
                if told:
                    self.wfile.write(f"data: {_dump(told)}\n\n".encode())
                elif time.monotonic() - last > BEAT:
                    self.wfile.write(b": here\n\n")
                if told or time.monotonic() - last > BEAT:
                    self.wfile.flush()
                    last = time.monotonic()
                before, said = page, doings(now)
                time.sleep(EVERY)
        finally:
            self.server.readers.release()

    def _json(self, value: Any) -> None:
        self._send(200, _dump(value).encode(), "application/json")

    def _html(self, text: str, policy: str) -> None:
        self._send(200, text.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})

    def _redirect(self, where: str) -> None:
        self._send(302, b"", "text/plain", {"Location": where})

    def _send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        headers = dict(more or {})
        if len(body) > SMALL and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._start(status, kind, headers | {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _start(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Security-Policy": STRICT, **HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: links may hold a token."""


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _styles() -> str:
    return "\n".join(map(read_part, INDEX_STYLES))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
