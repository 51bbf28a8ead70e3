"""The knowledge base over two SQLite files. It only puts the parts together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.ranking import WEIGHTS, Weights
from ctxarchive.knowledge.records import Layer, Mark, MarkName, Record, Renderer
from ctxarchive.knowledge.semantic import SemanticModel
from ctxarchive.knowledge.sqlite.connection import (
    Connection,
    Mode,
    create_file,
    move_file,
    remove_file,
)
from ctxarchive.knowledge.sqlite.index import Index
from ctxarchive.knowledge.sqlite.marks import Marks
from ctxarchive.knowledge.sqlite.meaning import Meaning
from ctxarchive.knowledge.sqlite.mentions import mentions
from ctxarchive.knowledge.sqlite.purge import Purging
from ctxarchive.knowledge.sqlite.records import Records
from ctxarchive.knowledge.sqlite.schema import open_records
from ctxarchive.knowledge.sqlite.search import Searcher
from ctxarchive.knowledge.sqlite.tables import Tables
from ctxarchive.knowledge.sqlite.vectors import Vectors
from ctxarchive.knowledge.sqlite.verify import verify
from ctxarchive.knowledge.store import (
    Finding,
    KnowledgeBase,
    LayerInfo,
    PurgeResult,
    PutResult,
    Scope,
    SearchAnswer,
    SearchRequest,
    Selection,
    SessionInfo,
    Stats,
    Tombstone,
)

UNINDEXED_SCAN: Final = 2_000
"""A search scans so many records that are not indexed; where there are more, it indexes first."""


class SqliteKnowledgeBase(KnowledgeBase):
    """Records in ``A.db``, their index in ``A.search.db``. Made by ``open``.

    It may be used from several threads and by several processes at once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        render: Renderer,
        mode: Mode,
        busy_timeout_ms: int,
        semantic: SemanticModel | None = None,
        weights: Weights = WEIGHTS,
    ) -> None:
        self.path = connection.path
        self._connection = connection
        self._mode = mode
        self._closed = False
        self._records = Records(connection, render)
        self._marks = Marks(connection)
        self._index = Index(self._records, mode=mode, busy_timeout_ms=busy_timeout_ms)
        self._purging = Purging(self._records, self._index)
        self._searcher = Searcher(self._records, self._index, weights)
        self._meaning: Meaning | None = None
        if semantic is not None:
            vectors = Vectors(self._records, semantic, mode=mode, busy_timeout_ms=busy_timeout_ms)
            self._meaning = Meaning(self._records, vectors, semantic)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        render: Renderer,
        mode: Mode = "rw",
        create: bool = True,
        busy_timeout_ms: int = 5_000,
        semantic: SemanticModel | None = None,
        weights: Weights = WEIGHTS,
    ) -> Self:
        """Open an archive; a new one is made, for its owner only, where the mode allows it.

        Args:
            path: the records file; the index lies beside it as ``<name>.search.db``.
            render: makes a record's text of its JSON and head.
            mode: ``ro`` never writes, not even the index.
            create: whether to make an archive where there is none.
            busy_timeout_ms: how long to wait for another writer.
            semantic: searches by meaning too, where given; its vectors lie beside the archive as
                ``<name>.vectors.db``, made when a search first needs them.
            weights: what a hit's score is made of.

        Raises:
            KnowledgeError: ``missing``, ``foreign`` (the file is then left as it was), ``newer``,
                ``read-only``, ``locked``, ``corrupt``, ``storage``.
        """
        connection = open_records(
            Path(path).absolute(), mode=mode, create=create, busy_timeout_ms=busy_timeout_ms
        )
        try:
            return cls(
                connection,
                render=render,
                mode=mode,
                busy_timeout_ms=busy_timeout_ms,
                semantic=semantic,
                weights=weights,
            )
        except BaseException:
            connection.close()
            raise

    def put(self, records: Iterable[Record]) -> PutResult:  # noqa: D102 - the contract says it
        self._may_write()
        return self._records.put(records)

    def register(  # noqa: D102
        self,
        session: str,
        *,
        title: str | None = None,
        parent: str | None = None,
        inherited_seq: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._may_write()
        self._records.register(
            session, title=title, parent=parent, inherited_seq=inherited_seq, meta=meta
        )

    def get(self, session: str, seq: int) -> Record | None:  # noqa: D102
        return self._records.get(session, seq)

    def range(self, scope: Scope, limit: int) -> tuple[Record, ...]:  # noqa: D102
        return self._records.range(scope, limit)

    def archived(self, session: str) -> Mapping[int, Layer]:  # noqa: D102
        return self._records.archived(session)

    def missing(self, session: str, seqs: Sequence[int]) -> list[int]:  # noqa: D102
        return self._records.missing(session, seqs)

    def layers(self, session: str) -> Mapping[Layer, LayerInfo]:  # noqa: D102
        return self._records.layers(session)

    def mark(  # noqa: D102
        self, session: str, seq: int, name: MarkName | None, *, by_seq: int | None = None
    ) -> Mark | None:
        self._may_write()
        return self._marks.mark(session, seq, name, by_seq)

    def marks(self, session: str) -> Mapping[int, Mark]:  # noqa: D102
        return self._marks.marks(session)

    def search(self, request: SearchRequest) -> SearchAnswer:  # noqa: D102
        if self._meaning is not None:
            return self._meaning.search(request, self._by_words)
        return self._by_words(request)

    def _by_words(self, request: SearchRequest) -> SearchAnswer:
        if self._mode == "rw" and self._lag() > UNINDEXED_SCAN:
            self._index.index_pending()
        try:
            return self._searcher.search(request)
        except KnowledgeError as error:
            if error.code != "corrupt":
                raise
            # Damage met in the index is repaired or gone around; in the records it is met again.
            if self._mode == "rw":
                self._index.rebuild()
            else:
                self._index.distrust()
            return self._searcher.search(request)

    def mentions(self, text: str, scope: Scope, limit: int) -> list[tuple[str, int]]:  # noqa: D102
        return mentions(self._records, text, scope, limit)

    def index_pending(self) -> int:  # noqa: D102
        return self._index.index_pending()

    def sessions(self) -> tuple[SessionInfo, ...]:  # noqa: D102
        return self._records.sessions()

    def stats(self) -> Stats:  # noqa: D102
        with self._connection.held():
            attached = self._index.attach(repair=False)
            records, chars = self._connection.all(
                "SELECT coalesce(sum(records), 0), coalesce(sum(chars), 0) FROM tallies"
            )[0]
            return Stats(
                records=records,
                sessions=self._connection.value("SELECT count(*) FROM sessions"),
                chars=chars,
                record_bytes=_bytes(self.path),
                index_bytes=_bytes(self._index.path),
                schema_version=self._connection.value("PRAGMA main.user_version"),
                unindexed=self._index.unindexed(attached=attached),
            )

    def verify(self) -> list[Finding]:  # noqa: D102
        return verify(self._records, self._index)

    def rebuild(self) -> int:  # noqa: D102
        return self._index.rebuild()

    def purge(self, selection: Selection, *, dry_run: bool = False) -> PurgeResult:  # noqa: D102
        if not dry_run:
            self._may_write()
        return self._purging.purge(selection, dry_run=dry_run)

    def purged(self, session: str) -> Mapping[int, Tombstone]:  # noqa: D102
        return self._records.tombstones.of(session)

    def optimize(self) -> bool:
        """Write both files anew, as small as they can be, and finish a purge that was broken off.

        It takes as much free space as the files have, and other writers wait for as long as it takes.

        Returns:
            Whether nothing is left of what was deleted; it is where another process reads all the
            time that a writer waits.

        Raises:
            KnowledgeError: ``read-only``, ``locked``, ``full``.
        """
        self._may_write()
        return self._purging.scrub()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the records into a new file, as they are at one moment, while others read and write.

        The index is not copied: the copy makes its own. A backup holds what is purged later.

        Args:
            target: a file that is not there yet; it is for its owner only.

        Raises:
            KnowledgeError: ``storage`` where there is such a file; ``missing``, ``read-only``,
                ``full``.
        """
        path = Path(target).absolute()
        if path.exists():
            raise KnowledgeError("storage", f"{path}: is there already; name a new file")
        beside = path.with_name(f"{path.name}.part")
        remove_file(beside)
        create_file(beside)
        try:
            self._connection.copy_to(beside)
            move_file(beside, path)
        finally:
            remove_file(beside)

    def tables(self) -> Tables:
        """The tables, as ``sqlite_utils.Database`` takes them: to look, and for tables of one's own.

        Never open the file by its name with sqlite-utils in a process that has the archive open.
        """
        return Tables(self._connection)

    def close(self) -> None:  # noqa: D102
        if self._closed:
            return
        self._closed = True
        # Whoever may write a file closes it last: it is then that SQLite tidies the log away.
        self._index.detach()
        self._index.close()
        self._connection.close()

    def _lag(self) -> int:
        with self._connection.held():
            return self._index.lag(attached=self._index.attach(repair=True))

    def _may_write(self) -> None:
        if self._mode == "ro":
            raise KnowledgeError("read-only", f"{self.path}: opened for reading only")


def _bytes(path: Path) -> int:
    """Bytes of a database on disk, with its write-ahead log."""
    total = 0
    for name in (path, Path(f"{path}-wal")):
        try:
            total += name.stat().st_size
        except FileNotFoundError:
            continue
    return total
