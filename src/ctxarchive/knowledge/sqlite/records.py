"""Records in and out of the records file; sessions and what is counted about them.

Every write is one transaction that is durable when it returns. Nothing here searches; what is filed
is noted in ``filings``, from which the index later learns what it lacks.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.masking import equal_but_masked, events_equal_but_masked
from ctxarchive.knowledge.records import (
    SEQ_LIMIT,
    TAKEN,
    Layer,
    Record,
    Renderer,
    source_label,
)
from ctxarchive.knowledge.sqlite.checksums import checksum
from ctxarchive.knowledge.sqlite.connection import Connection, Row, Value, pack, unpack
from ctxarchive.knowledge.sqlite.tallies import add_tallies, session_info
from ctxarchive.knowledge.sqlite.tombstones import Tombstones
from ctxarchive.knowledge.store import LayerInfo, PutResult, Scope, SessionInfo

COLUMNS: Final = "key, layer, kind, role, time, chars, name, images, head, event"
"""What ``Records.record`` makes a record of."""

_LAST_KEY: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Keys that a scope admits, with the layers it admits there; ``None`` for all layers."""

    first: int
    last: int
    layers: frozenset[Layer] | None = None


@dataclass(frozen=True, slots=True)
class _Filed:
    """A record on its way in: its key, its columns, and what is counted of it."""

    key: int
    record: Record
    columns: tuple[Value, ...]


