"""Deleting records for good: which they are, what is left of them, and their bytes out of the files.

What goes leaves the records in one transaction; then both files are written anew without it. A
purge that is broken off between the two is finished by the next one, and ``verify`` says so until
then. Nothing here may leave a byte of what it deleted where it has reported success.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import SEQ_LIMIT, source_label
from ctxarchive.knowledge.sqlite.connection import Connection, Row, Value, remove_file, unpack
from ctxarchive.knowledge.sqlite.index import Index
from ctxarchive.knowledge.sqlite.records import Records
from ctxarchive.knowledge.sqlite.tallies import recount
from ctxarchive.knowledge.sqlite.vectors import vectors_path
from ctxarchive.knowledge.sqlite.wording import Wording
from ctxarchive.knowledge.store import PurgedSession, PurgeResult, Selection

_STEP: Final = 500
"""Records read, or deleted, at once."""

_ALL: Final = SEQ_LIMIT - 1


@dataclass(frozen=True, slots=True)
class _Session:
    """One session as the table has it."""

    ordinal: int
    id: str
    title: str | None
    parent: str | None
    inherited_seq: int | None
    meta: str


@dataclass(frozen=True, slots=True)
class _Doomed:
    """A record that goes."""

    key: int
    chars: int


class Purging:
    """Purges one archive."""

    def __init__(self, records: Records, index: Index) -> None:
        self._records = records
        self._index = index
        self._connection = records.connection

    def purge(self, selection: Selection, *, dry_run: bool) -> PurgeResult:
        """See ``KnowledgeBase.purge``."""
        _check(selection)
        connection = self._connection
        with connection.held():
            if dry_run:
                with connection.reading():
                    return self._chosen(selection)[0]
            connection.forget_securely()
            with connection.writing():
                found, doomed = self._chosen(selection)
                if doomed or found.titles:
                    self._delete(selection, doomed, found)
            scrubbed = self.scrub() if self.unfinished() else True
        return PurgeResult(
            sessions=found.sessions, titles=found.titles, ids=found.ids, scrubbed=scrubbed
        )

    def unfinished(self) -> int:
        """How many purges have left bytes in the files."""
        found = self._connection.value("SELECT count(*) FROM purges WHERE scrubbed = 0")
        return int(found)

    def scrub(self) -> bool:
        """Write both files anew, without what was deleted; whether nothing of it is left.

        It is left where another process reads all the time that a writer waits.
        """
        connection = self._connection
        with connection.held():
            last = connection.value("SELECT coalesce(max(number), 0) FROM purges")
            remove_file(vectors_path(connection.path))  # what was purged left a vector there
            clean = self._index.scrub()
            clean &= connection.compact()
            if clean:
                with connection.writing():
                    connection.all("UPDATE purges SET scrubbed = 1 WHERE number <= ?", (last,))
                connection.truncate_log()
        return clean

    # -- what goes

    def _chosen(self, selection: Selection) -> tuple[PurgeResult, list[_Doomed]]:
        sessions = self._sessions()
        wording = None if selection.text is None else Wording(selection.text)
        doomed: list[_Doomed] = []
        for session, first, last in _extents(self._connection, selection, sessions):
            doomed += self._within(session, first, last, selection, wording)
        known = {session.ordinal: session for session in sessions}
        found = tuple(
            _purged(known[ordinal].id, list(group))
            for ordinal, group in groupby(doomed, lambda each: each.key >> 32)
        )
        titles = [
            session.id
            for session in sessions
            if (session.title is not None or session.meta != "{}")
            and self._is_told(session, selection, wording, found)
        ]
        ids = [s.id for s in sessions if wording is not None and wording.is_in(s.id)]
        return PurgeResult(sessions=found, titles=tuple(titles), ids=tuple(ids)), doomed

    def _is_told(
        self,
        session: _Session,
        selection: Selection,
        wording: Wording | None,
        found: tuple[PurgedSession, ...],
    ) -> bool:
        """Whether the particulars of a session go, too."""
        if wording is not None:
            inside = selection.sessions is None or session.id in selection.sessions
            told = f"{session.title or ''}\n{session.meta}"
            return inside and (wording.is_in(told) or wording.is_in_json(session.meta))
        taken = sum(each.records for each in found if each.session == session.id)
        named = selection.sessions is not None and session.id in selection.sessions
        held = self._connection.value(
            "SELECT coalesce(sum(records), 0) FROM tallies WHERE session = ?", (session.ordinal,)
        )
        return taken == held and (taken > 0 or (named and selection.reason == "session"))

    def _sessions(self) -> list[_Session]:
        rows = self._connection.all(
            "SELECT ordinal, id, title, parent, inherited_seq, meta FROM sessions ORDER BY ordinal"
        )
        return [
            _Session(
                row[0],
                unpack(row[1]),
                None if row[2] is None else unpack(row[2]),
                None if row[3] is None else unpack(row[3]),
                row[4],
                row[5],
            )
            for row in rows
        ]

    def _within(
        self,
        session: _Session,
        first: int,
        last: int,
        selection: Selection,
        wording: Wording | None,
    ) -> Iterator[_Doomed]:
        condition = "key BETWEEN ? AND ?"
        bindings: list[Value] = [0, (session.ordinal << 32) + last]
        if selection.before_time is not None:
            condition += " AND coalesce(time, ?) < ?"
            bindings += [self._age(session), selection.before_time]
        columns = "key, chars" if wording is None else "key, chars, event, head, name, images"
        at = (session.ordinal << 32) + first
        while rows := self._connection.all(
            f"SELECT {columns} FROM records WHERE {condition} ORDER BY key LIMIT {_STEP}",
            [at, *bindings[1:]],
        ):
            for row in rows:
                if wording is None or self._says(wording, row):
                    yield _Doomed(row[0], row[1])
            at = rows[-1][0] + 1

    def _age(self, session: _Session) -> int:
        """When a record without a time is taken to be of."""
        found = self._connection.value(
            "SELECT coalesce((SELECT max(last_time) FROM tallies WHERE session = ordinal), opened)"
            " FROM sessions WHERE ordinal = ?",
            (session.ordinal,),
        )
        return int(found)

    def _says(self, wording: Wording, row: Row) -> bool:
        _, _, event, head, name, images = row
        said: list[Any] = [head, name, images]
        return (
            wording.is_in_json(unpack(event))
            or any(wording.is_in(unpack(text)) for text in said if text is not None)
            # Over the seams of what a text is joined from.
            or ("\n" in wording.text and wording.is_in(self._records.readable(event, head)))
        )

    # -- what is done

    def _delete(self, selection: Selection, doomed: list[_Doomed], found: PurgeResult) -> None:
        connection = self._connection
        now = time.time_ns() // 1_000_000
        connection.all(
            "INSERT INTO purges(reason, records, at, scrubbed) VALUES (?, ?, ?, 0)",
            (selection.reason, len(doomed), now),
        )
        for start in range(0, len(doomed), _STEP):
            keys = json.dumps([each.key for each in doomed[start : start + _STEP]])
            among = "key IN (SELECT value FROM json_each(?))"
            connection.all(
                "INSERT OR REPLACE INTO tombstones(key, layer, kind, reason, at)"
                f" SELECT key, layer, kind, ?, ? FROM records WHERE {among}",
                (selection.reason, now, keys),
            )
            for filing, count in connection.all(
                f"SELECT filing, count(*) FROM records WHERE {among} GROUP BY filing", (keys,)
            ):
                connection.all(
                    "UPDATE filings SET records = records - ? WHERE number = ?", (count, filing)
                )
            connection.all(f"DELETE FROM records WHERE {among}", (keys,))
            connection.all(f"DELETE FROM checksums WHERE {among}", (keys,))
            connection.all(
                "DELETE FROM marks WHERE session << 32 | seq IN (SELECT value FROM json_each(?))",
                (keys,),
            )
        for emptied in sorted({each.key >> 32 for each in doomed}):
            recount(connection, emptied)
        told = {self._records.ordinal(session) for session in found.titles}
        for ordinal in told.union(each.key >> 32 for each in doomed):
            connection.all(
                "UPDATE sessions SET title = NULL, meta = '{}', purged = ? WHERE ordinal = ?"
                " AND (? OR NOT EXISTS (SELECT 1 FROM tallies WHERE session = ordinal))",
                (now, ordinal, ordinal in told),
            )


def _check(selection: Selection) -> None:
    chosen = (selection.sessions, selection.before_time, selection.text)
    seqs = (selection.first_seq, selection.last_seq)
    if all(each is None for each in chosen):
        raise KnowledgeError("scope", "a purge needs sessions, an age or a text to choose by")
    if selection.sessions is None and any(seq is not None for seq in seqs):
        raise KnowledgeError("scope", "a purge of seqs needs the session that they are of")
    if selection.text is not None and not selection.text.strip():
        raise KnowledgeError("scope", "a purge by text needs a text that is not blank")


def _extents(
    connection: Connection, selection: Selection, sessions: list[_Session]
) -> list[tuple[_Session, int, int]]:
    """Which seqs of which sessions may go: those named, and what others inherited of them."""
    if selection.sessions is None:
        return [(session, 0, _ALL) for session in sessions]
    known = {session.id: session for session in sessions}
    first = max(0, selection.first_seq or 0)
    last = _ALL if selection.last_seq is None else min(_ALL, selection.last_seq)
    reach: dict[str, int] = {}
    for name in selection.sessions:
        if name not in known:
            raise KnowledgeError(
                "missing",
                f"{connection.path}: {source_label(name)}: no such session in this archive",
            )
        reach[name] = last
    if selection.forks:
        _add_forks(reach, sessions)
    return [(known[name], first, reach[name]) for name in known if reach.get(name, -1) >= first]


def _add_forks(reach: dict[str, int], sessions: list[_Session]) -> None:
    """Widen what goes by the sessions that inherited from it, as far as they did."""
    waiting = list(reach)
    while waiting:
        parent = waiting.pop()
        for fork in sessions:
            if fork.parent != parent or fork.inherited_seq is None:
                continue
            through = min(reach[parent], fork.inherited_seq)
            if through > reach.get(fork.id, -1):
                reach[fork.id] = through
                waiting.append(fork.id)


def _purged(session: str, doomed: list[_Doomed]) -> PurgedSession:
    return PurgedSession(
        session=session,
        records=len(doomed),
        first_seq=doomed[0].key & _ALL,
        last_seq=doomed[-1].key & _ALL,
        chars=sum(each.chars for each in doomed),
    )
