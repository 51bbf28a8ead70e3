"""``ctx_search`` for a host that can take images: a fetched record's own come along as blocks.

A search or a listing names them only. Decides nothing of what the text says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ctxarchive.knowledge.records import Record
from ctxarchive.session.messages import ImageBlock, WireModel, text_block
from ctxarchive.tools.ctx_search import CtxSearchTool

MOST_IMAGES: Final = 8
"""Most images of one answer; the heading says how many the record has."""


class CtxSearchWithImages:
    """Wraps a ``CtxSearchTool``; answers text alone where there is no image.

    Args:
        search: the tool whose calls are answered.
    """

    def __init__(self, search: CtxSearchTool) -> None:
        self._search = search

    @property
    def name(self) -> str:
        """What the host calls the tool."""
        return self._search.name

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and JSON schema, as the Messages API takes a tool."""
        return self._search.definition

    def run(self, input: Mapping[str, Any]) -> str | list[WireModel]:
        """Answer one call: the text, and behind it the images of the record that was fetched.

        A continuation, which starts behind the record's beginning, brings no image again.

        Args:
            input: the call's arguments as the model sent them.

        Raises:
            ToolInputError: as ``CtxSearchTool.run``.
            KnowledgeError: as ``CtxSearchTool.run``.
        """
        answer = self._search.answer(input)
        if answer.record is None or answer.offset > 0:
            return answer.text
        images = list(images_of(answer.record))[:MOST_IMAGES]
        return [text_block(answer.text), *images] if images else answer.text


def images_of(record: Record) -> Iterator[ImageBlock]:
    """The images of a record, as its event spells them, in order."""
    if not record.images:
        return
    data = json.loads(record.event).get("data")
    yield from _images(data.get("content") if isinstance(data, dict) else None)
    message = data.get("message") if isinstance(data, dict) else None
    yield from _images(message.get("content") if isinstance(message, dict) else None)


def _images(blocks: Any) -> Iterator[ImageBlock]:
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "image":
            yield ImageBlock.model_validate(block)
        elif block.get("type") == "tool-result":
            yield from _images(block.get("content"))
