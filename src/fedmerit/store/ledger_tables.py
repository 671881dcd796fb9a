"""The ledger's tables: schema, conversion of a round's record into rows, and a chain of hashes over all rows.

The chain has for each round a hash over all of its rows and the hash before it. Round 0 covers what describes the run
as a whole: settings, versions, names. The table `files` brings the files next to the ledger into the chain: encoder,
checkpoints and models. A row that is changed, added or removed breaks the chain from its round on.
Whoever writes to the file can make another chain: keep its last hash elsewhere where that matters.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.host import Release
from fedmerit.core.measures import percentiles
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.showing import printable
from fedmerit.core.state import Record
from fedmerit.core.types import Verdict, answered
from fedmerit.core.weights.scores import ExplainedScore, Score
from fedmerit.core.weights.weigh import by_client, normalise_name
from fedmerit.errors import DataError, FolderError

SCHEMA_VERSION = 17
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
    accuracy REAL,                   -- NULL where the round was not evaluated
    value REAL, p10 REAL, p50 REAL, p90 REAL,   -- the run's measure: mean over test rows, percentiles over clients
    epsilon REAL,                    -- the privacy spent so far; NULL without an account
    clip REAL,                       -- the length that privacy cut updates to; NULL without it
    error REAL,                      -- bound on the error of an entry of a masked sum; NULL without masks
    validation REAL,                 -- the measure on the clients' validation rows; NULL where nothing stops by it
    training_loss REAL, validation_loss REAL,   -- of the final model, on all clients' rows; NULL before the last round
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
CREATE TABLE distances (             -- 1 - cos of the updates of every pair of clients that answered
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
    number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL,
    multiplier REAL NOT NULL, fraction REAL NOT NULL,
    hash TEXT NOT NULL               -- over this row and the hash before
);
CREATE TABLE files (                 -- files next to the ledger: the seal of a model, else the SHA-256
    round INTEGER NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (round, name)
) WITHOUT ROWID;
CREATE TABLE chain (round INTEGER PRIMARY KEY, hash TEXT NOT NULL);   -- over all rows of a round and the hash before
"""

LONGEST = 1 << 26
"""Bytes of one value."""
PATIENCE, STEPS = 60.0, 100_000
"""Seconds after which a look at a ledger that was just opened is given up, and how often the clock is read."""

NO_ANSWER = Verdict(False, reason="no answer")
Row: TypeAlias = Mapping[str, Any]


def guard_connection(db: sqlite3.Connection) -> None:
    """Restrict an untrusted database: no unsafe functions in its schema, bounded values and query time."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    ends = time.monotonic() + PATIENCE
    db.set_progress_handler(lambda: int(time.monotonic() > ends), STEPS)


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Raise an error unless the schema is exactly ours: no other tables, columns, views or triggers."""
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


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    """Write rows by the names of their columns, one at a time: a million clients may be tested in a round."""
    waiting = iter(rows)
    if first := next(waiting, None):
        names, values = ", ".join(first), ", ".join(f":{name}" for name in first)
        db.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", chain([first], waiting))


def round_rows(record: Record) -> list[Row]:
    """Rows of the table `rounds`."""
    evaluation, groups, weighting = record.evaluation, record.groups, record.weighting
    searched = record.search if weighting else None
    p10, p50, p90 = (None, None, None) if record.local is None else percentiles(record.local)
    return [
        {
            "priority": json.dumps(record.priority),
            "weighting": record.label,
            "score": part_to_json(weighting.score) if weighting else None,
            "normalise": normalise_name(weighting.normalise) if weighting else None,
            "exchanges": searched.exchanges if searched else 0,
            "evaluations": searched.models_sent if searched else 0,
            "tests": searched.tests if searched else 0,
            "groups": len(groups.members) if groups else 1,
            "cut": groups.cut if groups else None,
            "quality": searched.quality if searched else None,
            "accuracy": None if evaluation is None else evaluation.accuracy,
            "value": record.value,
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "epsilon": record.epsilon,
            "clip": record.numbers.get("clip"),
            "error": record.numbers.get("error"),
            "validation": record.validation,
            "training_loss": record.numbers.get("training_loss"),
            "validation_loss": record.numbers.get("validation_loss"),
            "bytes_down": record.bytes_down,
            "bytes_up": record.bytes_up,
            "seconds": json.dumps(dict(record.seconds)),
        }
    ]


