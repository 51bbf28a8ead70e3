"""What an importer hands over: one log as a list of items, in the order of the file.

Values only. Reading files is the formats' business, living the items in a session is playback's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ctxarchive.session.events import Origin

LogFormat = Literal["claude-code", "pi", "dsh", "codex", "chat", "ctxarchive"]
"""Which harness wrote a log; ``chat`` is a plain list of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event to be."""

    type: str
    """The event's wire name."""
    data: dict[str, Any]
    """The event's payload, as its JSON spells it. Shared, not to be changed."""
    time: int | None
    """Milliseconds since the epoch, where the log says it."""
    origin: Origin
    """Where it stood in the file."""
    replaces: tuple[int, ...] = ()
    """Indices of the items whose surface place it takes; empty where it is appended.

    A ``compaction/prune`` names those that the replacement directly after it takes.
    """
    sources: tuple[int, ...] = ()
    """Indices of the items it was made from, besides those it replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCompaction:
    """A compaction that the log's own harness made."""

    summary: str
    """The log's own summary text, verbatim and whole, as the model saw it."""
    content: list[dict[str, Any]]
    """Content blocks of the checkpoint message, as the session spells them."""
    trigger: str
    """``auto``, ``manual``, or the harness's own word."""
    shadows: tuple[int, ...] | None
    """Indices of the surface items it replaced; ``None`` is the whole surface."""
    pre_tokens: int | None
    """What the harness counted before it compacted, in its own tokens."""
    time: int | None
    """Milliseconds since the epoch, where the log says it."""
    origin: Origin
    """Where it stood in the file."""


Item = Entry | RecordedCompaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLog:
    """A whole log, read."""

    format: LogFormat
    path: Path
    session_id: str
    """The log's own session id, or the file's name where it has none."""
    title: str | None
    cwd: str | None
    created_at: int | None
    """Milliseconds since the epoch."""
    model: str | None
    """The model in use at the end of the log."""
    provider: str | None
    context_window: int | None
    """Capacity in tokens of that model, where it is known."""
    items: tuple[Item, ...]
    warnings: tuple[str, ...]
    """What was left out or set right, one line each."""
    open_from: int | None = None
    """Index of the first item of the last unit, where that unit holds a call which the log leaves
    open and goes on behind: what is from there on may still become something else."""
