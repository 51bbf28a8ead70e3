"""What an agent went on to need after a compaction, by what it did: the measure of a checkpoint.

An identifier is needed when a later tool call uses it, the replaced span held it, the summary does
not, and nothing behind the compaction had shown it first. Pure, and over a session's own events, so
that it is the same for every log format. Knows nothing of anchors: what is measured does not choose
its measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ctxarchive.compaction.checkpoint import parse_frame
from ctxarchive.errors import SessionError
from ctxarchive.session.events import AssistantMessage, Event, ToolResult, UserMessage
from ctxarchive.session.messages import TextBlock, ToolCallBlock, joined_text

IDENTIFIER = re.compile(
    r"""
    (?:[\w.-]+/)+[\w.-]+            # a path
    | [A-Za-z_]\w*(?:\.\w+)+        # a dotted name
    | [a-z]+[A-Z]\w+                # camelCase
    | [A-Z][a-z]+[A-Z]\w+           # CamelCase
    | \w+_\w+                       # snake_case
    | \b[0-9a-f]{7,40}\b            # a hash
    | \b\d{4,}\b                    # a long number
    """,
    re.VERBOSE,
)

SHORTEST, LONGEST = 5, 120
"""Code points of an identifier."""

LEAST_BEFORE, LEAST_AFTER = 20, 10
"""Parts of messages that must lie in the span and behind it, for a compaction to be measured."""


def identifiers(text: str) -> set[str]:
    """The identifiers in a text."""
    return {word for word in IDENTIFIER.findall(text) if SHORTEST <= len(word) <= LONGEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a message: prose, what a tool call was given, or what it returned."""

    kind: Literal["text", "call", "result"]
    text: str


def parts(event: Event) -> Iterator[Part]:
    """The parts of an event's message, in order; of a checkpoint, what its summarizer wrote."""
    if isinstance(event, AssistantMessage):
        for block in event.data.message.content:
            if isinstance(block, TextBlock):
                yield Part(kind="text", text=block.text)
            elif isinstance(block, ToolCallBlock):
                yield Part(kind="call", text=block.arguments)
    elif isinstance(event, ToolResult):
        yield Part(kind="result", text=joined_text(event.data.message.block.content))
    elif isinstance(event, UserMessage):
        text = joined_text(event.data.content)
        yield Part(kind="text", text=_summary(text) if event.is_checkpoint else text)


def _summary(checkpoint: str) -> str:
    try:
        return parse_frame(checkpoint).summary
    except SessionError:  # one of another harness, which is summary from end to end
        return checkpoint


def needed(
    *, span: Sequence[Event], kept: Iterable[Event], summary: str, later: Sequence[Event]
) -> frozenset[str] | None:
    """The identifiers that the agent went on to need and nothing but additions could show.

    Args:
        span: what was replaced; an earlier checkpoint counts by its summary alone, so that the
            answer is the same whatever that checkpoint showed.
        kept: what stayed in view behind the span.
        summary: the summary that took the span's place.
        later: what followed, up to the next compaction.

    Returns:
        ``None`` where the span or what followed is too short to say.
    """
    before = [part for event in span for part in parts(event)]
    behind = [(event, list(parts(event))) for event in later]
    if len(before) < LEAST_BEFORE or sum(len(each) for _, each in behind) < LEAST_AFTER:
        return None
    known: set[str] = set()
    for part in before:
        known |= identifiers(part.text)
    seen = identifiers(summary)
    for event in kept:
        for part in parts(event):
            seen |= identifiers(part.text)
    found: set[str] = set()
    for event, each in behind:
        if isinstance(event, UserMessage) and event.is_checkpoint:
            continue
        for part in each:
            words = identifiers(part.text)
            if part.kind == "call":
                found |= {word for word in words & known - seen if word not in summary}
            seen |= words
    return frozenset(found)


def in_view(word: str, text: str) -> bool:
    """Whether an identifier stands whole in a text: inside a longer path it does, in a word not."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
