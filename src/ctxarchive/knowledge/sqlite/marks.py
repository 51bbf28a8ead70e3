"""Marks in and out of the records file: what a person pinned or superseded, and where.

Every write is one transaction that is durable when it returns. It changes no record.
"""

from __future__ import annotations

import time
from typing import Any, cast

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import SEQ_LIMIT, Mark, MarkName, source_label
from ctxarchive.knowledge.sqlite.connection import Connection, Row, pack, unpack
from ctxarchive.knowledge.sqlite.tombstones import Tombstones

UNMARKED = "none"
"""What is stored where a session took away a mark that it had inherited."""


class Marks:
    """The table of marks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tombstones = Tombstones(connection)

    def mark(
        self, session: str, seq: int, name: MarkName | None, by_seq: int | None
    ) -> Mark | None:
        """See ``KnowledgeBase.mark``."""
        label = f"{self._connection.path}: {source_label(session)}, seq {seq}"
        for given in (seq, 0 if by_seq is None else by_seq):
            if not 0 <= given < SEQ_LIMIT:
                raise KnowledgeError("mark", f"{label}: seq {given} is not in 0..{SEQ_LIMIT - 1}")
        if by_seq is not None and name != "superseded":
            raise KnowledgeError("mark", f"{label}: by_seq goes with the mark superseded only")
        if by_seq == seq:
            raise KnowledgeError("mark", f"{label}: a record cannot be superseded by itself")
        with self._connection.writing():
            row = self._session(session)
            if row is None:
                raise KnowledgeError("missing", f"{label}: no such session in this archive")
            self._tombstones.refuse(session, seq)
            before = self._in_force(session).get(seq)
            self._connection.all(
                "INSERT OR REPLACE INTO marks(session, seq, mark, by_seq, at) VALUES (?, ?, ?, ?, ?)",
                (row[0], seq, name or UNMARKED, by_seq, time.time_ns() // 1_000_000),
            )
        return before

    def marks(self, session: str) -> dict[int, Mark]:
        """See ``KnowledgeBase.marks``."""
        with self._connection.reading():
            found = self._in_force(session)
        return {seq: mark for seq, mark in sorted(found.items()) if mark is not None}

    def _session(self, session: str) -> Row | None:
        return self._connection.one(
            "SELECT ordinal, parent, inherited_seq FROM sessions WHERE id = ?", (pack(session),)
        )

    def _in_force(self, session: str) -> dict[int, Mark | None]:
        """By seq; ``None`` where a mark was taken away. The nearest session's word holds."""
        found: dict[int, Mark | None] = {}
        last = SEQ_LIMIT - 1
        seen: set[str] = set()
        at: str | None = session
        while at is not None and at not in seen and (row := self._session(at)) is not None:
            seen.add(at)
            ordinal, parent, inherited = cast("tuple[int, Any, int | None]", row)
            rows = self._connection.all(
                "SELECT seq, mark, by_seq, at FROM marks WHERE session = ? AND seq <= ?"
                " AND coalesce(by_seq, 0) <= ?",
                (ordinal, last, last),
            )
            for seq, name, by_seq, when in rows:
                mark = (
                    None
                    if name == UNMARKED
                    else Mark(session=at, seq=seq, name=name, by_seq=by_seq, at=when)
                )
                found.setdefault(seq, mark)
            last = last if inherited is None else min(last, inherited)
            at = None if parent is None else unpack(parent)
        return found
