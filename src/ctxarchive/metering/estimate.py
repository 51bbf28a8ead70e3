"""What of a message costs tokens: the texts to count and the fixed prices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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

MESSAGE_TOKENS = 4
"""Role and delimiters of one message."""

BLOCK_TOKENS = 3
"""Delimiters of a block that is not text."""

IMAGE_TOKENS = 1_600
"""An image at the size providers scale to (width × height / 750, at most about 1,600)."""

DOCUMENT_TOKENS = 3_000
"""A document whose text is not in the block: about two pages."""


def fixed_tokens(message: Message) -> int:
    """Tokens of a message that no text accounts for."""
    return MESSAGE_TOKENS + sum(_fixed(block) for block in message.content)


def counted_texts(blocks: Iterable[ContentBlock]) -> Iterator[str]:
    """The texts whose tokens a message costs, block by block."""
    for block in blocks:
        if isinstance(block, TextBlock | ReasoningBlock):
            yield block.text
        elif isinstance(block, ToolCallBlock):
            yield block.name
            yield block.arguments
        elif isinstance(block, ToolResultBlock):
            yield from counted_texts(block.content)
        elif not isinstance(block, ImageBlock | DocumentBlock):
            yield dump_json(block.wire())


def header_texts(header: dict[str, Any]) -> Iterator[str]:
    """The texts of a request header that travel with every request: system prompt and tools."""
    system = header.get("system")
    if isinstance(system, str):
        yield system
    elif system:
        yield dump_json(system)
    for tool in header.get("tools") or ():
        yield dump_json(tool)


def _fixed(block: ContentBlock) -> int:
    if isinstance(block, TextBlock):
        return 0
    if isinstance(block, ImageBlock):
        return IMAGE_TOKENS
    if isinstance(block, DocumentBlock):
        return DOCUMENT_TOKENS
    if isinstance(block, ToolResultBlock):
        return BLOCK_TOKENS + sum(_fixed(inner) for inner in block.content)
    return BLOCK_TOKENS
