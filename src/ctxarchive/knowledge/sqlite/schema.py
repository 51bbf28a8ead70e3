"""The layout of the records file: its identity, its tables, and how older layouts become this one.

Plain tables only (not even ``STRICT``, which is of 2021), so that any SQLite tool can read the file.
Columns without a type hold text, or bytes where the text has lone surrogates. It knows nothing of searching. The
identity is checked by a connection that cannot write, before anything that could.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.sqlite.checksums import checksum
from ctxarchive.knowledge.sqlite.connection import Connection, Mode, create_file

APPLICATION_ID: Final = 0x63747861
"""``ctxa``, in the file's header: what makes a database an archive of ours."""

_SMALLEST: Final = 512
"""Bytes of the smallest page; no database is smaller."""

_STEP: Final = 500
"""Records that a migration reads at once."""

Migration = Callable[[Connection], None]


def open_records(path: Path, *, mode: Mode, create: bool, busy_timeout_ms: int) -> Connection:
    """Open the records of an archive, made or brought to this version where the mode allows it.

    Raises:
        KnowledgeError: ``missing``, ``foreign``, ``newer``, ``read-only``, ``locked``, ``corrupt``.
    """
    if not path.exists():
        if mode == "ro" or not create:
            raise KnowledgeError("missing", f"{path}: no such archive")
        create_file(path)
    version = _identify(path, busy_timeout_ms=busy_timeout_ms)
    if version is None and mode == "ro":
        raise KnowledgeError("foreign", f"{path}: an empty file, not an archive")
    if mode == "ro" and version != len(MIGRATIONS):
        raise KnowledgeError(
            "read-only",
            f"{path}: schema {version} of {len(MIGRATIONS)}; open it for writing once to update it",
        )
    connection = Connection(path, mode=mode, busy_timeout_ms=busy_timeout_ms)
    try:
        if mode == "rw":
            _prepare(connection, path, busy_timeout_ms=busy_timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


def _identify(path: Path, *, busy_timeout_ms: int) -> int | None:
    """The schema version of the file, ``None`` for one that is empty; refuses what is not ours."""
    if path.is_dir():
        raise KnowledgeError("foreign", f"{path}: is a folder")
    size = path.stat().st_size
    if size == 0:
        return None
    if size < _SMALLEST:  # SQLite takes it for an empty database, and would overwrite it
        raise KnowledgeError("foreign", f"{path}: not an SQLite database")
    connection = Connection(path, mode="ro", busy_timeout_ms=busy_timeout_ms)
    try:
        with connection.reading():
            return check_identity(connection, path)
    finally:
        connection.close()


def check_identity(connection: Connection, path: Path) -> int | None:
    """What ``_identify`` says of the file that is open as ``connection``."""
    application = connection.value("PRAGMA application_id")
    version = connection.value("PRAGMA user_version")
    if (application, version) == (0, 0) and not connection.value("SELECT 1 FROM sqlite_schema"):
        return None
    if application != APPLICATION_ID:
        raise KnowledgeError("foreign", f"{path}: an SQLite database, but not an archive")
    if version > len(MIGRATIONS):
        raise KnowledgeError(
            "newer",
            f"{path}: schema {version}; this program knows up to {len(MIGRATIONS)}: update "
            "ctxarchive, or name another archive",
        )
    return int(version)


def _prepare(connection: Connection, path: Path, *, busy_timeout_ms: int) -> None:
    if not connection.writable() or not os.access(path.parent, os.W_OK):
        raise KnowledgeError("read-only", f"{path}: file or folder cannot be written")
    _to_wal(connection, busy_timeout_ms)
    connection.all("PRAGMA main.synchronous = FULL")
    with connection.reading():
        version = check_identity(connection, path) or 0
    if version < len(MIGRATIONS):
        migrate(connection, path)


def _to_wal(connection: Connection, busy_timeout_ms: int) -> None:
    """Switch the journal; SQLite does not wait for another process that is at it, so we do."""
    until = time.monotonic() + busy_timeout_ms / 1000
    while connection.value("PRAGMA main.journal_mode") != "wal":
        try:
            connection.value("PRAGMA main.journal_mode = WAL")
        except KnowledgeError as error:
            if error.code != "locked" or time.monotonic() > until:
                raise
            time.sleep(0.005)


def migrate(connection: Connection, path: Path) -> None:
    """Run the migrations that the file has not seen, each in a transaction with its record."""
    for number, migration in enumerate(MIGRATIONS, start=1):
        with connection.writing():
            if (check_identity(connection, path) or 0) >= number:
                continue  # another process was faster
            migration(connection)
            connection.all(
                "INSERT INTO migrations(name, applied) VALUES (?, ?)",
                (migration.__name__, time.time_ns() // 1_000_000),
            )
            connection.all(f"PRAGMA user_version = {number}")


def create_tables(connection: Connection) -> None:
    """The first layout. ``records`` has its wide columns last: a filter never reads over them."""
    connection.all(
        f"""
        PRAGMA application_id = {APPLICATION_ID};
        CREATE TABLE migrations(name TEXT PRIMARY KEY, applied INTEGER NOT NULL);
        CREATE TABLE archive(id TEXT NOT NULL);
        INSERT INTO archive VALUES (lower(hex(randomblob(16))));
        CREATE TABLE sessions(
            ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
            id NOT NULL UNIQUE,
            title,
            parent,
            inherited_seq INTEGER,
            meta TEXT NOT NULL DEFAULT '{{}}',
            opened INTEGER NOT NULL
        );
        CREATE TABLE records(
            key INTEGER PRIMARY KEY,
            filing INTEGER NOT NULL,
            layer TEXT NOT NULL,
            kind TEXT NOT NULL,
            role TEXT NOT NULL,
            time INTEGER,
            chars INTEGER NOT NULL,
            name,
            images TEXT,
            head NOT NULL,
            event NOT NULL
        );
        CREATE TABLE tallies(
            session INTEGER NOT NULL,
            layer TEXT NOT NULL,
            records INTEGER NOT NULL,
            chars INTEGER NOT NULL,
            first_seq INTEGER NOT NULL,
            last_seq INTEGER NOT NULL,
            first_time INTEGER,
            last_time INTEGER,
            PRIMARY KEY (session, layer)
        ) WITHOUT ROWID;
        CREATE TABLE filings(
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            token INTEGER NOT NULL,
            first_key INTEGER NOT NULL,
            last_key INTEGER NOT NULL,
            records INTEGER NOT NULL
        );
        """
    )


def add_marks(connection: Connection) -> None:
    """What a person pinned or superseded; ``session`` is an ordinal, ``at`` in milliseconds."""
    connection.all(
        """
        CREATE TABLE marks(
            session INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            mark TEXT NOT NULL,
            by_seq INTEGER,
            at INTEGER NOT NULL,
            PRIMARY KEY (session, seq)
        ) WITHOUT ROWID;
        """
    )


def add_purges(connection: Connection) -> None:
    """What was purged and when, whether its bytes are gone, and when something was filed."""
    connection.all(
        """
        CREATE TABLE tombstones(
            key INTEGER PRIMARY KEY,
            layer TEXT NOT NULL,
            kind TEXT NOT NULL,
            reason TEXT NOT NULL,
            at INTEGER NOT NULL
        );
        CREATE TABLE purges(
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            reason TEXT NOT NULL,
            records INTEGER NOT NULL,
            at INTEGER NOT NULL,
            scrubbed INTEGER NOT NULL
        );
        ALTER TABLE sessions ADD COLUMN purged INTEGER;
        ALTER TABLE filings ADD COLUMN at INTEGER;
        """
    )


def add_checksums(connection: Connection) -> None:
    """A number for each record, beside the records: those that are there are not written again."""
    connection.all("CREATE TABLE checksums(key INTEGER PRIMARY KEY, sum INTEGER NOT NULL)")
    key = -1
    while rows := connection.all(
        "SELECT key, layer, kind, role, time, chars, name, images, head, event FROM records"
        f" WHERE key > ? ORDER BY key LIMIT {_STEP}",
        (key,),
    ):
        connection.many(
            "INSERT INTO checksums(key, sum) VALUES (?, ?)",
            [(row[0], checksum(row[1:])) for row in rows],
        )
        key = rows[-1][0]


MIGRATIONS: Final[tuple[Migration, ...]] = (create_tables, add_marks, add_purges, add_checksums)
"""In order; a file's ``user_version`` is how many of them it has seen. Never change one: add one."""
