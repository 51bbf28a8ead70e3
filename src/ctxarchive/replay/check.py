"""Compares a log with what an archive holds of it.

Takes a session as a replay wrote it, matched by seq, or the log it was made from, matched by each
event's stored origin. Changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxarchive.archive.engine import records_through
from ctxarchive.archive.recording import original_seq
from ctxarchive.errors import KnowledgeError
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.store import Finding, KnowledgeBase, Scope
from ctxarchive.session.events import SURFACE_TYPES
from ctxarchive.session.jsonl import read_session
from ctxarchive.session.log import Session

_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheck:
    """How a log compares with an archive."""

    compared: int
    """Records that were compared."""
    findings: tuple[Finding, ...]


def check_log(knowledge: KnowledgeBase, path: Path) -> LogCheck:
    """Whether every event that a log shadowed is archived and equal.

    Raises:
        LogFormatError: when the log cannot be read.
        KnowledgeError: ``missing``, when the archive holds no session of this log.
    """
    log = read_log(path)
    if log.format == "ctxarchive":
        return check_session(knowledge, read_session(path).replay())
    sessions = [
        info.session
        for info in knowledge.sessions()
        if info.session == log.session_id or info.session.startswith(f"{log.session_id}~")
    ]
    if not sessions:
        raise KnowledgeError("missing", f"{path}: the archive holds no session of this log")
    source = import_session(log, recorded=False)
    checks = [_check_origins(knowledge, name, source) for name in sessions]
    return LogCheck(
        compared=sum(check.compared for check in checks),
        findings=tuple(finding for check in checks for finding in check.findings),
    )


def check_session(knowledge: KnowledgeBase, session: Session) -> LogCheck:
    """Whether every shadowed event of a session is archived under its seq, and equal.

    A shortened tool result counts when the original that it stands for is archived.
    """
    shadowed = [
        original_seq(event)
        for event in session.events
        if event.type in SURFACE_TYPES and event.seq not in session.surface
    ]
    findings: list[Finding] = []
    wanted = records_through(session, sorted(set(shadowed)))
    for record in wanted:
        found = knowledge.get(session.id, record.seq)
        if found is None:
            findings.append(_finding("missing", "not archived", record))
        elif (found.event, found.head, found.layer) != (record.event, record.head, record.layer):
            findings.append(_finding("different", "differs from the log", record))
    return LogCheck(compared=len(wanted), findings=tuple(findings))


def _check_origins(knowledge: KnowledgeBase, name: str, source: Session) -> LogCheck:
    """Whether everything up to the newest archived event is archived, and equal in content."""
    archived = {
        key: record
        for record in _records(knowledge, name)
        if record.kind != "checkpoint" and (key := _origin(record)) is not None
    }
    wanted = [
        record
        for record in records_through(source, [event.seq for event in source.events])
        if record.kind != "checkpoint"
    ]
    keys = [_origin(record) for record in wanted]
    last = max((place for place, key in enumerate(keys) if key in archived), default=-1)
    findings: list[Finding] = []
    for record, key in zip(wanted[: last + 1], keys, strict=False):
        found = archived.get(key) if key is not None else None
        if found is None:
            findings.append(_finding("missing", f"not archived in {name!r}", record))
        elif (_content(found), found.head) != (_content(record), record.head):
            findings.append(_finding("different", f"differs in {name!r}", record))
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


def _origin(record: Record) -> tuple[Any, ...] | None:
    """What identifies an event in its source log: line, id, and, for results of one line, the call."""
    event = json.loads(record.event)
    origin = event.get("origin")
    if not isinstance(origin, dict):
        return None
    return (origin.get("line"), origin.get("id"), record.role, record.head)


def _content(record: Record) -> tuple[Any, ...]:
    event = json.loads(record.event)
    return (event.get("type"), event.get("time"), event.get("data"))


def _finding(code: str, message: str, record: Record) -> Finding:
    return Finding(code=code, message=message, session=record.session, seq=record.seq)
