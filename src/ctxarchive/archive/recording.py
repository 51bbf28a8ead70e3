"""How an event becomes a record, and a record's JSON its text again. Pure."""

from __future__ import annotations

from ctxarchive.archive.layers import place
from ctxarchive.knowledge.records import Record
from ctxarchive.session.events import Event, Replace, ToolResult
from ctxarchive.session.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    ToolResultBlock,
    joined_text,
)


def event_text(event: Event, head: str) -> str:
    """The text of ``event``, as :func:`~ctxarchive.archive.rendering.render` gives it for its JSON."""
    if isinstance(event, ToolResult):
        body = joined_text(event.data.message.block.content)
        return f"{head}\n{body}" if head else body
    message = event.message
    return "" if message is None else joined_text(message.content)


def call_line(name: str, arguments: str) -> str:
    """The line that heads a tool result's text: the call's name and arguments."""
    return f"{name} {' '.join(arguments.split())}".strip()


def original_seq(event: Event) -> int:
    """The seq under which an event's content is archived.

    A tool result that was put in the place of another, shortened, is archived as the one it cites.
    """
    if isinstance(event, ToolResult) and isinstance(event.surface_op, Replace):
        return event.source_event_seqs[0]
    return event.seq


def record(session: str, event: Event, *, name: str | None, head: str) -> Record | None:
    """The record of one event, or ``None`` where it is archived as another or is none at all.

    Args:
        session: the session's id.
        event: the event.
        name: the tool's name, for a tool's result.
        head: its call's line, for a tool's result.
    """
    if original_seq(event) != event.seq:
        return None
    text = event_text(event, head)
    placement = place(event, text)
    message = event.message
    if placement is None or message is None:
        return None
    return Record(
        session=session,
        seq=event.seq,
        layer=placement.layer,
        kind=placement.kind,
        role=placement.role,
        name=name,
        time=event.time,
        head=head,
        event=event.json_text,
        text=text,
        images=tuple(_images(message.content)),
    )


def _images(blocks: tuple[ContentBlock, ...]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        if isinstance(block, ImageBlock | DocumentBlock):
            found.append(block.describe())
        elif isinstance(block, ToolResultBlock):
            found += _images(block.content)
    return found
