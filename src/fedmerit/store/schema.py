"""The ledger's schema: its tables, and what a file must look like to be read as one."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from fedmerit.core.showing import printable
from fedmerit.errors import FolderError

SCHEMA_VERSION = 12
SCHEMA = f"""
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clients (client INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY,
    priority TEXT NOT NULL,          -- JSON list, most important first
    weighting TEXT,                  -- the label of the weighting that was taken; NULL where nobody was weighed
    score TEXT, normalise TEXT,      -- its score as JSON, and how columns were normalised
    exchanges INTEGER NOT NULL, evaluations INTEGER NOT NULL,   -- what the search asked of the clients; models sent out
    tests INTEGER NOT NULL,          -- how often a client tested one of them
    groups INTEGER NOT NULL, cut REAL,   -- how many there were; the distance that kept them apart
    quality REAL,                    -- the clients' accuracy by which the search decided; NULL where it did not ask
    accuracy REAL, p10 REAL, p50 REAL, p90 REAL,   -- NULL where the round was not evaluated
    epsilon REAL,                    -- the privacy spent so far; NULL without an account
    clip REAL,                       -- the length that privacy cut updates to; NULL without it
    validation REAL,                 -- accuracy on the clients' validation rows; NULL where nothing stops by it
    bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    seconds TEXT NOT NULL            -- JSON object: stage -> seconds
);
CREATE TABLE weights (               -- how each client of a round came to its weight
    round INTEGER NOT NULL, client INTEGER NOT NULL,
    facts TEXT NOT NULL, criteria TEXT NOT NULL, normalised TEXT NOT NULL,   -- JSON objects by name
    score REAL NOT NULL, weight REAL NOT NULL,
    grp INTEGER NOT NULL,            -- the client's group, from 0
    uncapped REAL,                   -- the weight before the cap; NULL without one
    terms TEXT,                      -- the steps of a score of the user's own, where it tells them; NULL for ours
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE evaluations (           -- every client's local test
    round INTEGER NOT NULL, client INTEGER NOT NULL, correct INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE rewards (               -- what clients with personal models got back, and whether they took it
    round INTEGER NOT NULL, client INTEGER NOT NULL,
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL, accepted INTEGER NOT NULL,
    before REAL, after REAL,         -- the client's accuracy without and with it; NULL where it has no validation rows
    reason TEXT NOT NULL,            -- why a client could not take it; else empty
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE distances (             -- 1 - cos of the updates of every pair of the round's clients
    round INTEGER PRIMARY KEY, clients BLOB NOT NULL, pairs BLOB NOT NULL   -- int64; float32, (0,1), (0,2), ... (1,2)
);
CREATE TABLE audits (                -- objectives of the model on the server's rows (client -1), on clients' test rows
    round INTEGER NOT NULL, client INTEGER NOT NULL, objective TEXT NOT NULL, value REAL,   -- NULL where unknown
    PRIMARY KEY (round, client, objective)
) WITHOUT ROWID;
CREATE TABLE candidates (            -- the weightings that a search thought of, in the order of visiting
    round INTEGER NOT NULL, place INTEGER NOT NULL,
    weighting TEXT NOT NULL, same TEXT NOT NULL,   -- JSON list: others that weigh so alike that they count as this
    quality REAL, exchange INTEGER, chosen INTEGER NOT NULL,   -- NULL where nobody was asked
    PRIMARY KEY (round, place)
) WITHOUT ROWID;
CREATE TABLE observations (          -- what the server saw of each update by itself
    round INTEGER NOT NULL, client INTEGER NOT NULL,
    norm REAL NOT NULL, cosine REAL,   -- its length; its cosine with the sum of the others' directions, NULL: unknown
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE events (round INTEGER NOT NULL, client INTEGER, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE releases (              -- what a private run reveals, each written before anybody sees it; none is removed
    number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL, kind TEXT NOT NULL,
    multiplier REAL NOT NULL, fraction REAL NOT NULL,
    hash TEXT NOT NULL               -- over this row and the hash before
);
CREATE TABLE chain (round INTEGER PRIMARY KEY, hash TEXT NOT NULL);   -- over all rows of a round and the hash before
"""

LONGEST = 1 << 26
"""Bytes of one value."""
PATIENCE, STEPS = 60.0, 100_000
"""Seconds after which a look at a ledger that was just opened is given up, and how often the clock is read."""


def guard_connection(db: sqlite3.Connection) -> None:
    """A file of a stranger may define what it likes: none of it runs, and no value is larger than memory allows."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    ends = time.monotonic() + PATIENCE
    db.set_progress_handler(lambda: int(time.monotonic() > ends), STEPS)


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Tables, columns and nothing else, as this program writes them: a view or a trigger is not ours."""
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(SCHEMA)
        expected = _columns(ours)
    found = db.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'").fetchall()
    others = sorted(str(name) for kind, name in found if kind != "table" or name not in expected)
    if others or _columns(db) != expected:
        what = f"it also has {printable(', '.join(others), 100)}" if others else "its tables are others"
        raise FolderError(f"{path} is not a ledger that this program writes: {what}")


def _columns(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Of each table its columns: name, type, whether it may be missing, place in the key, hidden or generated."""
    names = [str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    query = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
    return {name: sorted(db.execute(query, (name,)).fetchall()) for name in names if not name.startswith("sqlite_")}
