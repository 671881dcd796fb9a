"""A run that is watched: what its ledger held when it was last looked at, and what came since.

The ledger is opened to read when its files have changed, and let go at once: the run that writes it never waits, and
finds nothing of ours in its folder.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import UserError
from fedmerit.report.data import PageRun, config_of, make_page_run
from fedmerit.report.packing import shorten
from fedmerit.report.rows import AuditRow, make_metrics
from fedmerit.report.run_detail import groups_of, has_groups, lineages, rounds_detail, run_head, run_sums
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.run_folder import LEDGER, MODEL
from fedmerit.store.status import FAILED, STOPPED, read_status

RECENT = 10
"""Rounds whose mean time tells when a run will end."""
FEW = 6
"""Clients left out last that are told with their reasons."""
QUICK = 20_000
"""Clients x rounds up to which sums over all rounds take no time to speak of."""
SETTLED = 100_000_000
"""Nanoseconds after which a file that was written to has its own time of change: clocks of file systems are coarse."""
PATIENCE = 10.0
"""Sums over all rounds are made again at the earliest after so many seconds, and so many times what they took."""


class LiveRun:
    """One run folder. `refresh` reads what is new; all else tells what is known."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, RLock()
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._sums: tuple[float, dict[str, Any]] = 0.0, {}
        self._forget()

    def _forget(self) -> None:
        self.meta: Mapping[str, str] = {}
        self.names: list[str] = []
        self.rounds: list[dict[str, Any]] = []
        self.hashes: dict[int, str] = {}
        self.events: list[Event] = []
        self.audits: list[AuditRow] = []
        self._tested: dict[int, Vector] = {}
        self._groups: dict[int, dict[ClientId, int]] = {}
        self._searched = False

    def refresh(self) -> bool:
        """Read what is new; whether anything is. What cannot be read now is tried again the next time."""
        path = self.folder / LEDGER
        stamp = tuple(_stat(one) for one in (path, path.with_name(f"{LEDGER}-wal"), self.folder / MODEL))
        with self._lock:
            if stamp == self._stamp:
                return False
            try:
                with Ledger.open(path, watch=True) as ledger:
                    self._read(ledger)
            except (UserError, sqlite3.Error):
                return False
            newest = max(changed for changed, _ in stamp)
            self._stamp = stamp if abs(time.time_ns() - newest) > SETTLED else ()  # else a commit may look like none
            return True

    def _read(self, ledger: Ledger) -> None:
        """From the last round on whose hash is still the same; earlier ones have not changed."""
        now = ledger.hashes(-1)
        same = [index for index in self.hashes if index and now.get(index) == self.hashes[index]]
        after = max(same, default=0)
        if now.get(0) != self.hashes.get(0):
            self.meta, self.names, self.events = ledger.meta(), ledger.names(), []
        self.rounds = [row for row in self.rounds if row["round"] <= after] + ledger.rounds(after)
        self.events = [one for one in self.events if 0 < one.round <= after] + [
            one for one in ledger.events() if one.round == 0 or one.round > after
        ]
        self.audits = [row for row in self.audits if row[0] <= after] + ledger.audits(after=after)
        self._tested = {index: row for index, row in self._tested.items() if index <= after}
        self._groups = {index: row for index, row in self._groups.items() if index <= after}
        for index, client, correct, size in ledger.evaluations(after):
            row = self._tested.setdefault(index, np.full(len(self.names), np.nan))
            row[client] = correct / size if size else np.nan
        fresh = [row["round"] for row in self.rounds if row["round"] > after]
        self._searched = self._searched or any(ledger.candidates(index) for index in fresh)
        self.hashes = now

    def page_run(self, targets: Sequence[float], shares: Sequence[float]) -> PageRun:
        """The run as the page shows it among others."""
        with self._lock:
            tested = sorted(self._tested)
            local = np.array([self._tested[index] for index in tested]).reshape(len(tested), len(self.names))
            metrics = make_metrics(self.rounds, tested, local, self.audits, targets, shares)
            return make_page_run(
                self.folder, self.meta, len(self.names), self.rounds, self.events, metrics, self._searched
            )

    def detail(self, after: int, known: str, *, sums: bool) -> dict[str, Any]:
        """What the page shows of this run alone, of the rounds after one that it has; of all where that one changed.

        With `sums` also what only all rounds together tell, not older than `PATIENCE` allows.
        """
        with self._lock, self._opened() as ledger:
            self._read(ledger)
            after = after if after and self.hashes.get(after) == known else 0
            rounds = [row for row in self.rounds if row["round"] > after]
            weights = [ledger.weight_columns(row["round"]) for row in rounds]
            found = {"after": after, **rounds_detail(ledger, rounds, weights, after or -1)}
            found["rounds"]["hash"] = [self.hashes[row["round"]] for row in rounds]
            if not after:
                found |= run_head(ledger)
            self._groups |= {row["round"]: groups_of(some) for row, some in zip(rounds, weights, strict=True)}
            for row in self.rounds:
                if row["round"] not in self._groups and has_groups(self.rounds):
                    self._groups[row["round"]] = groups_of(ledger.weight_columns(row["round"]))
            in_order = [self._groups[row["round"]] for row in self.rounds] if has_groups(self.rounds) else None
            found["lineages"] = None if in_order is None else lineages(in_order)
            if not after:
                found |= {"accounts": None, "suspects": None}  # they take long, and are asked for by themselves
            if sums or len(self.rounds) * len(self.names) <= QUICK:
                found |= self._all_sums(ledger)
            return found

    def _opened(self) -> Ledger:
        """The ledger to read; a moment that does not suit, such as a run that ends, is waited for."""
        for _ in range(5):
            with suppress(UserError, sqlite3.Error):
                return Ledger.open(self.folder / LEDGER, watch=True)
            time.sleep(0.05)
        return Ledger.open(self.folder / LEDGER, watch=True)

    def _all_sums(self, ledger: Ledger) -> dict[str, Any]:
        """Made anew when they are old enough; else those of before."""
        due, kept = self._sums
        begin = time.monotonic()
        if begin >= due or not kept:
            kept = run_sums(ledger, self.rounds, [ledger.weight_columns(row["round"]) for row in self.rounds])
            took = time.monotonic() - begin
            self._sums = time.monotonic() + PATIENCE * max(1.0, took), kept
        return kept

    def now(self) -> dict[str, Any]:
        """What it does right now, as the page tells it."""
        told, played = read_status(self.folder), self.rounds[-1]["round"] if self.rounds else 0
        stopped = any(event.kind == "stopped" for event in self.events)
        planned = played if stopped else (config_of(self.meta).get("run") or {}).get("rounds")
        state = "silent"
        if told is not None:
            state = "running" if told.alive else told.stage if told.stage in (STOPPED, FAILED) else "killed"
        elif (self.folder / MODEL).is_file() and (planned is None or played >= planned):
            state = "finished" if planned is not None else "silent"
        recent = [sum(row["seconds"].values()) for row in self.rounds[-RECENT:]]
        left = None if planned is None or not recent else (planned - played) * sum(recent) / len(recent)
        out = [[e.round, e.client, e.text[:200]] for e in self.events if e.kind == "left-out"]
        running = told if told is not None and state == "running" else None
        return {
            "state": state,
            "reason": told.reason if told is not None else "",
            "round": running.round if running else played,
            "stage": running.stage if running else "",
            "age": round(time.time() - running.since, 2) if running else None,
            "clients": list(running.clients) if running else [],
            "played": played,
            "planned": planned,
            "left": shorten(left, 3) if state == "running" else None,
            "stages": self._stages(),
            "out": out[-FEW:],
        }

    def _stages(self) -> list[list[Any]]:
        """Each stage with its seconds in the last round and on average."""
        names = dict.fromkeys(name for row in self.rounds for name in row["seconds"])
        mean = {name: sum(row["seconds"].get(name, 0.0) for row in self.rounds) / len(self.rounds) for name in names}
        return [[name, shorten(self.rounds[-1]["seconds"].get(name), 3), shorten(mean[name], 3)] for name in names]


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