class Records:
    """The tables of the records file."""

    def __init__(self, connection: Connection, render: Renderer) -> None:
        self.connection = connection
        self.render = render
        self.tombstones = Tombstones(connection)
        self._sessions: dict[int, str] = {}

    # -- sessions

    def ordinal(self, session: str) -> int | None:
        """The number of a session; its keys are ``ordinal * 2**32 + seq``."""
        found = self.connection.value("SELECT ordinal FROM sessions WHERE id = ?", (pack(session),))
        return cast("int | None", found)

    def session(self, ordinal: int) -> str:
        """The id of a session of this archive."""
        if ordinal not in self._sessions:
            found = self.connection.value("SELECT id FROM sessions WHERE ordinal = ?", (ordinal,))
            if found is None:
                raise KnowledgeError(
                    "corrupt", f"{self.connection.path}: records of a session {ordinal} without id"
                )
            self._sessions[ordinal] = unpack(found)
        return self._sessions[ordinal]

    def register(
        self,
        session: str,
        *,
        title: str | None = None,
        parent: str | None = None,
        inherited_seq: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """See ``KnowledgeBase.register``."""
        with self.connection.writing():
            ordinal = self._register(session)
            row = self.connection.one(
                "SELECT parent, meta, purged FROM sessions WHERE ordinal = ?", (ordinal,)
            )
            if row and row[2] is not None:
                title, meta = None, None  # were purged, and do not come back
            if row and row[0] is not None and parent is not None and unpack(row[0]) != parent:
                raise KnowledgeError(
                    "conflict",
                    f"{self.connection.path}: {source_label(session)}: has another parent already",
                )
            merged = {**json.loads(row[1] if row else "{}"), **(meta or {})}
            self.connection.all(
                "UPDATE sessions SET title = coalesce(?, title), parent = coalesce(?, parent),"
                " inherited_seq = coalesce(?, inherited_seq), meta = ? WHERE ordinal = ?",
                (
                    None if title is None else pack(title),
                    None if parent is None else pack(parent),
                    inherited_seq,
                    json.dumps(merged),
                    ordinal,
                ),
            )

    def _register(self, session: str) -> int:
        ordinal = self.ordinal(session)
        if ordinal is not None:
            return ordinal
        return cast(
            "int",
            self.connection.value(
                "INSERT INTO sessions(id, opened) VALUES (?, ?) RETURNING ordinal",
                (pack(session), _now()),
            ),
        )

    def sessions(self) -> tuple[SessionInfo, ...]:
        """See ``KnowledgeBase.sessions``."""
        with self.connection.reading():
            rows = self.connection.all(
                "SELECT ordinal, id, title, parent, inherited_seq, meta, opened,"
                " (SELECT count(*) FROM tombstones"
                "  WHERE key BETWEEN ordinal << 32 AND (ordinal + 1 << 32) - 1)"
                " FROM sessions ORDER BY ordinal"
            )
            filed: dict[int, int | None] = dict(
                self.connection.all("SELECT first_key >> 32, max(at) FROM filings GROUP BY 1")
            )
            tallies = self.connection.all(
                "SELECT session, layer, records, first_seq, last_seq, first_time, last_time"
                " FROM tallies ORDER BY session"
            )
        by_session = {number: list(rows) for number, rows in groupby(tallies, lambda row: row[0])}
        return tuple(
            session_info(row, by_session.get(row[0], []), filed.get(row[0])) for row in rows
        )

    def layers(self, session: str) -> dict[Layer, LayerInfo]:
        """See ``KnowledgeBase.layers``."""
        rows = self.connection.all(
            "SELECT layer, records, first_seq, last_seq, chars FROM tallies"
            " WHERE session = (SELECT ordinal FROM sessions WHERE id = ?)",
            (pack(session),),
        )
        return {
            row[0]: LayerInfo(records=row[1], first_seq=row[2], last_seq=row[3], chars=row[4])
            for row in rows
        }

    # -- in

    def put(self, records: Iterable[Record]) -> PutResult:
        """See ``KnowledgeBase.put``."""
        given = list(records)
        for record in given:
            if not 0 <= record.seq < SEQ_LIMIT:
                raise KnowledgeError(
                    "storage",
                    f"{source_label(record.session)}: seq {record.seq} is not in 0..{SEQ_LIMIT - 1}",
                )
        if not given:
            return PutResult(added={}, already=0)
        with self.connection.writing():
            keyed = self._keyed(given)
            new = self._new(keyed)
            fresh = self._without_purged(new)
            for _, group in groupby(fresh, lambda filed: filed.key >> 32):
                self._insert(list(group))
        added: dict[Layer, int] = {}
        for filed in fresh:
            added[filed.record.layer] = added.get(filed.record.layer, 0) + 1
        purged = len(new) - len(fresh)
        return PutResult(added=added, already=len(given) - len(new), purged=purged)

    def _keyed(self, records: list[Record]) -> list[_Filed]:
        """The records under their keys, in order, each once."""
        sessions = dict.fromkeys(record.session for record in records)
        ordinals = {session: self._register(session) for session in sessions}
        filed: dict[int, _Filed] = {}
        for record in records:
            key = ordinals[record.session] << 32 | record.seq
            entry = _Filed(key, record, _columns(record))
            if not _equal(filed.setdefault(key, entry).columns, entry.columns):
                raise self._conflict(record)
        return [filed[key] for key in sorted(filed)]

    def _new(self, filed: list[_Filed]) -> list[_Filed]:
        """Those that are not there yet; what is there must have equal content."""
        keys = json.dumps([each.key for each in filed])
        stored = {
            row[0]: row[1:]
            for row in self.connection.all(
                f"SELECT {COLUMNS} FROM records WHERE key IN (SELECT value FROM json_each(?))",
                (keys,),
            )
        }
        for each in filed:
            if each.key in stored and not _equal(stored[each.key], each.columns):
                raise self._conflict(each.record)
        return [each for each in filed if each.key not in stored]

    def _without_purged(self, filed: list[_Filed]) -> list[_Filed]:
        """Those that were not purged, in their session or where it inherited them."""
        purged: dict[str, set[int]] = {}
        for session, group in groupby(filed, lambda each: each.record.session):
            seqs = [each.record.seq for each in group]
            purged[session] = self.tombstones.among(session, seqs)
        return [each for each in filed if each.record.seq not in purged[each.record.session]]

    def _conflict(self, record: Record) -> KnowledgeError:
        label = source_label(record.session)
        return KnowledgeError(
            "conflict",
            f"{self.connection.path}: {label}, seq {record.seq}: {TAKEN}; use another session id, "
            "or another archive",
        )

    def _insert(self, filed: list[_Filed]) -> None:
        """Add new records of one session."""
        number = self.connection.value(
            "INSERT INTO filings(token, first_key, last_key, records, at) VALUES (?, ?, ?, ?, ?)"
            " RETURNING number",
            (secrets.randbits(62), filed[0].key, filed[-1].key, len(filed), _now()),
        )
        self.connection.many(
            f"INSERT INTO records(filing, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(number, each.key, *each.columns) for each in filed],
        )
        self.connection.many(
            "INSERT INTO checksums(key, sum) VALUES (?, ?)",
            [(each.key, checksum(each.columns)) for each in filed],
        )
        add_tallies(self.connection, filed[0].key >> 32, [each.record for each in filed])

    # -- out

    def get(self, session: str, seq: int) -> Record | None:
        """See ``KnowledgeBase.get``."""
        ordinal = self.ordinal(session)
        if ordinal is None or not 0 <= seq < SEQ_LIMIT:
            return None
        row = self.connection.one(
            f"SELECT {COLUMNS} FROM records WHERE key = ?", (ordinal << 32 | seq,)
        )
        if row is None:
            self.tombstones.refuse(session, seq)
            return None
        return self.record(row)

    def record(self, row: Row, *, lenient: bool = False) -> Record:
        """A record of a row of ``COLUMNS``.

        Args:
            row: the columns.
            lenient: give the JSON as the text where it cannot be rendered.

        Raises:
            KnowledgeError: ``corrupt``, when the stored JSON cannot be rendered.
        """
        key, layer, kind, role, when, _, name, images, head, event = row
        return Record(
            session=self.session(key >> 32),
            seq=key & SEQ_LIMIT - 1,
            layer=layer,
            kind=kind,
            role=role,
            name=None if name is None else unpack(name),
            time=when,
            head=unpack(head),
            event=unpack(event),
            text=self.readable(event, head) if lenient else self.text(key, event, head),
            images=tuple(json.loads(images)) if images else (),
        )

    def text(self, key: int, event: str | bytes, head: str | bytes) -> str:
        """The rendered text of a record; raises as ``record`` does."""
        try:
            return self.render(unpack(event), unpack(head))
        except Exception as error:
            label = source_label(self.session(key >> 32))
            raise KnowledgeError(
                "corrupt",
                f"{self.connection.path}: {label}, seq {key & SEQ_LIMIT - 1}: cannot be rendered:"
                f" {type(error).__name__}: {error}",
            ) from error

    def readable(self, event: str | bytes, head: str | bytes) -> str:
        """The text that is searched: rendered, or the JSON itself where that is impossible.

        One bad record must not hide the others from a search; ``get`` and ``verify`` report it.
        """
        try:
            return self.render(unpack(event), unpack(head))
        except Exception:  # noqa: BLE001 - whatever it is, ``text`` raises it where it matters
            return f"{unpack(head)}\n{unpack(event)}"

    def range(self, scope: Scope, limit: int) -> tuple[Record, ...]:
        """See ``KnowledgeBase.range``."""
        found: list[Record] = []
        with self.connection.reading():
            for keys in self.ranges(scope):
                condition, bindings = conditions(scope, keys)
                rows = self.connection.all(
                    f"SELECT {COLUMNS} FROM records WHERE {condition} ORDER BY key LIMIT :limit",
                    {**bindings, "limit": max(0, limit - len(found))},
                )
                found.extend(map(self.record, rows))
        return tuple(found)

    def archived(self, session: str) -> dict[int, Layer]:
        """See ``KnowledgeBase.archived``."""
        ordinal = self.ordinal(session)
        if ordinal is None:
            return {}
        rows = self.connection.all(
            "SELECT key, layer FROM records WHERE key BETWEEN ? AND ? ORDER BY key",
            (ordinal << 32, (ordinal + 1 << 32) - 1),
        )
        return {key & SEQ_LIMIT - 1: layer for key, layer in rows}

    def missing(self, session: str, seqs: Sequence[int]) -> list[int]:
        """See ``KnowledgeBase.missing``."""
        ordinal = self.ordinal(session)
        if ordinal is None:
            return list(seqs)
        rows = self.connection.all(
            "SELECT key FROM records WHERE key IN (SELECT ? + value FROM json_each(?))",
            (ordinal << 32, json.dumps([seq for seq in seqs if 0 <= seq < SEQ_LIMIT])),
        )
        filed = {key & SEQ_LIMIT - 1 for (key,) in rows}
        rest = [seq for seq in seqs if seq not in filed]
        purged = self.tombstones.among(session, rest) if rest else set()
        return [seq for seq in rest if seq not in purged]

    def ranges(self, scope: Scope) -> list[KeyRange]:
        """The key ranges of a scope, ascending and apart; sessions not known have none."""
        after = -1 if scope.after_seq is None else max(-1, scope.after_seq)
        before = SEQ_LIMIT if scope.before_seq is None else min(SEQ_LIMIT, scope.before_seq)
        if before - after <= 1:
            return []
        bounds = {
            ordinal: min(before - 1, through)
            for session, through in scope.through.items()
            if (ordinal := self.ordinal(session)) is not None
        }
        if scope.sources is None:
            return _around(bounds)
        layers: dict[int, frozenset[Layer] | None] = {}
        for source in scope.sources:
            ordinal = self.ordinal(source.session)
            if ordinal is None:
                continue
            known = layers.get(ordinal, frozenset())
            if source.layer is None or known is None:
                layers[ordinal] = None
            else:
                layers[ordinal] = known | {source.layer}
        return [
            KeyRange(
                first=(number << 32) + after + 1,
                last=(number << 32) + bounds.get(number, before - 1),
                layers=admitted,
            )
            for number, admitted in sorted(layers.items())
            if bounds.get(number, before - 1) > after
        ]


def _around(bounds: Mapping[int, int]) -> list[KeyRange]:
    """All keys but those behind the last seq that is admitted of some sessions."""
    ranges: list[KeyRange] = []
    first = 0
    for ordinal, last in sorted(bounds.items()):
        ranges.append(KeyRange(first=first, last=(ordinal << 32) + last))
        first = ordinal + 1 << 32
    ranges.append(KeyRange(first=first, last=_LAST_KEY))
    return [keys for keys in ranges if keys.first <= keys.last]


def conditions(
    scope: Scope, keys: KeyRange, *, table: str = "", layered: bool = True
) -> tuple[str, dict[str, Value]]:
    """The SQL condition on rows of ``records`` for one range of a scope, and its bindings.

    Without ``layered`` it says nothing of layers: for rows that have a key and no layer.
    """
    dot = f"{table}." if table else ""
    terms = [f"{dot}key BETWEEN :first AND :last"]
    bindings: dict[str, Value] = {"first": keys.first, "last": keys.last}
    if layered and keys.layers is not None:
        named = ", ".join(f"'{layer}'" for layer in sorted(keys.layers))
        terms.append(f"{dot}layer IN ({named})")
    if scope.sources is None:
        for name, sign, bound in (
            ("after", ">", scope.after_seq),
            ("before", "<", scope.before_seq),
        ):
            if bound is not None:
                terms.append(f"({dot}key & {SEQ_LIMIT - 1}) {sign} :{name}_seq")
                bindings[f"{name}_seq"] = max(-1, min(SEQ_LIMIT, bound))
    for name, sign, bound in (("after", ">", scope.after_time), ("before", "<", scope.before_time)):
        if bound is not None:
            terms.append(f"{dot}time {sign} :{name}_time")
            bindings[f"{name}_time"] = max(-(1 << 63), min(_LAST_KEY, bound))
    return " AND ".join(terms), bindings


def _now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _columns(record: Record) -> tuple[Value, ...]:
    """What is stored of a record, in the order of ``COLUMNS`` after the key."""
    return (
        record.layer,
        record.kind,
        record.role,
        record.time,
        len(record.text),
        None if record.name is None else pack(record.name),
        json.dumps(record.images) if record.images else None,
        pack(record.head),
        pack(record.event),
    )


def _equal(first: Row, second: Row) -> bool:
    """Whether two records are equal: in head and event, save what is masked in one of them.

    The rest is derived from them, by other rules in another version perhaps; what was filed first
    stands.
    """
    if first[-2:] == second[-2:]:
        return True
    head, event, other_head, other_event = map(unpack, (*first[-2:], *second[-2:]))
    return equal_but_masked(head, other_head) and events_equal_but_masked(event, other_event)
