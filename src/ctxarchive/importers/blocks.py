"""Foreign content blocks in our spelling. Pure; text is never stripped, joined or normalised.

A block of a kind that is not known here is handed on as it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ctxarchive.importers.records import Record

Block = dict[str, Any]


def arguments_text(value: Any) -> str:
    """A tool call's input as the raw text our calls carry; text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def content_list(record: Record, content: Any, where: str) -> list[Block]:
    """Content as a list of blocks: a plain string is one text block, nothing is none.

    Raises:
        LogFormatError: ``invalid``, when it is neither text nor a list of objects.
    """
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise record.invalid(f"{where} is neither text nor a list of blocks")
    for block in content:
        if not isinstance(block, dict):
            raise record.invalid(f"a block of {where} is not an object")
        if not isinstance(block.get("type", ""), str):
            raise record.invalid(f"a block of {where} has a type that is no text")
        if block.get("type") == "text" and not isinstance(block.get("text"), str):
            raise record.invalid(f"a text block of {where} holds no text")
    return content


def assistant_blocks(record: Record, content: Any, where: str) -> list[Block]:
    """An assistant's blocks in Anthropic's or pi's spelling, as ours.

    Raises:
        LogFormatError: ``invalid``, for a call without id or name.
    """
    return [_assistant_block(record, block) for block in content_list(record, content, where)]


def _assistant_block(record: Record, block: Block) -> Block:
    kind = block.get("type")
    if kind == "thinking":
        rest = {key: value for key, value in block.items() if key not in {"type", "thinking"}}
        text = block.get("thinking")
        return {"type": "reasoning", "text": text if isinstance(text, str) else "", **rest}
    if kind in {"tool_use", "toolCall"}:
        taken = {"type", "id", "name", "input", "arguments"}
        rest = {key: value for key, value in block.items() if key not in taken}
        given = block.get("input") if kind == "tool_use" else block.get("arguments")
        return {**call_block(record, block.get("id"), block.get("name"), given), **rest}
    return block


def call_block(record: Record, call_id: Any, name: Any, arguments: Any) -> Block:
    """A tool call.

    Raises:
        LogFormatError: ``invalid``, for a call without id or name.
    """
    if not isinstance(call_id, str) or not call_id:
        raise record.invalid("a tool call has no id")
    if not isinstance(name, str):
        raise record.invalid(f"tool call {call_id!r} names no tool")
    return {
        "type": "tool-call",
        "id": call_id,
        "name": name,
        "arguments": arguments_text({} if arguments is None else arguments),
    }


def calls_of(blocks: Iterable[Block]) -> dict[str, str]:
    """Ids and names of the tool calls among our blocks, in order."""
    return {block["id"]: block["name"] for block in blocks if block.get("type") == "tool-call"}


def result_data(
    call_id: str, name: str | None, content: list[Block], *, is_error: bool
) -> dict[str, Any]:
    """The payload of a ``tool/result``."""
    message: dict[str, Any] = {
        "role": "tool",
        "source": {"kind": "tool", "callId": call_id},
        "toolCallId": call_id,
        "content": content,
    }
    if is_error:
        message["isError"] = True
    return {"name": name, "message": message} if name is not None else {"message": message}


def user_data(
    content: list[Block], source: dict[str, Any], message_id: str | None = None
) -> dict[str, Any]:
    """The payload of a ``user/message``."""
    data: dict[str, Any] = {"role": "user", "content": content, "source": source}
    if message_id is not None:
        data["id"] = message_id
    return data


def first_text(blocks: Iterable[Block]) -> str:
    """The first text among blocks, empty where there is none."""
    return next(
        (
            block["text"]
            for block in blocks
            if block.get("type") == "text" and isinstance(block.get("text"), str)
        ),
        "",
    )
