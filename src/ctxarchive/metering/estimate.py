"""What of a message costs tokens: its texts, by the count given, and the fixed prices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ctxarchive.session.events import AssistantMessage, Event, ToolResult, UserMessage
from ctxarchive.session.jsontext import dump_json
from ctxarchive.session.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

Count = Callable[[str], int]
"""Gives the tokens of a text."""

MESSAGE_TOKENS = 4
"""Role and delimiters of one message."""

BLOCK_TOKENS = 3
"""Delimiters of a block that is not text."""

IMAGE_TOKENS = 1_600
"""An image at the size providers scale to (width × height / 750, at most about 1,600)."""

DOCUMENT_TOKENS = 3_000
"""A document whose text is not in the block: about two pages."""


def message_tokens(message: Message, count: Count) -> int:
    """Tokens of one message; ``count`` gives those of a text."""
    return MESSAGE_TOKENS + _content_tokens(message.content, count)


def event_tokens(event: Event, count: Count) -> int:
    """Tokens of an event's message; 0 for an event that no model sees.

    The same as :func:`message_tokens` of ``event.message``, without making that message: to make
    one costs several times what pricing it does.

    Raises:
        SessionError: ``event``, when a tool result names no call.
    """
    # The type's name first: of a class it is not, an event is asked five times as slowly.
    kind = event.type
    if kind == "user/message" and isinstance(event, UserMessage):
        return MESSAGE_TOKENS + _content_tokens(event.data.content, count)
    if kind == "assistant/message" and isinstance(event, AssistantMessage):
        return MESSAGE_TOKENS + _content_tokens(event.data.message.content, count)
    if isinstance(event, ToolResult):
        _, answer = event.data.message.answer
        return MESSAGE_TOKENS + BLOCK_TOKENS + _content_tokens(answer, count)
    return 0


def header_texts(header: dict[str, Any]) -> Iterator[str]:
    """The texts of a request header that travel with every request: system prompt and tools."""
    system = header.get("system")
    if isinstance(system, str):
        yield system
    elif system:
        yield dump_json(system)
    for tool in header.get("tools") or ():
        yield dump_json(tool)


def _content_tokens(blocks: Iterable[ContentBlock], count: Count) -> int:
    tokens = 0
    for block in blocks:
        tokens += count(block.text) if isinstance(block, TextBlock) else _tokens(block, count)
    return tokens


def _tokens(block: ContentBlock, count: Count) -> int:
    """Tokens of a block that is not text."""
    if isinstance(block, ToolCallBlock):
        return BLOCK_TOKENS + count(block.name) + count(block.arguments)
    if isinstance(block, ToolResultBlock):
        return BLOCK_TOKENS + _content_tokens(block.content, count)
    if isinstance(block, ReasoningBlock):
        return BLOCK_TOKENS + count(block.text)
    if isinstance(block, ImageBlock):
        return IMAGE_TOKENS
    if isinstance(block, DocumentBlock):
        return DOCUMENT_TOKENS
    return BLOCK_TOKENS + count(dump_json(block.wire()))