def candidate_rows(record: Record) -> list[Row]:
    """Rows of the table of candidates, from the search of the round."""
    results = record.search.results if record.search else ()
    return [
        {
            "place": place,
            "weighting": result.weighting,
            "same": json.dumps(result.same),
            "quality": result.quality,
            "exchange": result.exchange,
            "chosen": result.chosen,
        }
        for place, result in enumerate(results)
    ]


def weight_rows(record: Record) -> list[Row]:
    """Rows of the table of weights: facts, criteria, score and weight of each client."""
    if record.weights is None:
        return []
    groups = record.groups.labels if record.groups else None
    terms = own_terms(record)
    return [
        {
            "client": client.id,
            "facts": json.dumps(client.facts),
            "criteria": json.dumps(client.criteria),
            "normalised": json.dumps(client.normalised),
            "score": client.score,
            "weight": client.weight,
            "grp": client.group,
            "uncapped": client.uncapped,
            "terms": terms.get(place),
        }
        for place, client in enumerate(by_client(record.weights, record.priority, record.ids, record.facts, groups))
    ]


def _is_own(score: Score) -> bool:
    """Whether a score, or a part of it, is the user's own, so that it cannot be made again from its text."""
    try:
        part_from_json(part_to_json(score))
    except (DataError, TypeError):
        return True
    return False


def own_terms(record: Record) -> dict[int, str]:
    """Explanations of a user-defined score, by place; stored, because user code is not imported later.

    Steps that do not come to the score that counted, or that fail, are left out: a reason is true or missing.
    """
    score = record.weighting.score if record.weighting else None
    if record.weights is None or not isinstance(score, ExplainedScore) or not _is_own(score):
        return {}
    table, scores = record.weights.table, record.weights.scores
    labels = record.groups.labels if record.groups else np.zeros(len(table), dtype=np.intp)
    told: dict[int, str] = {}
    for place in range(len(table)):
        members = np.flatnonzero(labels == labels[place])
        try:
            terms = score.terms(table[members], int(np.searchsorted(members, place)))
            text = str(terms)
        except Exception:  # a user's code may raise anything
            continue
        if np.isclose(terms.score, scores[place], rtol=1e-9, atol=1e-12):
            told[place] = text
    return told


def evaluation_rows(record: Record) -> Iterator[Row]:
    """Rows of the local tests, one per client."""
    if record.evaluation is None:
        return
    pairs = zip(record.evaluation.correct.tolist(), record.evaluation.sizes.tolist(), strict=True)
    for client, (correct, size) in enumerate(pairs):
        yield {"client": client, "correct": correct, "size": size}


def reward_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    sent = record.rewards
    return [
        {
            "client": client,
            "entries": len(reward.values),
            "bytes": reward.nbytes,
            "accepted": verdict.accepted,
            "before": verdict.before,
            "after": verdict.after,
            "reason": verdict.reason,
        }
        for client, reward in sorted(sent.rewards.items())
        if (verdict := sent.verdicts.get(client, NO_ANSWER))
    ]


def audit_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    return [
        {"client": client, "objective": name, "value": value}
        for client, values in sorted(record.audit.items())
        for name, value in values.items()
    ]


def distance_rows(record: Record) -> list[Row]:
    """Rows of the distances between pairs of clients."""
    distances = record.groups.distances if record.groups else None
    if distances is None:
        return []
    pairs = distances[np.triu_indices(len(distances), 1)].astype(np.float32)
    clients = np.array(record.ids, dtype=np.int64)[answered(record.facts, len(record.ids))]
    return [{"clients": clients.tobytes(), "pairs": pairs.tobytes()}]


def observation_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    seen = record.diagnostics
    if seen is None:
        return []
    lines = zip(record.ids, seen.norms.tolist(), seen.cosines.tolist(), strict=True)
    return [{"client": client, "norm": norm, "cosine": cosine} for client, norm, cosine in lines]


