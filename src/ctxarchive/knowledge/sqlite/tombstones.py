"""What is left of purged records: that they were there, and when and why they went.

Reads only. A tombstone holds nothing that was in its record, not even a hash: a short secret could
be guessed from one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import SEQ_LIMIT, source_label
from ctxarchive.knowledge.sqlite.connection import Connection, Row, pack, unpack
from ctxarchive.knowledge.store import Tombstone

_COLUMNS: Final = "key, layer, kind, reason, at"


class Tombstones:
    """The table of tombstones."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, session: str) -> dict[int, Tombstone]:
        """See ``KnowledgeBase.purged``."""
        found: dict[int, Tombstone] = {}
        with self._connection.reading():
            for ordinal, last in self._lineage(session):
                rows = self._connection.all(
                    f"SELECT {_COLUMNS} FROM tombstones WHERE key BETWEEN ? AND ?",
                    (ordinal << 32, (ordinal << 32) + last),
                )
                for row in rows:
                    tombstone = _tombstone(session, row)
                    found.setdefault(tombstone.seq, tombstone)
        return dict(sorted(found.items()))

    def among(self, session: str, seqs: Sequence[int]) -> set[int]:
        """Which of some seqs of a session were purged, there or where it inherited them."""
        found: set[int] = set()
        for ordinal, last in self._lineage(session):
            rows = self._connection.all(
                "SELECT key FROM tombstones WHERE key IN"
                " (SELECT ? + value FROM json_each(?) WHERE value BETWEEN 0 AND ?)",
                (ordinal << 32, json.dumps(list(seqs)), last),
            )
            found.update(key & SEQ_LIMIT - 1 for (key,) in rows)
        return found

    def refuse(self, session: str, seq: int) -> None:
        """Say that a record was purged, if it was.

        Raises:
            KnowledgeError: ``purged``.
        """
        for ordinal, last in self._lineage(session):
            if not 0 <= seq <= last:
                return
            row = self._connection.one(
                f"SELECT {_COLUMNS} FROM tombstones WHERE key = ?", (ordinal << 32 | seq,)
            )
            if row is not None:
                raise KnowledgeError(
                    "purged",
                    f"{self._connection.path}: {source_label(session)}, seq {seq}: was purged on"
                    f" {_day(row[4])} and cannot be read any more",
                )

    def _lineage(self, session: str) -> list[tuple[int, int]]:
        """The ordinals of a session and its ancestors, each with the last seq that is its own."""
        found: list[tuple[int, int]] = []
        last = SEQ_LIMIT - 1
        seen: set[str] = set()
        at: str | None = session
        while at is not None and at not in seen:
            seen.add(at)
            row = self._connection.one(
                "SELECT ordinal, parent, inherited_seq FROM sessions WHERE id = ?", (pack(at),)
            )
            if row is None:
                break
            ordinal, parent, inherited = row
            found.append((ordinal, last))
            if parent is None or inherited is None:
                break
            last = min(last, inherited)
            at = unpack(parent)
        return found


def _tombstone(session: str, row: Row) -> Tombstone:
    key, layer, kind, reason, at = row
    return Tombstone(
        session=session, seq=key & SEQ_LIMIT - 1, layer=layer, kind=kind, reason=reason, at=at
    )


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000, UTC).date().isoformat()
