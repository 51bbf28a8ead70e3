"""The vectors of an archive's records: a third file, made when a search by meaning first needs it.

It is made from the records and never trusted over them: a file that is damaged, of another archive or
of another model is thrown away. It is opened for one search at a time, so it may be deleted at any
time. Nothing here knows what a vector is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.semantic import SemanticModel, passages
from ctxarchive.knowledge.sqlite.connection import Connection, Mode, Row, create_file, remove_file
from ctxarchive.knowledge.sqlite.records import KeyRange, Records, conditions
from ctxarchive.knowledge.store import Scope

FORMAT: Final = "1"
BATCH: Final = 200
"""Records that get their vectors in one transaction."""
MOST_RECORDS: Final = 50_000
"""A search by meaning makes vectors of, and looks at, no more of the newest records of its scope."""

_DAMAGE: Final = frozenset({"corrupt", "foreign", "storage"})
_TALLIES: Final = (
    "SELECT session, group_concat(layer || ' ' || records || ' ' || chars || ' ' || last_seq)"
    " FROM (SELECT * FROM records.tallies ORDER BY session, layer)"
    " WHERE session BETWEEN ? AND ? GROUP BY session"
)
"""What a session holds, in short: its vectors are complete while this is as it was."""


def vectors_path(records: Path) -> Path:
    """Where the vectors of an archive are: ``A.db`` has ``A.vectors.db``."""
    return records.with_name(f"{records.name.removesuffix('.db')}.vectors.db")


class Vectors:
    """The vectors of one records file."""

    def __init__(
        self, records: Records, model: SemanticModel, *, mode: Mode, busy_timeout_ms: int
    ) -> None:
        self.path = vectors_path(records.connection.path)
        self._records = records
        self._model = model
        self._mode = mode
        self._timeout = busy_timeout_ms
        archive = records.connection.value("SELECT id FROM archive")
        self._identity = (str(archive), FORMAT, model.name)

    def read(self, scope: Scope, ranges: list[KeyRange]) -> list[tuple[int, bytes]]:
        """Keys and vectors of the newest records of a scope, made where they are lacking.

        Without the right to write they are made for this once, and not kept.
        """
        if self._mode == "ro" and not self.path.exists():
            return self._unkept(scope, ranges, None)
        try:
            with self._opened() as connection:
                return self._read(connection, scope, ranges)
        except KnowledgeError as error:
            if error.code not in _DAMAGE:
                raise
        if self._mode == "ro":
            return self._unkept(scope, ranges, None)
        remove_file(self.path)
        with self._opened() as connection:
            return self._read(connection, scope, ranges)

    def _read(
        self, connection: Connection, scope: Scope, ranges: list[KeyRange]
    ) -> list[tuple[int, bytes]]:
        if self._mode == "ro":
            return self._unkept(scope, ranges, connection)
        left = MOST_RECORDS
        for keys in reversed(ranges):
            left -= self._complete(connection, keys, left)
        return self._stored(connection, scope, ranges)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Connection]:
        if self._mode == "rw":
            create_file(self.path)
        connection = Connection(self.path, mode=self._mode, busy_timeout_ms=self._timeout)
        try:
            if self._mode == "rw":
                connection.all("PRAGMA synchronous = NORMAL")
                with connection.writing():
                    self._prepare(connection)
            self._demand_trust(connection)
            connection.attach(self._records.connection.path, "records", mode="ro")
            yield connection
        finally:
            connection.close()

    def _demand_trust(self, connection: Connection) -> None:
        if connection.one("SELECT archive, format, model FROM state") != self._identity:
            raise KnowledgeError("corrupt", f"{self.path}: not the vectors of this archive")

    def _prepare(self, connection: Connection) -> None:
        if connection.value("SELECT count(*) FROM sqlite_schema"):
            return
        connection.all(
            "CREATE TABLE state(archive TEXT NOT NULL, format TEXT NOT NULL, model TEXT NOT NULL);"
            "CREATE TABLE complete(session INTEGER PRIMARY KEY, tally TEXT NOT NULL);"
            "CREATE TABLE vectors(key INTEGER PRIMARY KEY, layer TEXT NOT NULL, time INTEGER,"
            " data BLOB NOT NULL)"
        )
        connection.all("INSERT INTO state VALUES (?, ?, ?)", self._identity)

    # -- keeping

    def _complete(self, connection: Connection, keys: KeyRange, most: int) -> int:
        """Make what a range lacks, newest first, ``most`` records at most; how many were made."""
        made = 0
        sessions = (keys.first >> 32, keys.last >> 32)
        with connection.reading():
            known: dict[int, str] = dict(connection.all("SELECT session, tally FROM complete"))
            tallies = connection.all(_TALLIES, sessions)
        stale = [session for session, tally in tallies if known.get(session) != tally]
        for session in reversed(stale):
            below = session + 1 << 32
            while made < most:
                with connection.writing():
                    rows = self._lacking(connection, session, below, min(BATCH, most - made))
                    if not rows and self._finish(connection, session):
                        break
                    connection.many("INSERT INTO vectors VALUES (?, ?, ?, ?)", self._made(rows))
                made += len(rows)
                # What was filed meanwhile lies above: another round from the top finds it.
                below = rows[-1][0] if rows else session + 1 << 32
        return made

    def _lacking(self, connection: Connection, session: int, below: int, most: int) -> list[Row]:
        """The newest records of a session under a key that have no vectors."""
        return connection.all(
            "SELECT key, layer, time, head, event FROM records.records"
            " WHERE key >= ? AND key < ? AND kind <> 'checkpoint'"
            " AND key NOT IN (SELECT key FROM vectors) ORDER BY key DESC LIMIT ?",
            (session << 32, below, most),
        )

    def _finish(self, connection: Connection, session: int) -> bool:
        """Note that a session has all its vectors, and no others; ``False`` if it has not."""
        end = session + 1 << 32
        if self._lacking(connection, session, end, 1):
            return False
        connection.all(
            "DELETE FROM vectors WHERE key >= ? AND key < ?"
            " AND key NOT IN (SELECT key FROM records.records)",
            (session << 32, end),
        )
        for tallied in connection.all(_TALLIES, (session, session)):
            connection.all("INSERT OR REPLACE INTO complete VALUES (?, ?)", tallied)
        return True

    def _made(self, rows: list[Row]) -> list[Row]:
        """Rows of ``vectors`` from rows of records."""
        cut = [passages(self._records.readable(event, head)) for *_, head, event in rows]
        made = iter(self._model.embed([piece for pieces in cut for piece in pieces]))
        return [
            (*row[:3], b"".join(next(made) for _ in pieces))
            for row, pieces in zip(rows, cut, strict=True)
        ]

    # -- reading

    def _stored(
        self, connection: Connection, scope: Scope, ranges: list[KeyRange]
    ) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for keys in reversed(ranges):
            condition, bindings = conditions(scope, keys)
            rows = connection.all(
                f"SELECT key, data FROM vectors WHERE {condition} AND length(data)"
                " ORDER BY key DESC LIMIT :most",
                {**bindings, "most": MOST_RECORDS - len(found)},
            )
            found.extend((key, data) for key, data in rows)
        return found

    def _unkept(
        self, scope: Scope, ranges: list[KeyRange], connection: Connection | None
    ) -> list[tuple[int, bytes]]:
        """What is stored, and what is not made for this once."""
        stored = [] if connection is None else self._stored(connection, scope, ranges)
        known = {key for key, _ in stored}
        found = list(stored)
        for keys in reversed(ranges):
            condition, bindings = conditions(scope, keys)
            rows = self._records.connection.all(
                f"SELECT key, layer, time, head, event FROM main.records WHERE {condition}"
                " AND kind <> 'checkpoint' ORDER BY key DESC LIMIT :most",
                {**bindings, "most": MOST_RECORDS},
            )
            lacking = [row for row in rows if row[0] not in known]
            found.extend((row[0], row[3]) for row in self._made(lacking) if row[3])
        return found
