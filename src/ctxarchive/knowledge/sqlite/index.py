"""The search index: a second file beside the records, made from them and never trusted over them.

It is written behind the commit of the records, by whoever comes first; a watermark says how far it
goes. An index that is missing, damaged, of another archive or of another time is thrown away and
made anew; a reader that may not write does without it. Nothing here decides what matches.

Two connections, because ``BEGIN IMMEDIATE`` locks every file that a connection may write: the
records' connection reads the index, and the index's connection reads the records, so that filing
never waits for indexing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.folding import fold
from ctxarchive.knowledge.passages import passages
from ctxarchive.knowledge.records import LAYERS
from ctxarchive.knowledge.sqlite.connection import (
    Connection,
    Mode,
    Row,
    create_file,
    move_file,
    remove_file,
)
from ctxarchive.knowledge.sqlite.layout import (
    FORMAT,
    INJECTED,
    SEVERAL,
    TABLES,
    create_tables,
    ids_of,
    index_path,
    strays,
    table_of,
)
from ctxarchive.knowledge.sqlite.records import Records
from ctxarchive.knowledge.sqlite.vocabulary import Vocabulary

BATCH: Final = 500
"""Records indexed in one transaction."""
_PART: Final = 100
"""Records folded while as many before them are inserted."""

_DAMAGE: Final = frozenset({"corrupt", "foreign", "missing", "storage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Keys of one filing that the index does not hold; without a filing, all keys between."""

    first: int
    last: int
    filing: int | None


@dataclass(frozen=True, slots=True)
class _Watermark:
    """All filings below ``filing`` are indexed, and of that one the keys up to ``key``."""

    filing: int
    token: int
    """The token of ``filing``: that the index belongs to this history of the records."""
    key: int


class _RecordsDamagedError(KnowledgeError):
    """The records are damaged, met while they were read for an index that is not to blame."""


