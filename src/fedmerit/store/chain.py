"""The chain of a ledger: for each round a hash over all of its rows and the hash before it.

Round 0 covers what describes the run as a whole: settings, versions, names. A row that is changed, added or removed
breaks the chain from its round on. Whoever writes to the file can make another chain: keep its last hash elsewhere
where that matters.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256

from fedmerit.core.release import Release
from fedmerit.store.ledger_rows import TABLES

WHOLE = ("meta", "clients")
"""The tables that speak of the run as a whole."""
BY_CLIENT = ("clients", "weights", "evaluations", "rewards", "observations")
"""The tables with one row of each client; they may be long, so SQLite sorts them."""


def extend_chain(db: sqlite3.Connection, index: int) -> None:
    """Hashes from this round on, anew; inside the transaction that writes its rows."""
    db.execute("DELETE FROM chain WHERE round >= ?", (index,))
    row = db.execute("SELECT hash FROM chain WHERE round < ? ORDER BY round DESC LIMIT 1", (index,)).fetchone()
    before = str(row[0]) if row else ""
    for number in [index, *(row[0] for row in db.execute("SELECT round FROM rounds WHERE round > ?", (index,)))]:
        before = link(db, number, before)
        db.execute("INSERT INTO chain VALUES (?, ?)", (number, before))


def link(db: sqlite3.Connection, index: int, before: str) -> str:
    """SHA-256 of the hash before and every row of the round, table by table."""
    digest = sha256(before.encode())
    for table in (*(WHOLE if index == 0 else ()), *TABLES):
        digest.update(f"\n{table}\n".encode())
        for row in _rows(db, table, index):
            digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _rows(db: sqlite3.Connection, table: str, index: int) -> Iterator[tuple[object, ...]]:
    """The rows of a round in a fixed order, that of their `repr`; events in the order in which they happened."""
    which, values = ("", ()) if table in WHOLE else ("WHERE round = ?", (index,))
    if table in BY_CLIENT:  # as text with the comma that follows it, which comes before all digits
        return iter(db.execute(f"SELECT * FROM {table} {which} ORDER BY client || ','", values))
    if table == "events":
        return iter(db.execute(f"SELECT * FROM events {which} ORDER BY rowid", values))
    return iter(sorted(db.execute(f"SELECT * FROM {table} {which}", values), key=repr))


RELEASE = "round, kind, multiplier, fraction"
"""The columns of a release."""


def release_hash(release: Release, before: str) -> str:
    """SHA-256 of the hash before and a release."""
    row = (release.round, release.kind, float(release.multiplier), float(release.fraction))
    return sha256(f"{before}{row!r}".encode()).hexdigest()


def broken_releases(db: sqlite3.Connection) -> list[str]:
    """The first release that does not fit the hashes; or that releases at the end are missing.

    SQLite counts the numbers that it gave out (AUTOINCREMENT), also those of rows that are gone.
    """
    before, count = "", 0
    for number, *row, kept in db.execute(f"SELECT number, {RELEASE}, hash FROM releases ORDER BY number"):
        before, count = release_hash(Release(*row), before), count + 1
        if before != kept or number != count:
            return [f"release {count} is not what was written"]
    (booked,) = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'releases'").fetchone()
    return [] if booked == count else [f"{booked} releases were booked, {count} are there"]


def head(db: sqlite3.Connection) -> str:
    """The last hash."""
    row = db.execute("SELECT hash FROM chain ORDER BY round DESC LIMIT 1").fetchone()
    return str(row[0]) if row else ""


def broken_links(db: sqlite3.Connection) -> list[str]:
    """What does not fit the chain: the first round that is another, rounds that no hash covers."""
    chain = db.execute("SELECT round, hash FROM chain ORDER BY round").fetchall()
    if not chain:
        return ["it has no chain of hashes"]
    before = ""
    for index, kept in chain:
        before = link(db, index, before)
        if before != kept:
            where = "settings, versions or names" if index == 0 else f"round {index}"
            return [f"{where} are not what was written" if index == 0 else f"{where} is not what was written"]
    outside = "SELECT count(*) FROM {} WHERE round IS NULL OR round NOT IN (SELECT round FROM chain)"
    more = [table for table in TABLES if db.execute(outside.format(table)).fetchone()[0]]
    rounds = db.execute("SELECT count(*) FROM rounds").fetchone()[0]
    lost = [] if rounds == len(chain) - 1 else [f"{len(chain) - 1} rounds were written, {rounds} are there"]
    unknown = [f"table {table} has rows of rounds that were never written" for table in more]
    return [*unknown, *lost, *broken_releases(db)]
