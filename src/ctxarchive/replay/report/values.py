"""What a report says, as values. Nothing here reads a log, an archive or a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ctxarchive.archive.format import Pointer
from ctxarchive.knowledge.records import Record

SpanKind = Literal["user", "assistant", "calls", "tool", "host"]
"""Whose text left the context. ``calls`` are the assistant's calls and reasoning: messages without
prose, and the tokens that other messages hold beside their prose. ``host`` is what the harness or an
earlier compaction put into the user's role."""

SPAN_KINDS: tuple[SpanKind, ...] = ("user", "assistant", "calls", "tool", "host")

Fate = Literal["whole", "clipped", "archived"]
"""Shown word for word, shown in part, or only in the archive."""

FATES: tuple[Fate, ...] = ("whole", "clipped", "archived")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The context directly after one event."""

    seq: int
    time: int | None
    """Milliseconds since the epoch, where known."""
    what: str
    """Who spoke, or which tool answered."""
    tokens: int
    """The next request: header and surface."""
    uncompacted: int
    """The same, had nothing ever been compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What became of the messages of one kind in a span."""

    kind: SpanKind
    fate: Fate
    messages: int
    shown_chars: int
    """Code points that stand in the checkpoint."""
    left_chars: int
    """Code points that are only in the archive."""
    shown_tokens: int
    left_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryView:
    """One entry of a checkpoint's additions."""

    section: str
    """``standing`` or ``transcript``."""
    role: str
    """``user``, ``assistant``, ``tool``, or ``run`` for a line that stands for several."""
    seq: int
    """The record's seq; of a run, its first."""
    chars: int
    """Code points of the whole text; of a run, how many entries it stands for."""
    name: str = ""
    """The tool's name."""
    did: str = ""
    """What the call did, as the checkpoint says it."""
    parts: tuple[str | Pointer, ...]
    """Shown text and pointers, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A checkpoint's text, taken apart for reading."""

    text: str
    """All of it, as the model sees it."""
    preamble: str
    summary: str
    entries: tuple[EntryView, ...]
    index: tuple[str, ...]
    """Lines of the archive index, its anchors left out."""
    anchors: tuple[tuple[str, tuple[str, ...]], ...]
    """Kind and tokens."""
    unread: str
    """What follows the summary and is not of our format; empty where all was read."""

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Every pointer of the entries, in order."""
        return tuple(
            part for entry in self.entries for part in entry.parts if isinstance(part, Pointer)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionView:
    """One compaction: what it took, what it left, and what it cost."""

    checkpoint_seq: int
    time: int | None
    trigger: str | None
    """``None`` where only an archive tells of it, as with the next two."""
    summarizer: str | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time of ``file``, ``summarize``, ``build`` and ``total``."""
    first_seq: int
    last_seq: int
    messages: int
    """Messages that left the context."""
    tokens_before: int
    """The context before and after, in tokens."""
    tokens_after: int
    shadowed_tokens: int
    checkpoint_tokens: int
    shares: tuple[Share, ...]
    carried: int
    """Messages of the user from before the span that are in view."""
    checkpoint: CheckpointView


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session."""

    session: str
    title: str | None
    format: str | None
    """Of the log it was read from; ``None`` for an archive."""
    model: str | None
    window: int | None
    """Tokens; ``None`` where only an archive tells of it, as with the threshold."""
    threshold: int | None
    points: tuple[Point, ...]
    compactions: tuple[CompactionView, ...]
    records: tuple[Record, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one page shows."""

    name: str
    """The log's or the archive's file name, without its folder."""
    origin: Literal["log", "archive"]
    version: str
    """Of ctxarchive."""
    sessions: tuple[SessionView, ...]
