"""What an event of a DSH log names, in any of its spellings."""

from __future__ import annotations

from typing import Any

from ctxarchive.importers.blocks import Block
from ctxarchive.importers.records import Record


def payload(record: Record) -> dict[str, Any]:
    """An event's data.

    Raises:
        LogFormatError: ``invalid``, when it has none.
    """
    data = record.at("data")
    if not isinstance(data, dict):
        raise record.invalid(f"{record.text('type')} without data")
    return data


def calls_made(record: Record, blocks: list[Block]) -> dict[str, str]:
    """Ids and names of the tool calls among blocks of an event.

    Raises:
        LogFormatError: ``invalid``, for a call without id or name.
    """
    calls: dict[str, str] = {}
    for block in blocks:
        if block.get("type") == "tool-call":
            call_id, name = block.get("id"), block.get("name")
            if not isinstance(call_id, str) or not isinstance(name, str):
                raise record.invalid("a tool call without id or name")
            calls[call_id] = name
    return calls


def answered(record: Record) -> str | None:
    """The call that a result answers, in either spelling."""
    content = record.at("data", "message", "content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool-result":
            call_id = block.get("toolCallId")
            return call_id if isinstance(call_id, str) else None
    return record.text("data", "message", "toolCallId") or record.text(
        "data", "message", "source", "callId"
    )