def event_rows(record: Record) -> list[Row]:
    """Rows of the events: left-out and refused clients, and notes."""
    events: list[tuple[int | None, str, str]] = [
        (i, "left-out", reason) for i, reason in sorted(record.dropped.items())
    ]
    verdicts = sorted(record.rewards.verdicts.items())
    events += [(client, "refused", verdict.reason) for client, verdict in verdicts if verdict.reason]
    events += [(note.client, note.kind, note.text) for note in record.notes]
    if record.weights is not None:
        events += [(note.client, note.kind, note.text) for note in record.weights.notes]
    elif all(kind != "nobody" for _, kind, _ in events):
        after = "the model was kept" if record.epsilon is None else "only noise was added"
        events.append((None, "nobody", f"no client could be weighed; {after}"))
    return [{"client": client, "kind": kind, "text": text} for client, kind, text in events]


TABLES: Mapping[str, Callable[[Record], Iterable[Row]]] = {
    "rounds": round_rows,
    "weights": weight_rows,
    "evaluations": evaluation_rows,
    "rewards": reward_rows,
    "distances": distance_rows,
    "audits": audit_rows,
    "candidates": candidate_rows,
    "observations": observation_rows,
    "events": event_rows,
}
"""The tables that a round writes to."""
CHAINED = (*TABLES, "files")
"""The tables that a round's hash covers."""

WHOLE = ("meta", "clients")
"""The tables that speak of the run as a whole."""
BY_CLIENT = ("clients", "weights", "evaluations", "rewards", "observations")
"""The tables with one row of each client; they may be long, so SQLite sorts them."""


def extend_chain(db: sqlite3.Connection, index: int) -> None:
    """Recompute the hashes from this round on, in the transaction that writes its rows."""
    db.execute("DELETE FROM chain WHERE round >= ?", (index,))
    row = db.execute("SELECT hash FROM chain WHERE round < ? ORDER BY round DESC LIMIT 1", (index,)).fetchone()
    before = str(row[0]) if row else ""
    for number in [index, *(row[0] for row in db.execute("SELECT round FROM rounds WHERE round > ?", (index,)))]:
        before = link(db, number, before)
        db.execute("INSERT INTO chain VALUES (?, ?)", (number, before))


def link(db: sqlite3.Connection, index: int, before: str) -> str:
    """SHA-256 of the previous hash and every row of the round, table by table."""
    digest = sha256(before.encode())
    for table in (*(WHOLE if index == 0 else ()), *CHAINED):
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


RELEASE = "round, multiplier, fraction"
"""The columns of a release."""


def release_hash(release: Release, before: str) -> str:
    """SHA-256 of the previous hash and a release."""
    row = (release.round, float(release.multiplier), float(release.fraction))
    return sha256(f"{before}{row!r}".encode()).hexdigest()


def broken_releases(db: sqlite3.Connection) -> list[str]:
    """Describe the first release that does not match its hash, or releases missing at the end.

    SQLite counts the numbers that it gave out (AUTOINCREMENT), also those of rows that are gone.
    """
    before, count = "", 0
    for number, *row, kept in db.execute(f"SELECT number, {RELEASE}, hash FROM releases ORDER BY number"):
        before, count = release_hash(Release(*row), before), count + 1
        if before != kept or number != count:
            return [f"release {count} is not what was written"]
    (booked,) = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'releases'").fetchone()
    return [] if booked == count else [f"{booked} releases were booked, {count} are there"]


def broken_links(db: sqlite3.Connection) -> list[str]:
    """Describe what does not match the chain: the first changed round, rounds without a hash."""
    hashes = db.execute("SELECT round, hash FROM chain ORDER BY round").fetchall()
    if not hashes:
        return ["it has no chain of hashes"]
    before = ""
    for index, kept in hashes:
        before = link(db, index, before)
        if before != kept:
            where = f"round {index} is" if index else "settings, versions or names are"
            return [f"{where} not what was written"]
    outside = "SELECT count(*) FROM {} WHERE round IS NULL OR round NOT IN (SELECT round FROM chain)"
    more = [table for table in CHAINED if db.execute(outside.format(table)).fetchone()[0]]
    rounds = db.execute("SELECT count(*) FROM rounds").fetchone()[0]
    lost = [] if rounds == len(hashes) - 1 else [f"{len(hashes) - 1} rounds were written, {rounds} are there"]
    unknown = [f"table {table} has rows of rounds that were never written" for table in more]
    return [*unknown, *lost, *broken_releases(db)]
