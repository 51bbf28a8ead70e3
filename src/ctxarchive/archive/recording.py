"""How an event becomes a record, and a record's JSON its text again. Pure."""

from __future__ import annotations

import json
import re

from ctxarchive.archive.layers import place
from ctxarchive.knowledge.records import Record
from ctxarchive.session.events import Event, Replace, ToolResult, UserMessage
from ctxarchive.session.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    ToolResultBlock,
    joined_text,
)


def event_text(event: Event, head: str) -> str:
    """The text of ``event``, as :func:`~ctxarchive.archive.rendering.render` gives it for its JSON."""
    body = paired(joined_text(event.content))
    return f"{head}\n{body}" if head and isinstance(event, ToolResult) else body


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def paired(text: str) -> str:
    """``text`` as it comes back from JSON, which joins the two halves of a surrogate pair."""
    if text.isascii():
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def call_line(name: str, arguments: str) -> str:
    """The line that heads a tool result's text: the call's name and arguments.

    Arguments of one line stand as they are. Others stand as a JSON string, which loses nothing.
    """
    spelt = arguments
    if len(f"{arguments}.".splitlines()) > 1:
        spelt = json.dumps(arguments, ensure_ascii=False)
        for character in "\x85\u2028\u2029":
            spelt = spelt.replace(character, f"\\u{ord(character):04x}")
        spelt = spelt.replace("\x7f", "\\u007f")
    return paired(" ".join(part for part in (" ".join(name.split()), spelt) if part))


def original_seq(event: Event) -> int:
    """The seq of what an event's content was made from; its own, where it is an original.

    A tool result that was put in the place of another, shortened, is archived as the one it took
    the place of, which may have been put there in its turn. So is a user's message that a host
    rewrote, without its images say: what the user said is what came in.
    """
    operation = event.surface_op
    if not isinstance(operation, Replace) or operation.start_seq != operation.end_seq:
        return event.seq
    rewritten = (
        isinstance(event, UserMessage)
        and not event.is_checkpoint
        and event.data.source.kind == "user"
    )
    return operation.start_seq if rewritten or isinstance(event, ToolResult) else event.seq


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
    if placement is None:
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
        images=tuple(_images(event.content)),
    )


def _images(blocks: tuple[ContentBlock, ...]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        if isinstance(block, ImageBlock | DocumentBlock):
            found.append(block.describe())
        elif isinstance(block, ToolResultBlock):
            found += _images(block.content)
    return found
