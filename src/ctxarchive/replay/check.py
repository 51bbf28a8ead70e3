"""Compares a log with what an archive holds of it.

Takes a session as a replay wrote it, matched by seq, or the log it was made from, matched by each
event's stored origin. Changes nothing.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctxarchive.archive.engine import records_through
from ctxarchive.archive.history import history_of
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.errors import KnowledgeError
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.masking import equal_but_masked, events_equal_but_masked
from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.store import Finding, KnowledgeBase, Scope
from ctxarchive.session.events import CompactionSummary
from ctxarchive.session.jsonl import read_session
from ctxarchive.session.log import Session

_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheck:
    """How a log compares with an archive."""

    compared: int
    """Records that were compared."""
    redacted: int = 0
    """Those of them that are archived with keys or tokens masked, and are equal otherwise."""
    purged: int = 0
    """Those of them that were archived and purged since."""
    findings: tuple[Finding, ...]


def check_log(knowledge: KnowledgeBase, path: Path, *, session_id: str | None = None) -> LogCheck:
    """Whether every event that a log shadowed is archived and equal.

    Args:
        knowledge: the archive.
        path: the log.
        session_id: the id it was compacted under; its own by default.

    Raises:
        LogFormatError: when the log cannot be read.
        KnowledgeError: ``missing``, when the archive holds no session of this log.
    """
    log = read_log(path)
    own = session_id or log.session_id
    held = [info.session for info in knowledge.sessions()]
    if log.format == "ctxarchive" and session_id is None and own in held:
        return check_session(knowledge, read_session(path).replay())
    # What a replay calls its session: the log's own id, and a hash of the settings.
    of_this_log = re.compile(re.escape(own) + r"(~[0-9a-f]{8})?")
    sessions = [session for session in held if of_this_log.fullmatch(session)]
    if not sessions:
        raise KnowledgeError(
            "missing",
            f"{path}: the archive holds no session of this log ({own!r}); compact it into this "
            "archive first, or name the --session-id it was compacted under",
        )
    source = import_session(log, recorded=False)
    checks = [_check_origins(knowledge, name, source) for name in sessions]
    return LogCheck(
        compared=sum(check.compared for check in checks),
        redacted=sum(check.redacted for check in checks),
        purged=sum(check.purged for check in checks),
        findings=tuple(finding for check in checks for finding in check.findings),
    )


def check_session(knowledge: KnowledgeBase, session: Session) -> LogCheck:
    """Whether every event that a compaction shadowed is archived under its seq, and equal.

    A shortened tool result counts when the original that it stands for is archived; as long as it
    stands on the surface itself, nothing has been compacted and nothing is owed. Equal is what the
    store calls equal: the event's JSON and its head line. The log's own brackets must be sound too.
    """
    history = history_of(session)
    shadowed = [
        history.original(seq)
        for event in session.events
        if isinstance(event, CompactionSummary)
        for seq in event.data.shadowed_seqs
        if seq not in session.surface
    ]
    findings = [
        _finding(f"log-{broken.rule}", broken.message, session.id, broken.seq)
        for broken in check_compactions(session.events)
    ]
    wanted = records_through(session, sorted(set(shadowed)))
    gone = knowledge.purged(session.id)
    redacted = purged = 0
    for record in wanted:
        found = None if record.seq in gone else knowledge.get(session.id, record.seq)
        if record.seq in gone:
            purged += 1
        elif found is None:
            findings.append(_finding("missing", "not archived", session.id, record.seq))
        elif _told(found) == _told(record):
            continue
        elif _masked(found, record):
            redacted += 1
        else:
            findings.append(
                _finding("different", "differs from the log's event", session.id, record.seq)
            )
    return LogCheck(
        compared=len(wanted), redacted=redacted, purged=purged, findings=tuple(findings)
    )


def _masked(found: Record, record: Record) -> bool:
    """Whether what is archived is what the log says, but for what is masked in it."""
    return (
        (found.role, found.name) == (record.role, record.name)
        and equal_but_masked(found.head, record.head)
        and events_equal_but_masked(found.event, record.event)
    )


def _told(record: Record) -> tuple[Any, ...]:
    """What of a record must be what the log says; its layer may be placed by another version."""
    return (record.event, record.head, record.role, record.name)


def _check_origins(knowledge: KnowledgeBase, name: str, source: Session) -> LogCheck:
    """Whether everything up to the newest archived event is archived, and equal in content.

    One line of a log can give several events; those of one place are compared in their order.
    """
    archived: dict[_Place, deque[Record]] = {}
    for record in _records(knowledge, name):
        if record.kind != "checkpoint":
            archived.setdefault(_place(record), deque()).append(record)
    wanted = [
        record
        for record in records_through(source, [event.seq for event in source.events])
        if record.kind != "checkpoint"
    ]
    places = [_place(record) for record in wanted]
    last = max((at for at, place in enumerate(places) if place in archived), default=-1)
    findings: list[Finding] = []
    redacted = 0
    absent = _Absent(
        [seq for seq, gone in knowledge.purged(name).items() if gone.kind != "checkpoint"]
    )
    for record, place in zip(wanted[: last + 1], places, strict=False):
        held = archived.get(place)
        where = f"line {place[0]} of the log"
        if not held:
            absent.note(where)
            continue
        found = held.popleft()
        absent.settle(found.seq)
        if (_content(found), found.head) == (_content(record), record.head):
            continue
        if _masked(found, replace(record, event=_as_archived(record, found))):
            redacted += 1
        else:
            message = f"{where}: differs from what is archived"
            findings.append(_finding("different", message, name, found.seq))
    findings += [
        _finding("missing", f"{where}: not archived", name, None) for where in absent.missing
    ]
    findings += [
        _finding("stray", f"not in the log (its line {place[0]})", name, record.seq)
        for place, held in archived.items()
        for record in held
    ]
    return LogCheck(
        compared=last + 1,
        redacted=redacted,
        purged=absent.purged,
        findings=tuple(findings),
    )


class _Absent:
    """What the archive lacks of a log, between one event that it holds and the next.

    A log knows no seqs of the archive; but both are in one order, so that of a run of absent events
    as many were purged as there are tombstones in that place.
    """

    def __init__(self, tombstones: Sequence[int]) -> None:
        self._tombstones = deque(tombstones)
        self._run: list[str] = []
        self.purged = 0
        self.missing: list[str] = []

    def note(self, where: str) -> None:
        """An event that is not archived."""
        self._run.append(where)

    def settle(self, seq: int) -> None:
        """An event that is, under this seq."""
        count = 0
        while self._tombstones and self._tombstones[0] < seq:
            self._tombstones.popleft()
            count += 1
        self.purged += min(count, len(self._run))
        self.missing += self._run[count:]
        self._run = []


def _as_archived(record: Record, found: Record) -> str:
    """A log's event with what differs from one replay of it to the other as it is archived."""
    event, held = json.loads(record.event), json.loads(found.event)
    told = {name: event[name] for name in ("type", "time", "data") if name in event}
    return json.dumps({**held, **told})


def _records(knowledge: KnowledgeBase, session: str) -> list[Record]:
    found: list[Record] = []
    after: int | None = None
    while True:
        scope = Scope(sources=(SourceRef(session=session),), after_seq=after)
        batch = knowledge.range(scope, _BATCH)
        found += batch
        if len(batch) < _BATCH:
            return found
        after = batch[-1].seq


_Place = tuple[Any, Any, str]
"""What names an event in its source log: line, id, and role."""


def _place(record: Record) -> _Place:
    origin = json.loads(record.event).get("origin")
    if not isinstance(origin, dict):
        return (None, None, record.role)
    return (origin.get("line"), origin.get("id"), record.role)


def _content(record: Record) -> tuple[Any, ...]:
    event = json.loads(record.event)
    return (event.get("type"), event.get("time"), event.get("data"))


def _finding(code: str, message: str, session: str, seq: int | None) -> Finding:
    return Finding(code=code, message=message, session=session, seq=seq)
