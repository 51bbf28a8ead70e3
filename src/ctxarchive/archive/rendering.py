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
    blocks = _content(json.loads(event_json).get("data") or {})
    body = "\n".join(
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    )
    return f"{head}\n{body}" if head else body


def _content(data: dict[str, Any]) -> list[Any]:
    message = data.get("message")
    content = (message if isinstance(message, dict) else data).get("content")
    if not isinstance(content, list):
        return []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "tool-result":
            inner = block.get("content")
            return inner if isinstance(inner, list) else []
    return content
