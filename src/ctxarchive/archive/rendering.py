"""A record's text, from the JSON it was filed as. Pure, and light: a search loads no more than this."""

from __future__ import annotations

import json
from typing import Any


def render(event_json: str, head: str) -> str:
    """The text of an event: its text blocks joined by a newline, after ``head`` and a newline.

    Args:
        event_json: the event as the log spells it.
        head: the line that says which call a tool's result answers; empty for none.
    """
    event = json.loads(event_json)
    blocks = _content(event.get("type"), event.get("data") or {})
    body = "\n".join(
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    )
    return f"{head}\n{body}" if head else body


def _content(event_type: Any, data: dict[str, Any]) -> list[Any]:
    # Where each type keeps its blocks; a field of that name in another type is the host's own.
    place = data if event_type == "user/message" else data.get("message")
    content = place.get("content") if isinstance(place, dict) else None
    if not isinstance(content, list):
        return []
    if event_type != "tool/result":
        return content
    for block in content:
        if isinstance(block, dict) and block.get("type") == "tool-result":
            inner = block.get("content")
            return inner if isinstance(inner, list) else []
    return content
