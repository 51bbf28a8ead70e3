"""What the archive engine needs to know of a log, kept up as the log grows.

One pass over each event in a session's life: which call a result answers, which seqs carry
content, and which compactions there were. Reads sessions, changes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ctxarchive.archive.anchor_ranking import Use, tally
from ctxarchive.archive.calls import Call, call_of
from ctxarchive.archive.recording import original_seq
from ctxarchive.archive.transcript import Entry
from ctxarchive.knowledge.records import Record
from ctxarchive.session.events import (
    AssistantMessage,
    CompactionSummary,
    Event,
    ToolResult,
    UserMessage,
)
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ToolCallBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCompaction:
    """An earlier compaction of the session."""

    first_seq: int
    """Lowest seq it shadowed."""
    last_seq: int
    checkpoint_seq: int
    time: int | None


class History:
    """One session's calls, content and compactions so far."""

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        """By the seq of the tool result."""
        self.failed: set[int] = set()
        """Seqs of tool results that say of themselves that they failed."""
        self.content: list[int] = []
        """Seqs of events with records of their own, ascending."""
        self.originals: list[int] = []
        """Those of them that no compaction wrote."""
        self.constraints: list[int] = []
        """Those of them that the user said."""
        self.compactions: list[PastCompaction] = []
        self.uses: dict[str, Use] = {}
        """How each token was used, up to where it was tallied last."""
        self.said: dict[int, Record | None] = {}
        """Records of the user's messages that were shown again, by seq."""
        self.standing: dict[int, Entry] = {}
        """What each of them shows, by seq."""
        self.prices: dict[str, int] = {}
        """Tokens of the lines of standing messages."""
        self._tallied = 0
        self._stands_for: dict[int, int] = {}
        self._next = 0
        self._open: dict[str, Call] = {}
        self._summary: CompactionSummary | None = None

    def advance(self, session: Session) -> None:
        """Take in what was appended since the last time."""
        for seq in range(self._next, len(session)):
            self._take(session.event_at(seq))
            self._next = seq + 1

    def tally(self, session: Session, through: int) -> None:
        """Count how tokens are used, up to and including the event at ``through``."""
        for seq in range(self._tallied, through + 1):
            tally(session.event_at(seq), self.uses)
        self._tallied = max(self._tallied, through + 1)

    def original(self, seq: int) -> int:
        """The seq under which the content of ``seq`` is archived: its own, or its original's."""
        return self._stands_for.get(seq, seq)

    def _take(self, event: Event) -> None:
        if isinstance(event, AssistantMessage):
            for block in event.data.message.content:
                if isinstance(block, ToolCallBlock):
                    self._open[block.id] = call_of(block)
        elif isinstance(event, ToolResult):
            call = self._open.get(event.data.message.block.tool_call_id)
            if call is not None:
                self.calls[event.seq] = call
            if event.data.message.block.is_error:
                self.failed.add(event.seq)
        elif isinstance(event, CompactionSummary):
            self._summary = event
        if event.message is not None:
            self._content(event)

    def _content(self, event: Event) -> None:
        cited = original_seq(event)
        if cited != event.seq:
            self._stands_for[event.seq] = self.original(cited)
            return
        self.content.append(event.seq)
        if not isinstance(event, UserMessage):
            self.originals.append(event.seq)
        elif event.is_checkpoint:
            self._checkpoint(event)
        else:
            self.originals.append(event.seq)
            if event.data.source.kind == "user":
                self.constraints.append(event.seq)

    def _checkpoint(self, event: UserMessage) -> None:
        seqs = () if self._summary is None else self._summary.data.shadowed_seqs
        self._summary = None
        if seqs:
            self.compactions.append(
                PastCompaction(
                    first_seq=min(seqs),
                    last_seq=max(seqs),
                    checkpoint_seq=event.seq,
                    time=event.time,
                )
            )


_HISTORIES: WeakKeyDictionary[Session, History] = WeakKeyDictionary()


def history_of(session: Session) -> History:
    """The session's history, up to its newest event."""
    history = _HISTORIES.get(session)
    if history is None:
        history = _HISTORIES[session] = History()
    history.advance(session)
    return history
