"""The ledger: one SQLite file with everything that a run did, one transaction per round."""

import json
import math
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import EPOCHS
from fedmerit.core.host import Release
from fedmerit.core.objectives import direction
from fedmerit.core.parts import PAIRS
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import recipe_from_json
from fedmerit.core.search.search import CandidateResult
from fedmerit.core.showing import printable
from fedmerit.core.state import History, PairDistances, Record, remember_facts
from fedmerit.core.types import ACCURACY, EMPTY, REMEMBERED, ClientId, Matrix, Vector
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.errors import FedmeritError, FolderError, UserError, did_you_mean
from fedmerit.store.ledger_tables import (
    CHAINED,
    RELEASE,
    SCHEMA,
    SCHEMA_VERSION,
    TABLES,
    broken_links,
    check_schema,
    extend_chain,
    guard_connection,
    insert,
    release_hash,
)

MEASURE = "measure"
"""The key of `meta` for what the run is judged by, where that is not accuracy."""
DAMAGE = (sqlite3.Error, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)
"""What a reader of a damaged ledger may run into."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a round: a left-out client, or a note on the weights."""

    round: int
    client: int | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The reward of a client in a round: entries of its group's aggregate, and whether it accepted them.

    `before` and `after` are its accuracy without and with them, None where it could not test; `reason` says why it had
    to refuse.
    """

    round: int
    client: int
    entries: int
    bytes: int
    accepted: bool
    before: float | None
    after: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class WeightColumns:
    """Facts, criteria, scores and weights of a round: an array per column, in client order; NaN if unknown.

    `uncapped` is None where the recipe has no cap.
    """

    ids: tuple[ClientId, ...]
    facts: dict[str, Vector]
    criteria: dict[str, Vector]
    normalised: dict[str, Vector]
    scores: Vector
    weights: Vector
    groups: NDArray[np.int64]
    uncapped: Vector | None

    @property
    def earned(self) -> Vector:
        """The weights before any cap."""
        return self.weights if self.uncapped is None else self.uncapped


class Ledger:
    """Append rounds, read them back."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        self._db, self._path = connection, path

    @classmethod
    def create(cls, path: Path | None, names: Sequence[str], meta: Mapping[str, str]) -> Self:
        """Create a ledger in a file, or in memory if no path is given."""
        connection = sqlite3.connect(path or ":memory:", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA)
        ledger = cls(connection, path)
        with _transaction(connection):
            insert(connection, "clients", ({"client": i, "name": name} for i, name in enumerate(names)))
            insert(connection, "meta", [{"key": key, "value": value} for key, value in meta.items()])
            extend_chain(connection, 0)
        return ledger

    @classmethod
    def open(cls, path: Path, *, write: bool = False, watch: bool = False) -> Self:
        """Open a ledger to read or continue it; with `watch` read-only, while another process writes it."""
        if not path.is_file():
            raise FolderError(f"no run in {path.parent}: it has no {path.name}; give a folder made by `fedmerit run`")
        # not mode=ro, which would leave its -wal and -shm files behind; a folder we may not write to is just read
        how = "mode=rw" if os.access(path.parent, os.W_OK) else "immutable=1"
        if watch:  # with a log beside it somebody writes, or was killed; without one nothing changes
            log = path.with_name(f"{path.name}-wal")
            how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
        try:
            guard_connection(connection)
            connection.execute("PRAGMA synchronous = FULL" if write else "PRAGMA query_only = 1")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                raise FolderError(
                    f"{path} has ledger version {version}, and this program reads version {SCHEMA_VERSION}; use the "
                    "program that wrote it"
                )
            check_schema(connection, path)
        except (FolderError, *DAMAGE) as error:
            connection.close()
            if isinstance(error, FolderError):
                raise
            raise FolderError(f"{path} is not a ledger, or damaged: {printable(str(error))}") from None
        connection.set_progress_handler(None, 0)
        return cls(connection, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close the file; an error while it was read is reported as damage if the ledger is damaged."""
        damage = self.damage() if isinstance(error, DAMAGE) else []
        self.close()
        if damage:
            where = self._path.parent if self._path else "RUN"
            raise FolderError(f"{self._path} is damaged: {damage[0]}; see `fedmerit verify {where}`") from None

    def damage(self) -> list[str]:
        """The faults of the file: rows that do not match the chain of hashes."""
        try:
            (said,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
            if said != "ok":
                return [printable(str(said))]
            return broken_links(self._db)
        except DAMAGE as error:
            return [printable(f"{type(error).__name__}: {error}")]

    def head(self) -> str:
        """The last hash of the chain, which covers everything that is stored so far."""
        row = self._db.execute("SELECT hash FROM chain ORDER BY round DESC LIMIT 1").fetchone()
        return str(row[0]) if row else ""

    def identity(self) -> str:
        """The first hash of the chain, which covers the run's settings, versions and names."""
        row = self._db.execute("SELECT hash FROM chain WHERE round = 0").fetchone()
        return str(row[0]) if row else ""

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def copy(self, path: Path) -> None:
        """Copy the ledger to a new file."""
        with closing(sqlite3.connect(path)) as other:
            self._db.backup(other)

    def append(self, record: Record, *, again: bool = False, files: Mapping[str, str] = EMPTY) -> None:
        """Append a round in one transaction; `again`: replace the rows of that round. `files` as in `seal`."""
        with _transaction(self._db) as db:
            for table, rows_of in TABLES.items():
                if again:
                    db.execute(f"DELETE FROM {table} WHERE round = ?", (record.index,))
                insert(db, table, ({"round": record.index, **row} for row in rows_of(record)))
            insert(db, "files", _file_rows(record.index, files))
            extend_chain(db, record.index)

    def seal(self, index: int, files: Mapping[str, str]) -> None:
        """Bring files of a round into the chain: name -> seal of a model, or SHA-256 of another file."""
        with _transaction(self._db) as db:
            db.execute("DELETE FROM files WHERE round = ? AND name NOT LIKE 'checkpoints/%'", (index,))
            insert(db, "files", _file_rows(index, files))
            extend_chain(db, index)

    def files(self) -> dict[str, str]:
        """The files in the chain, with the newest hash of each."""
        return dict(self._db.execute("SELECT name, hash FROM files ORDER BY round"))

    def add_client(self, client: int, name: str) -> None:
        """Add a client that joined after the start of the run."""
        self._add("clients", {"client": client, "name": name}, 0)

    def describe(self, key: str, value: str) -> None:
        """Add a description of the run that is known only after it began."""
        self._add("meta", {"key": key, "value": value}, 0)

    def forget_after(self, index: int) -> None:
        """Remove later rounds, which are about to be repeated."""
        with _transaction(self._db) as db:
            for table in CHAINED:
                db.execute(f"DELETE FROM {table} WHERE round > ?", (index,))
            db.execute("DELETE FROM chain WHERE round > ?", (index,))
            if index < 0:
                extend_chain(db, 0)

    def note(self, event: Event) -> None:
        """Add an event that happened outside of a round."""
        self._add("events", asdict(event), event.round)

    def _add(self, table: str, row: Mapping[str, Any], index: int) -> None:
        """Add a row, and the hash of its round."""
        with _transaction(self._db) as db:
            insert(db, table, [row])
            extend_chain(db, index)

    def book(self, release: Release) -> None:
        """Append a release of a private run; it is on disk when this returns, and never removed."""
        with _transaction(self._db) as db:
            before = db.execute("SELECT hash FROM releases ORDER BY number DESC LIMIT 1").fetchone()
            insert(
                db, "releases", [asdict(release) | {"hash": release_hash(release, str(before[0]) if before else "")}]
            )

    def releases(self) -> list[Release]:
        """All releases of a private run, in the order in which they were recorded."""
        return [Release(*row) for row in self._db.execute(f"SELECT {RELEASE} FROM releases ORDER BY number")]

    def last_round(self) -> int:
        """The newest round; 0 before the first."""
        return int(self._db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0])

    def last_round_of(self, client: ClientId) -> int:
        """The newest round in which the client has a weight or was left out; else 0."""
        query = (
            "SELECT coalesce(max(round), 0) FROM (SELECT round, client FROM weights UNION ALL "
            "SELECT round, client FROM events WHERE kind = 'left-out') WHERE client = ?"
        )
        return int(self._db.execute(query, (client,)).fetchone()[0])

    @property
    def measure(self) -> str:
        """The measure of the run: the name of an objective."""
        return self.meta().get(MEASURE, ACCURACY)

    def is_best(self, record: Record) -> bool:
        """Whether a new round is better than all so far, by the measure."""
        best, value = ("min", "<") if direction(record.measure) < 0 else ("max", ">")
        query = f"SELECT ? {value} coalesce({best}(value), ?) FROM rounds"
        return bool(self._db.execute(query, (record.value, -direction(record.measure) * math.inf)).fetchone()[0])

    def validated(self) -> list[float]:
        """The measure on validation rows so far, of a run that may stop by it."""
        query = "SELECT validation FROM rounds WHERE validation NOT NULL ORDER BY round"
        return [value for (value,) in self._db.execute(query)]

    def history(self, names: Sequence[str] = ()) -> History:
        """The history after the rounds so far, with the facts of these names."""
        rows = self._db.execute("SELECT client, facts FROM weights ORDER BY round, client")
        facts = [name for name in names if name != PAIRS]
        known = remember_facts(History(self.last_round()), ((row[0], json.loads(row[1])) for row in rows), facts)
        return replace(known, pairs=self.pair_distances()) if PAIRS in names else known

    def candidates(self, index: int) -> list[CandidateResult]:
        """The candidate weightings of a round, in the order of the search; empty without a search."""
        query = "SELECT weighting, same, quality, exchange, chosen FROM candidates WHERE round = ? ORDER BY place"
        return [
            CandidateResult(weighting, tuple(json.loads(same)), quality, exchange, bool(chosen))
            for weighting, same, quality, exchange, chosen in self._db.execute(query, (index,))
        ]

    def meta(self) -> dict[str, str]:
        """Configuration, versions and further descriptions of the whole run."""
        return dict(self._db.execute("SELECT key, value FROM meta"))

    def names(self) -> list[str]:
        """The clients' names in id order."""
        return [name for (name,) in self._db.execute("SELECT name FROM clients ORDER BY client")]

    def find_client(self, wanted: str | int) -> int:
        """The id of a client, from its name, the number at the end of its name, or its id; an int is always an id."""
        names, number = self.names(), str(wanted)
        if wanted in names:
            return names.index(number)
        if isinstance(wanted, str) and number.isdecimal():
            # People count from 1 and ids from 0: with names such as "hospital 3", 3 is that hospital, not id 3.
            ending = re.compile(rf"(?<!\d)0*{int(number)}$")
            found = [client for client, name in enumerate(names) if ending.search(name)]
            if len(found) > 1:
                candidates = ", ".join(repr(names[client]) for client in found)
                raise UserError(f"client {number} is ambiguous: it could be {candidates}; give the whole name")
            if found:
                return found[0]
        if number.isdecimal() and int(number) < len(names):
            return int(number)
        near = did_you_mean(number, names)
        raise UserError(f"no client {number!r}{near}; the run has {len(names)}, from {names[0]!r} to {names[-1]!r}")

    def rounds(self) -> list[dict[str, Any]]:
        """One dictionary per round: accuracy, percentiles, bytes, seconds per stage."""
        cursor = self._db.execute("SELECT * FROM rounds ORDER BY round")
        columns = [column[0] for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
        return [row | {"priority": json.loads(row["priority"]), "seconds": json.loads(row["seconds"])} for row in rows]

    def weights(self, index: int) -> list[ClientWeight]:
        """Facts, criteria, score and weight of each client of a round; empty if no client was weighed."""
        columns = "client, facts, criteria, normalised, score, weight, grp, uncapped, terms"
        query = f"SELECT {columns} FROM weights WHERE round = ? ORDER BY client"
        return [
            ClientWeight(client, json.loads(facts), json.loads(raw), json.loads(table), *rest)
            for client, facts, raw, table, *rest in self._db.execute(query, (index,))
        ]

    def weight_columns(self, index: int) -> WeightColumns:
        """The weights of a round as columns, which is faster for many rounds: its texts are parsed as one list."""
        columns = "client, score, weight, grp, uncapped, facts, criteria, normalised"
        rows = self._db.execute(f"SELECT {columns} FROM weights WHERE round = ? ORDER BY client", (index,)).fetchall()
        ids, scores, weights, groups, uncapped, *texts = zip(*rows, strict=True) if rows else ((),) * 8
        facts, criteria, normalised = map(_by_name, texts)
        return WeightColumns(
            ids,
            facts,
            criteria,
            normalised,
            np.array(scores, dtype=np.float64),
            np.array(weights, dtype=np.float64),
            np.array(groups, dtype=np.int64),
            None if None in uncapped or not rows else np.array(uncapped, dtype=np.float64),
        )

    def observations(self) -> list[tuple[int, int, float, float | None]]:
        """(round, client, norm of its update, cosine with the remaining clients), by round and client."""
        query = "SELECT round, client, norm, cosine FROM observations ORDER BY round, client"
        return self._db.execute(query).fetchall()

    def work_done(self) -> dict[int, tuple[int, float]]:
        """Rounds in which each client took part, and the rows that it trained on (samples x epochs).

        Epochs are those that a schedule asked for, else those of the run's learner; 1 where nobody knows.
        """
        meta = self.meta()
        train = json.loads(meta.get("config", "{}")).get("train") or {}
        epochs = int(train.get("epochs") or meta.get(EPOCHS) or 1)
        rows = "json_extract(facts, '$.samples') * coalesce(json_extract(facts, '$.epochs'), :epochs)"
        answered = f"coalesce(json_extract(facts, '$.{REMEMBERED}'), 0) = 0"
        query = f"SELECT client, count(*), sum({rows}) FROM weights WHERE {answered} GROUP BY client"
        return {client: (rounds, total) for client, rounds, total in self._db.execute(query, {"epochs": epochs})}

    def rewards(self, index: int | None = None) -> list[Rewarded]:
        """Rewards of a round, or of all; empty if all clients share one model."""
        columns = "round, client, entries, bytes, accepted, before, after, reason"
        return [Rewarded(*row) for row in self._select(columns, "rewards", index, "round, client")]

    def audits(self, index: int | None = None) -> list[tuple[int, int, str, float | None]]:
        """(round, client, objective, value), client -1 being the server; of a round, or of all."""
        return self._select("round, client, objective, value", "audits", index, "round, client, objective")

    def events(self, index: int | None = None) -> list[Event]:
        """Left-out clients with the reason, and notes on the weights; of one round, or of all."""
        return [Event(*row) for row in self._select("round, client, kind, text", "events", index, "rowid")]

    def _select(self, columns: str, table: str, index: int | None, order: str) -> list[Any]:
        """Rows of one round, or of all."""
        where, values = ("", ()) if index is None else ("WHERE round = ?", (index,))
        return self._db.execute(f"SELECT {columns} FROM {table} {where} ORDER BY {order}", values).fetchall()

    def pair_distances(self) -> PairDistances:
        """Similarity of each pair of clients over all rounds, for a grouping with memory."""
        pairs = PairDistances()
        for clients, distances in self._db.execute("SELECT clients, pairs FROM distances ORDER BY round"):
            ids = np.frombuffer(clients, dtype=np.int64)
            square = np.zeros((len(ids), len(ids)))
            square[np.triu_indices(len(ids), 1)] = np.frombuffer(distances, dtype=np.float32)
            pairs = pairs.after(ids.tolist(), square + square.T)
        return pairs

    def evaluations(self, after: int = 0) -> Iterator[tuple[int, int, int, int]]:
        """Every client's local tests after a round as (round, client, correct, size), by round and client."""
        query = "SELECT round, client, correct, size FROM evaluations WHERE round > ? ORDER BY round, client"
        yield from self._db.execute(query, (after,))

    def local(self, measure: str | None = None) -> tuple[list[int], Matrix]:
        """The evaluated rounds, and the measure at each client (rounds x clients; NaN where it is undefined)."""
        if (measure or self.measure) == ACCURACY:
            return self.local_accuracy()
        rounds = [index for (index,) in self._db.execute("SELECT DISTINCT round FROM evaluations ORDER BY round")]
        places, table = (
            {index: row for row, index in enumerate(rounds)},
            np.full((len(rounds), len(self.names())), np.nan),
        )
        query = "SELECT round, client, value FROM audits WHERE objective = ? AND client >= 0 AND value NOT NULL"
        for index, client, value in self._db.execute(query, (measure or self.measure,)):
            table[places[index], client] = value
        return rounds, table

    def local_accuracy(self) -> tuple[list[int], Matrix]:
        """The evaluated rounds, and each client's accuracy in them (rounds x clients; NaN without test rows)."""
        rows = np.array(list(self.evaluations()), dtype=np.int64).reshape(-1, 4)
        rounds, places = np.unique(rows[:, 0], return_inverse=True)
        table = np.full((len(rounds), len(self.names())), np.nan)
        known = rows[:, 3] > 0
        table[places[known], rows[known, 1]] = rows[known, 2] / rows[known, 3]
        return [int(number) for number in rounds], table


def kept_recipe(ledger: Ledger) -> Recipe | None:
    """The recipe of a run, without user-defined parts; None for old ledgers, which stored only text."""
    try:
        return recipe_from_json(ledger.meta().get("recipe", ""))
    except FedmeritError:
        return None


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """BEGIN ... COMMIT, or ROLLBACK where anything is raised in between."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _file_rows(index: int, files: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"round": index, "name": name, "hash": value} for name, value in files.items()]


def _by_name(texts: Sequence[str]) -> dict[str, Vector]:
    """A column per name of JSON objects, in the order in which names come; NaN where an object lacks it."""
    rows: list[dict[str, float]] = json.loads(f"[{','.join(texts)}]")
    keys = dict.fromkeys(map(tuple, rows))  # one, except where a client reported less or more than the others
    names = list(dict.fromkeys(name for some in keys for name in some))
    values = [[*row.values()] if len(keys) == 1 else [row.get(name) for name in names] for row in rows]
    return dict(zip(names, np.array(values, dtype=np.float64).T.copy(), strict=True)) if names else {}
