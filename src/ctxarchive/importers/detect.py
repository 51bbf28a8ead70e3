"""Which harness wrote a log, told by the shape of its first records."""

from __future__ import annotations

from typing import Any

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.log import LogFormat
from ctxarchive.importers.records import LogFile, Record

_LOOK_AT = 200
"""How many records are looked at before a log counts as unknown."""

_CODEX_TYPES = {"session_meta", "response_item", "turn_context", "event_msg", "compacted"}


def format_of(file: LogFile) -> LogFormat:
    """The format of a file that has been read.

    Raises:
        LogFormatError: ``unknown``, or ``empty`` where it holds no whole record.
    """
    if file.document is not None:
        if _is_conversation(file.document):
            return "chat"
        raise _unknown(file)
    if not file.records:
        raise LogFormatError(
            "empty", f"{file.path}: no whole line yet; wait until the writer has written one"
        )
    for record in file.records[:_LOOK_AT]:
        found = _format_of_record(record)
        if found is not None:
            return found
    raise _unknown(file)


def _format_of_record(record: Record) -> LogFormat | None:
    kind = record.text("type")
    if kind == "session":
        if record.at("format") == "ctxarchive":
            return "ctxarchive"
        return "dsh" if "createdAt" in record.value else "pi"
    if kind in _CODEX_TYPES and isinstance(record.at("payload"), dict):
        return "codex"
    if kind is not None and any(
        record.text(name) for name in ("sessionId", "leafUuid", "messageId", "parentUuid")
    ):
        return "claude-code"
    if kind in {"user", "assistant"} and isinstance(record.at("message"), dict):
        return "claude-code"
    return "chat" if _is_message(record.value) or _is_conversation(record.value) else None


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and ("content" in value or "tool_calls" in value)
    )


def _is_conversation(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, dict) else value
    return isinstance(messages, list) and bool(messages) and _is_message(messages[0])


def _unknown(file: LogFile) -> LogFormatError:
    return LogFormatError(
        "unknown",
        f"{file.path}: JSON, but no log that any importer knows; give a log of Claude Code, "
        "Codex, pi, DSH or ctxarchive, or a list of chat messages",
    )