class Index:
    """The index of one records file."""

    def __init__(self, records: Records, *, mode: Mode, busy_timeout_ms: int) -> None:
        self.path = index_path(records.connection.path)
        self._records = records
        self._mode = mode
        self._timeout = busy_timeout_ms
        self._lock = threading.RLock()
        """Guards the writer. Whoever wants the records' connection too takes that first."""
        self._writer: Connection | None = None
        self._written: tuple[int, int] | None = None
        self._seen: tuple[int, int] | None = None
        self._distrusted: tuple[int, int] | None = None
        self._archive = str(records.connection.value("SELECT id FROM archive"))
        self.vocabulary = Vocabulary(records.connection)
        records.connection.count_phrases("phrase_counts")

    # -- reading

    def attach(self, *, repair: bool) -> bool:
        """Attach the index to the records' connection as ``search``; whether there is one to trust.

        The caller holds the connection. With ``repair``, where this process may write, there always
        is one afterwards, if need be an empty one.
        """
        for _ in range(3):
            if self._attach():
                return True
            if self._mode == "ro" or not repair:
                return False
            self.replace()
        raise KnowledgeError("corrupt", f"{self.path}: cannot be made anew")

    def _attach(self) -> bool:
        connection = self._records.connection
        identity = _identity(self.path)
        if identity is not None and identity == self._distrusted:
            return False
        try:
            if (
                identity is not None
                and identity == self._seen
                and self._trusted(connection, "search")
            ):
                return True
            self.detach()
            if identity is None:
                return False
            connection.attach(self.path, "search", mode="ro")
            # A file replaced between opening it and reading it would be read with another's log.
            if self._trusted(connection, "search") and _identity(self.path) == identity:
                self._seen = identity
                return True
        except KnowledgeError as error:
            if error.code not in _DAMAGE:
                raise
        self.detach()
        return False

    def distrust(self) -> None:
        """Do without the index file that is there now: it proved damaged, and is not ours to mend."""
        self._distrusted = _identity(self.path)

    def detach(self) -> None:
        """Let go of the index file."""
        self._seen = None
        self._records.connection.detach("search")

    def stretches(self, *, attached: bool) -> list[Stretch]:
        """What the index lacks, oldest first; everything where there is none."""
        connection = self._records.connection
        if not attached:
            last = connection.value("SELECT max(key) FROM records")
            return [] if last is None else [Stretch(first=0, last=last, filing=None)]
        mark = _watermark(connection, "search")
        rows = connection.all(
            "SELECT number, first_key, last_key FROM filings WHERE number >= ? ORDER BY number",
            (mark.filing,),
        )
        stretches = []
        for number, first, last in rows:
            start = max(first, mark.key + 1) if number == mark.filing else first
            if start <= last:
                stretches.append(Stretch(first=start, last=last, filing=number))
        return stretches

    def unindexed(self, *, attached: bool) -> int:
        """How many records the index lacks."""
        connection = self._records.connection
        total = 0
        for stretch in self.stretches(attached=attached):
            total += connection.value(
                "SELECT count(*) FROM records WHERE key BETWEEN ? AND ? AND (filing = ? OR ? IS NULL)",
                (stretch.first, stretch.last, stretch.filing, stretch.filing),
            )
        return total

    def lag(self, *, attached: bool) -> int:
        """At least how many records the index lacks, told from the filings: a matter of microseconds."""
        connection = self._records.connection
        after = _watermark(connection, "search").filing if attached else 0
        total = connection.value(
            "SELECT coalesce(sum(records), 0) FROM filings WHERE number > ?", (after,)
        )
        return int(total)

    def _trusted(self, connection: Connection, schema: str) -> bool:
        """Whether the index is of this archive, this format, and this history."""
        row = connection.one(f"SELECT archive, format FROM {schema}.state")
        if row != (self._archive, FORMAT):
            return False
        mark = _watermark(connection, schema)
        if mark.filing == 0:
            return True
        records = "main" if schema == "search" else "records"
        token = connection.value(
            f"SELECT token FROM {records}.filings WHERE number = ?", (mark.filing,)
        )
        return bool(token == mark.token)

    # -- writing

    def index_pending(self) -> int:
        """Index everything that is filed; how many records this call indexed."""
        self._may_write()
        total = 0
        failed = False
        while True:
            try:
                with self._lock:
                    done = self._batch()
            except _RecordsDamagedError:
                raise
            except KnowledgeError as error:
                if failed or error.code not in _DAMAGE:
                    raise
                failed = True
                self.replace()
                continue
            if done is None:
                return total
            total += done

    def rebuild(self) -> int:
        """Throw the index away and make it anew; how many records it holds then."""
        self._may_write()
        self.replace(force=True)
        return self.index_pending()

    def scrub(self) -> bool:
        """Write the file anew without what was purged; whether nothing of it is left anywhere.

        An index that is not to be trusted is thrown away, and another made.
        """
        self._may_write()
        if _identity(self.path) is None:
            return True
        try:
            with self._lock:
                writer = self._open_writer()
                with writer.writing():
                    for table in TABLES:
                        gone = writer.all(strays(table, index="main", records="records"))
                        writer.many(f"DELETE FROM {table} WHERE rowid = ?", gone)
                        # The words of a deleted row stay in the index until its parts are merged.
                        writer.all(f"INSERT INTO {table}({table}) VALUES ('optimize')")
                    writer.all(
                        "DELETE FROM passages WHERE key NOT IN (SELECT key FROM records.records)"
                    )
                return writer.compact()
        except KnowledgeError as error:
            if error.code not in _DAMAGE:
                raise
        self.rebuild()
        return True

    def replace(self, *, force: bool = False) -> None:
        """Put an empty index in the place of one that is not to be trusted (or of any)."""
        connection = self._records.connection
        with connection.held(), self._lock:
            self.detach()
            self._close_writer()
            with connection.writing():  # one process at a time
                if not force and self._usable():
                    return  # another process was faster
                self._close_writer()
                remove_file(self.path)
                self._create()

    def _usable(self) -> bool:
        try:
            self._open_writer()
        except KnowledgeError as error:
            if error.code not in _DAMAGE:
                raise
            return False
        return True

    def _may_write(self) -> None:
        if self._mode == "ro":
            raise KnowledgeError("read-only", f"{self.path}: opened for reading only")

    def _create(self) -> None:
        """Make an empty index beside, and put it in its place in one step."""
        beside = self.path.with_name(f"{self.path.name}.new")
        remove_file(beside)
        create_file(beside)
        fresh = Connection(beside, mode="rw", busy_timeout_ms=self._timeout)
        try:
            create_tables(fresh, self._archive)
        finally:
            fresh.close()
        move_file(beside, self.path)

    def _open_writer(self) -> Connection:
        """The index's own connection, with the records attached for reading."""
        identity = _identity(self.path)
        if self._writer is not None and identity is not None and identity == self._written:
            return self._writer
        self._close_writer()
        writer = Connection(self.path, mode="rw", busy_timeout_ms=self._timeout)
        try:
            writer.all("PRAGMA synchronous = NORMAL")
            writer.attach(self._records.connection.path, "records", mode="ro")
            self._demand_trust(writer)
            if _identity(self.path) != identity:
                raise KnowledgeError("corrupt", f"{self.path}: replaced while it was opened")  # noqa: TRY301
        except BaseException:
            writer.close()
            raise
        self._writer, self._written = writer, identity
        return writer

    def _demand_trust(self, writer: Connection) -> None:
        if not self._trusted(writer, "main"):
            raise KnowledgeError("corrupt", f"{self.path}: not the index of this archive")

    def _close_writer(self) -> None:
        writer, self._writer, self._written = self._writer, None, None
        if writer is not None:
            writer.close()  # may fail where the disk does, and is not tried again

    def _batch(self) -> int | None:
        """Index the next records after the watermark; ``None`` when there are none."""
        writer = self._open_writer()
        with writer.writing():
            self._demand_trust(writer)
            mark = _watermark(writer, "main")
            try:
                rows, reached = self._next_rows(writer, mark)
            except KnowledgeError as error:
                if error.code != "corrupt":
                    raise
                records = self._records.connection.path
                reason = str(error).removeprefix(f"{self.path}: ")
                raise _RecordsDamagedError("corrupt", f"{records}: {reason}") from error
            if reached == mark:
                return None
            self._insert(writer, rows)
            writer.all(
                "UPDATE state SET filing = ?, token = ?, key = ?",
                (reached.filing, reached.token, reached.key),
            )
        return len(rows)

    def _insert(self, writer: Connection, rows: list[Row]) -> None:
        """Add records: their passages, and the words of each.

        A part of them is folded while the part before it is inserted, by a thread that needs no
        Python for it.
        """
        free: dict[int, int] = {}
        places: list[tuple[int, int, int, int]] = []
        waiting: Future[None] | None = None
        with ThreadPoolExecutor(1, "ctxarchive-index") as thread:
            for first in range(0, len(rows), _PART):
                texts: dict[str, list[tuple[int, str]]] = {table: [] for table in TABLES}
                for row in rows[first : first + _PART]:
                    number = self._free(writer, free, row[0] >> 32, waiting)
                    for place, text in self._passages(row, number):
                        places.append(place)
                        texts[table_of(row[1])].append((place[0], text))
                    free[row[0] >> 32] = places[-1][0] + 1
                if waiting is not None:
                    waiting.result()
                waiting = thread.submit(_insert_words, writer, texts)
            if waiting is not None:
                waiting.result()
        writer.many("INSERT INTO passages VALUES (?, ?, ?, ?)", places)

    def _free(
        self,
        writer: Connection,
        free: dict[int, int],
        session: int,
        waiting: Future[None] | None,
    ) -> int:
        """The first id that is free behind all passages of a session."""
        if session not in free:
            if waiting is not None:
                waiting.result()  # the connection is busy until then
            first, last = ids_of(session << 32, session << 32)
            newest = writer.value(
                "SELECT max(id) FROM passages WHERE id BETWEEN ? AND ?", (first, last)
            )
            free[session] = first if newest is None else int(newest) + 1
        return free[session]

    def _passages(self, row: Row, first: int) -> Iterator[tuple[tuple[int, int, int, int], str]]:
        """The rows of ``passages`` for a record, ids from ``first`` on, each with its words."""
        key, kind, layer, head, event = row
        parts = passages(self._records.readable(event, head))
        sort = LAYERS.index(layer) if layer in LAYERS else 0
        sort += INJECTED * (kind == "injected") + SEVERAL * (len(parts) > 1)
        for number, part in enumerate(parts, start=first):
            # An array's texts end at a NUL, which parts words as well as a space does.
            yield (number, key, part.start, sort), fold(part.text).indexed.replace("\0", " ")

    def _next_rows(self, writer: Connection, mark: _Watermark) -> tuple[list[Row], _Watermark]:
        rows: list[Row] = []
        reached = mark
        filings = writer.all(
            "SELECT number, token, first_key, last_key FROM records.filings WHERE number >= ?"
            f" ORDER BY number LIMIT {BATCH}",
            (mark.filing,),
        )
        for number, token, first, last in filings:
            start = max(first, mark.key + 1) if number == mark.filing else first
            room = BATCH - len(rows)
            found = writer.all(
                "SELECT key, kind, layer, head, event FROM records.records"
                " WHERE key BETWEEN ? AND ? AND filing = ? ORDER BY key LIMIT ?",
                (start, last, number, room),
            )
            rows.extend(found)
            full = len(found) == room
            reached = _Watermark(number, token, found[-1][0] if full else last)
            if full:
                break
        return rows, reached

    def close(self) -> None:
        """Close the index's own connection."""
        with self._lock:
            self._close_writer()


def _insert_words(writer: Connection, texts: dict[str, list[tuple[int, str]]]) -> None:
    for table, rows in texts.items():
        # Ids are stretches that count up; each is one statement.
        first = 0
        for place in range(1, len(rows) + 1):
            if place == len(rows) or rows[place][0] != rows[place - 1][0] + 1:
                writer.insert_texts(
                    f"INSERT INTO {table}(rowid, words)"
                    f" SELECT {rows[first][0] - 1} + rowid, value FROM carray(:texts)",
                    [text for _, text in rows[first:place]],
                )
                first = place


def _watermark(connection: Connection, schema: str) -> _Watermark:
    row = connection.one(f"SELECT filing, token, key FROM {schema}.state")
    if row is None:
        raise KnowledgeError("corrupt", f"{connection.path}: the index has no watermark")
    return _Watermark(*row)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino
