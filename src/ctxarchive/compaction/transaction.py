"""One compaction on the log: bracket, revalidation, commit, and exactly one attempt to close.

The lock is the log: a ``compaction/start`` without its end, newer than the newest
``session/end-seed``, is live.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from anyio import get_cancelled_exc_class

from ctxarchive.compaction.checkpoint import frame
from ctxarchive.compaction.engine import CompactionResult, Trigger
from ctxarchive.compaction.span import Span
from ctxarchive.compaction.summarizer import Summary
from ctxarchive.errors import CompactionError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.events import (
    CompactionEndData,
    CompactionStart,
    CompactionStartData,
    CompactionSummaryData,
    Replace,
    ShadowedRange,
    UserMessageData,
)
from ctxarchive.session.ids import derived_compaction_id
from ctxarchive.session.log import Session
from ctxarchive.session.messages import Message, WireModel, checkpoint_source, text_block

T = TypeVar("T", bound=WireModel)


def live_bracket(session: Session) -> CompactionStart | None:
    """The compaction that holds the lock, or ``None``."""
    start = session.last("compaction/start")
    if not isinstance(start, CompactionStart):
        return None
    for closing in ("compaction/end", "session/end-seed"):
        event = session.last(closing)
        if event is not None and event.seq > start.seq:
            return None
    return start


def require_unlocked(session: Session) -> None:
    """Check that no compaction holds the lock.

    Raises:
        CompactionError: ``busy``, naming the bracket that does.
    """
    live = live_bracket(session)
    if live is not None:
        raise CompactionError(
            "busy",
            f"compaction lock is already active: {live.data.compaction_id} since seq {live.seq}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A summary and its checkpoint that are on the log, in a bracket that is still open."""

    summary_seq: int
    checkpoint_seq: int
    checkpoint_tokens: int
    text: str
    """The checkpoint's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An open bracket around one span. Its holder closes it once, whatever happens."""

    session: Session
    meter: TokenMeter
    span: Span
    trigger: Trigger
    owner: int | None
    """The turn that owns the bracket; ``None`` for a manual one."""
    command_id: str | None
    compaction_id: str
    start_seq: int

    @classmethod
    def open(
        cls,
        session: Session,
        meter: TokenMeter,
        span: Span,
        *,
        trigger: Trigger,
        owner: int | None,
        command_id: str | None = None,
    ) -> Transaction:
        """Take the lock. Nothing may have been awaited since the span was selected.

        Raises:
            CompactionError: ``busy``; ``commit`` when the log refuses the bracket.
        """
        require_unlocked(session)
        transaction = cls(
            session=session,
            meter=meter,
            span=span,
            trigger=trigger,
            owner=owner,
            command_id=command_id,
            compaction_id=derived_compaction_id(session.id, len(session)),
            start_seq=len(session),
        )
        data = _bracket(
            CompactionStartData, transaction.compaction_id, command_id, turn=transaction.owner
        )
        try:
            session.append("compaction/start", data)
        except Exception as error:
            if live_bracket(session) is not None:  # on the log, and a listener failed behind it
                transaction.close(error)
            raise CompactionError("commit", f"the bracket would not open: {error}") from error
        return transaction

    def revalidate(self) -> None:
        """Check that what was summarized is still what would be replaced.

        Raises:
            CompactionError: ``changed``. A manual compaction tolerates context added outside its
                span, any other demands the whole surface as it was.
        """
        surface = self.session.surface
        first, last = self.span.first, self.span.last
        if last >= len(surface) or surface.span(surface[first], surface[last]) != self.span.seqs:
            raise CompactionError("changed", "the selected span changed during summarization")
        measurement = self.meter.measure(self.session)
        if measurement.span(first, last) != self.span.tokens:
            raise CompactionError(
                "changed", "the selected span's price changed during summarization"
            )
        whole = (surface.replace_generation, len(surface))
        if self.owner is not None and whole != (self.span.generation, self.span.surface_length):
            raise CompactionError("changed", "the surface changed during summarization")

    def checkpoint_tokens(self, text: str) -> int:
        """What the checkpoint's message would cost."""
        return self.meter.message(Message(role="user", content=(text_block(text),)))

    def commit(self, summary: Summary) -> Committed:
        """Record the summary and replace the span; the bracket stays open.

        Raises:
            CompactionError: ``growth``, before anything is written, when the checkpoint would not
                be smaller than what it shadows; ``commit`` when the log refuses an event.
        """
        text = frame(summary.text, summary.additions)
        tokens = self.checkpoint_tokens(text)
        if tokens >= self.span.tokens:
            raise CompactionError(
                "growth",
                f"the checkpoint has {tokens} tokens, what it would shadow {self.span.tokens}",
            )
        first, last = self.span.seqs[0], self.span.seqs[-1]
        try:
            recorded = self.session.append("compaction/summary", self._summary_data(summary, text))
            checkpoint = self.session.append(
                "user/message",
                UserMessageData(
                    content=(text_block(text),),
                    source=checkpoint_source(self.compaction_id, self.command_id),
                ),
                surface_op=Replace(op="replace", start_seq=first, end_seq=last),
                source_event_seqs=self.span.seqs,
            )
        except Exception as error:
            raise CompactionError("commit", f"the log refused the commit: {error}") from error
        return Committed(
            summary_seq=recorded.seq,
            checkpoint_seq=checkpoint.seq,
            checkpoint_tokens=tokens,
            text=text,
        )

    def close(self, error: BaseException | None = None) -> int:
        """Release the lock: the one attempt. Returns the seq of the end.

        Args:
            error: why the compaction failed; ``None`` after a commit.

        Raises:
            CompactionError: ``commit``, when the log refuses; the unmatched start then stays, and
                says busy.
        """
        extra = {} if error is None else {"error": error_text(error)}
        data = _bracket(
            CompactionEndData, self.compaction_id, self.command_id, turn=self.owner, **extra
        )
        try:
            return self.session.append("compaction/end", data).seq
        except Exception as refused:
            raise CompactionError("commit", f"the bracket would not close: {refused}") from refused

    def result(self, committed: Committed, end_seq: int) -> CompactionResult:
        """What a closed, successful compaction amounts to."""
        return CompactionResult(
            compaction_id=self.compaction_id,
            source_command_id=self.command_id,
            trigger=self.trigger,
            start_seq=self.start_seq,
            summary_seq=committed.summary_seq,
            checkpoint_seq=committed.checkpoint_seq,
            end_seq=end_seq,
            summary=(text_block(committed.text),),
            shadowed_range=(self.span.seqs[0], self.span.seqs[-1]),
            shadowed_seqs=self.span.seqs,
            shadowed_token_count=self.span.tokens,
            checkpoint_token_count=committed.checkpoint_tokens,
        )

    def _summary_data(self, summary: Summary, text: str) -> CompactionSummaryData:
        fields: dict[str, object] = {
            "summary": (text_block(text),),
            "raw_output": summary.output,
            "summarizer": summary.summarizer,
            "shadowed_range": ShadowedRange(start=self.span.seqs[0], end=self.span.seqs[-1]),
            "shadowed_seqs": self.span.seqs,
            "shadowed_token_count": self.span.tokens,
            "provider": summary.provider,
            "model": summary.model,
        }
        if summary.llm_stream_call:
            fields["llm_stream_call"] = True
        if summary.max_tokens is not None:
            fields["max_tokens"] = summary.max_tokens
        if summary.usage is not None:
            fields["usage"] = summary.usage
        return _bracket(CompactionSummaryData, self.compaction_id, self.command_id, **fields)


def error_text(error: BaseException) -> str:
    """An error in one line for the log; a cancellation by that name, for its text names a scope."""
    if isinstance(error, get_cancelled_exc_class()):
        return "cancelled"
    return " ".join(str(error).split()) or type(error).__name__


def _bracket(kind: type[T], compaction_id: str, command_id: str | None, **fields: object) -> T:
    # Absent, not null: only what was set is on the wire.
    named = {} if command_id is None else {"source_command_id": command_id}
    return kind.model_validate({"compaction_id": compaction_id, **named, **fields})
