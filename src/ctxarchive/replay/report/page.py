"""The page: one HTML file that holds its data, its style and its script, and asks for nothing else.

Texts of a log reach the page as deflated JSON in base64, so that no text can end the element that
carries it; the script builds what is seen from text nodes only. The content policy names style and
script by their hashes and forbids everything else, the network included.
"""

from __future__ import annotations

import base64
import hashlib
import html
import zlib
from collections.abc import Iterable
from importlib.resources import files
from string import Template
from typing import Any

from ctxarchive.archive.format import Pointer
from ctxarchive.knowledge.records import Record, source_label
from ctxarchive.replay.report.values import (
    CheckpointView,
    CompactionView,
    EntryView,
    Report,
    SessionView,
    Share,
)
from ctxarchive.session.jsontext import dump_json

FIRST_LINE = "<!doctype html><!-- a ctxarchive report -->"
"""What every report begins with."""

STYLES = ("base.css", "report.css")
SCRIPTS = ("dom.js", "store.js", "timeline.js", "checkpoint.js", "panel.js", "main.js")
"""In the order in which they are joined."""


def page(report: Report) -> str:
    """The HTML of a report; the same report gives the same page."""
    style, script = _joined(STYLES), _script()
    return Template(_read("report.html")).substitute(
        first_line=FIRST_LINE,
        policy=_policy(style, script),
        title=html.escape(_title(report)),
        style=style,
        script=script,
        data=_packed(report_json(report)),
    )


def report_json(report: Report) -> dict[str, Any]:
    """The report as the page's script reads it."""
    return {
        "name": report.name,
        "origin": report.origin,
        "version": report.version,
        "sessions": [_session(session) for session in report.sessions],
    }


def _title(report: Report) -> str:
    name = report.name.encode("utf-8", "replace").decode()
    return f"{name} – ctxarchive report"


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_digest(script)}'",
        "style-src": f"'sha256-{_digest(style)}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script() -> str:
    return f'"use strict";\n(() => {{\n{_joined(SCRIPTS)}}})();\n'


def _joined(names: Iterable[str]) -> str:
    return "".join(_read(name) for name in names)


def _read(name: str) -> str:
    return (files(__package__) / "page" / name).read_text("utf-8")


def _packed(value: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(dump_json(value).encode(), 9)).decode()


def _session(view: SessionView) -> dict[str, Any]:
    return {
        "id": view.session,
        "title": view.title,
        "format": view.format,
        "model": view.model,
        "window": view.window,
        "threshold": view.threshold,
        # By column: five numbers a point are most of what the page carries beside its texts.
        "points": {
            "seq": [point.seq for point in view.points],
            "time": [point.time for point in view.points],
            "what": [point.what for point in view.points],
            "tokens": [point.tokens for point in view.points],
            "uncompacted": [point.uncompacted for point in view.points],
        },
        "compactions": [_compaction(made) for made in view.compactions],
        "records": [_record(record) for record in view.records],
        "warnings": list(view.warnings),
    }


def _record(record: Record) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "source": source_label(record.session, record.layer),
        "layer": record.layer,
        "kind": record.kind,
        "role": record.role,
        "name": record.name,
        "time": record.time,
        "chars": len(record.text),
        "images": list(record.images),
        "text": record.text,
    }


def _compaction(made: CompactionView) -> dict[str, Any]:
    return {
        "checkpointSeq": made.checkpoint_seq,
        "time": made.time,
        "trigger": made.trigger,
        "summarizer": made.summarizer,
        "seconds": dict(made.seconds),
        "firstSeq": made.first_seq,
        "lastSeq": made.last_seq,
        "messages": made.messages,
        "before": made.tokens_before,
        "after": made.tokens_after,
        "shadowedTokens": made.shadowed_tokens,
        "checkpointTokens": made.checkpoint_tokens,
        "shares": [_share(share) for share in made.shares],
        "carried": made.carried,
        "checkpoint": _checkpoint(made.checkpoint),
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "kind": share.kind,
        "fate": share.fate,
        "messages": share.messages,
        "shownChars": share.shown_chars,
        "leftChars": share.left_chars,
        "shownTokens": share.shown_tokens,
        "leftTokens": share.left_tokens,
    }


def _checkpoint(view: CheckpointView) -> dict[str, Any]:
    return {
        "text": view.text,
        "preamble": view.preamble,
        "summary": view.summary,
        "entries": [_entry(entry) for entry in view.entries],
        "index": list(view.index),
        "anchors": [[kind, list(tokens)] for kind, tokens in view.anchors],
        "unread": view.unread,
    }


def _entry(entry: EntryView) -> dict[str, Any]:
    return {
        "section": entry.section,
        "role": entry.role,
        "seq": entry.seq,
        "chars": entry.chars,
        "name": entry.name,
        "did": entry.did,
        "parts": [_pointer(part) if isinstance(part, Pointer) else part for part in entry.parts],
    }


def _pointer(pointer: Pointer) -> dict[str, Any]:
    return {
        "call": pointer.call(),
        "sources": list(pointer.sources),
        "seq": pointer.seq,
        "offset": pointer.offset,
        "length": pointer.length,
        "after": pointer.after_seq,
        "before": pointer.before_seq,
    }
