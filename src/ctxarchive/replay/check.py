"""Compares a log with what an archive holds of it.

Takes a session as a replay wrote it, matched by seq, or the log it was made from, matched by each
event's stored origin. Changes nothing.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxarchive.archive.engine import records_through
from ctxarchive.archive.history import history_of
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.errors import KnowledgeError
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
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
    for record in wanted:
        found = knowledge.get(session.id, record.seq)
        if found is None:
            findings.append(_finding("missing", "not archived", session.id, record.seq))
        elif _told(found) != _told(record):
            findings.append(
                _finding("different", "differs from the log's event", session.id, record.seq)
            )
    return LogCheck(compared=len(wanted), findings=tuple(findings))


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
    for record, place in zip(wanted[: last + 1], places, strict=False):
        held = archived.get(place)
        where = f"line {place[0]} of the log"
        if not held:
            findings.append(_finding("missing", f"{where}: not archived", name, None))
            continue
        found = held.popleft()
        if (_content(found), found.head) != (_content(record), record.head):
            message = f"{where}: differs from what is archived"
            findings.append(_finding("different", message, name, found.seq))
    findings += [
        _finding("stray", f"not in the log (its line {place[0]})", name, record.seq)
        for place, held in archived.items()
        for record in held
    ]
    return LogCheck(compared=last + 1, findings=tuple(findings))


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
