"""What the archive engine needs to know of a log, kept up as the log grows.

One pass over each event in a session's life: which call a result answers, which seqs carry
content, and which compactions there were. Reads sessions, changes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ctxarchive.archive.anchor_ranking import Use, tally
from ctxarchive.archive.calls import Call, call_of
from ctxarchive.archive.generations import (
    PATH_WEIGHT,
    PROSE_WEIGHT,
    USER_WEIGHT,
    Generation,
    Generations,
    file_names,
    summed,
    words_of,
)
from ctxarchive.archive.layers import is_said
from ctxarchive.archive.recording import original_seq
from ctxarchive.archive.redaction import Redactor
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
from ctxarchive.session.messages import ToolCallBlock, joined_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCompaction:
    """An earlier compaction of the session."""

    first_seq: int
    """Lowest seq it shadowed."""
    last_seq: int
    checkpoint_seq: int
    time: int | None


class History:
    """One session's calls, content and compactions so far.

    Args:
        redactor: masks events before anything else is made of them; ``None`` to mask nothing.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor
        self.redacted: dict[int, Event] = {}
        """Events of which something is masked, as they are archived."""
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
        self.generations = Generations()
        """The compactions as the archive index tells them."""
        self.uses: dict[str, Use] = {}
        """How each token was used, up to where it was tallied last."""
        self.said: dict[int, Record | None] = {}
        """Records of the user's messages that were shown again, by seq."""
        self.standing: dict[int, Entry] = {}
        """What each of them shows, by seq."""
        self.prices: dict[str, int] = {}
        """Tokens of the lines of standing messages."""
        self._words: dict[int, dict[str, int]] = {}
        """What the words of each event count that no compaction has taken from view yet."""
        self._checkpoints: set[int] = set()
        self._tallied = 0
        self._stands_for: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._next = 0
        self._open: dict[str, Call] = {}
        self._summary: CompactionSummary | None = None

    def advance(self, session: Session) -> None:
        """Take in what was appended since the last time."""
        for seq in range(self._next, len(session)):
            self._take(self._clean(session.event_at(seq)))
            self._next = seq + 1

    def event(self, session: Session, seq: int) -> Event:
        """An event as it is archived."""
        return self.redacted.get(seq) or session.event_at(seq)

    def _clean(self, event: Event) -> Event:
        if self._redactor is None or event.message is None:
            return event
        clean = self._redactor.event(event)
        if clean is not event:
            self.redacted[event.seq] = clean
        return clean

    def tally(self, session: Session, through: int) -> None:
        """Count how tokens are used, up to and including the event at ``through``."""
        for seq in range(self._tallied, through + 1):
            tally(self.event(session, seq), self.uses)
        self._tallied = max(self._tallied, through + 1)

    def original(self, seq: int) -> int:
        """The seq under which the content of ``seq`` is archived: its own, or its original's."""
        return self._stands_for.get(seq, seq)

    def newest(self, seq: int) -> int:
        """The seq of what a host put last in the place of the event at ``seq``; or its own."""
        return self._newest.get(seq, seq)

    def _take(self, event: Event) -> None:
        if isinstance(event, AssistantMessage):
            for block in event.data.message.content:
                if isinstance(block, ToolCallBlock):
                    self._open[block.id] = call_of(block)
            self._said(event)
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
            original = self.original(cited)
            self._stands_for[event.seq] = original
            self._newest[original] = event.seq
            return
        self.content.append(event.seq)
        if not isinstance(event, UserMessage):
            self.originals.append(event.seq)
        elif event.is_checkpoint:
            self._checkpoint(event)
        else:
            self.originals.append(event.seq)
            if is_said(event):
                self.constraints.append(event.seq)
                self._hear(event.seq, words_of(joined_text(event.data.content), USER_WEIGHT))

    def _said(self, event: AssistantMessage) -> None:
        """Count the words of an answer's prose, and the files that its calls name."""
        content = event.data.message.content
        calls = (self._open[block.id] for block in content if isinstance(block, ToolCallBlock))
        words = [words_of(joined_text(content), PROSE_WEIGHT)]
        words += [file_names(call.essence, PATH_WEIGHT) for call in calls]
        self._hear(event.seq, summed(words))

    def _hear(self, seq: int, words: dict[str, int]) -> None:
        if words:
            self._words[seq] = words
            self.generations.hear(words)

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
            self._generation(event, seqs)

    def _generation(self, event: UserMessage, shadowed: Sequence[int]) -> None:
        words = summed(self._words.pop(seq, {}) for seq in shadowed)
        own = [self.original(seq) for seq in shadowed if seq not in self._checkpoints]
        seqs = own or list(shadowed)
        self._checkpoints.add(event.seq)
        self.generations.add(
            Generation(
                compactions=1,
                first_seq=min(seqs),
                last_seq=max(seqs),
                checkpoint_seq=event.seq,
                first_time=event.time,
                last_time=event.time,
                words=words,
                size=sum(words.values()),
            )
        )


_HISTORIES: WeakKeyDictionary[Session, dict[Redactor | None, History]] = WeakKeyDictionary()


def history_of(session: Session, redactor: Redactor | None = None) -> History:
    """The session's history, up to its newest event.

    Args:
        session: the session.
        redactor: masks events before anything else is made of them.
    """
    histories = _HISTORIES.setdefault(session, {})
    history = histories.get(redactor)
    if history is None:
        history = histories[redactor] = History(redactor)
    history.advance(session)
    return history
