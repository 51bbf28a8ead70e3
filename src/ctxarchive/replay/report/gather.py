"""A report's values from a replayed log, or from what an archive holds. Reads, changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ctxarchive.archive.recording import original_seq
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.store import KnowledgeBase, Scope, SessionInfo
from ctxarchive.metering.estimate import header_texts
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.replay.report.life import Life, Replacement, live
from ctxarchive.replay.report.reading import read_checkpoint
from ctxarchive.replay.report.shares import shares
from ctxarchive.replay.report.values import CompactionView, SessionView
from ctxarchive.replay.run import Replay, ReplayedCompaction
from ctxarchive.session.events import CompactionSummary, Event, RequestHeader, parse_event
from ctxarchive.session.messages import joined_text

MAX_RECORDS = 50_000
"""Records of one page: above, the file is too large for a browser to open at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a replay was run under, in tokens."""

    window: int
    threshold: int


def replayed_session(
    replay: Replay, knowledge: KnowledgeBase | None, meter: TokenMeter, limits: Thresholds
) -> SessionView:
    """What came of replaying a log.

    Args:
        replay: the replay.
        knowledge: where its spans were filed; ``None`` for the basic backend.
        meter: prices messages.
        limits: its window and threshold.

    Raises:
        KnowledgeError: ``scope``, where it has too many records for one page.
    """
    session = replay.session
    life = live(session.events, _pricing(meter))
    records = () if knowledge is None else _records(knowledge, session.id)
    originals: dict[int, int] = {}
    summarizers: dict[int, str | None] = {}
    for event in session.events:
        cited = original_seq(event)
        if cited != event.seq:
            originals[event.seq] = originals.get(cited, cited)
        if isinstance(event, CompactionSummary):
            summarizers[event.seq + 1] = event.data.summarizer
    made = {compaction.checkpoint_seq: compaction for compaction in replay.compactions}
    teller = _Teller(life=life, records=records, originals=originals, meter=meter)
    return SessionView(
        session=session.id,
        title=session.header.title,
        format=replay.log.format,
        model=replay.log.model,
        window=limits.window,
        threshold=limits.threshold,
        points=life.points,
        compactions=tuple(
            teller.tell(found, made.get(found.event.seq), summarizers.get(found.event.seq))
            for found in life.replacements
        ),
        records=records,
        warnings=replay.warnings,
    )


def archived_session(knowledge: KnowledgeBase, info: SessionInfo, meter: TokenMeter) -> SessionView:
    """What an archive holds of a session: the events that left its context, and checkpoints.

    The newest checkpoint is not among them: a message is filed when it leaves the context.

    Raises:
        KnowledgeError: ``scope``, where it has too many records for one page.
    """
    records = _records(knowledge, info.session)
    life = live([_event(record) for record in records], _pricing(meter))
    teller = _Teller(life=life, records=records, originals={}, meter=meter)
    return SessionView(
        session=info.session,
        title=info.title,
        format=None,
        model=None,
        window=None,
        threshold=None,
        points=life.points,
        compactions=tuple(teller.tell(found, None, None) for found in life.replacements),
        records=records,
        warnings=(),
    )


class _Teller:
    """Tells of one session's compactions."""

    def __init__(
        self,
        *,
        life: Life,
        records: Sequence[Record],
        originals: Mapping[int, int],
        meter: TokenMeter,
    ) -> None:
        self._life = life
        self._records = {record.seq: record for record in records}
        self._originals = originals
        self._meter = meter

    def tell(
        self, found: Replacement, made: ReplayedCompaction | None, summarizer: str | None
    ) -> CompactionView:
        checkpoint = read_checkpoint(joined_text(found.event.data.content))
        span = [self._originals.get(seq, seq) for seq in found.shadowed]
        return CompactionView(
            checkpoint_seq=found.event.seq,
            time=found.event.time,
            trigger=None if made is None else made.trigger,
            summarizer=summarizer,
            seconds={} if made is None else made.seconds,
            first_seq=min(found.shadowed, default=found.event.seq),
            last_seq=max(found.shadowed, default=found.event.seq),
            messages=len(found.shadowed),
            tokens_before=found.tokens_before,
            tokens_after=found.tokens_after,
            shadowed_tokens=found.shadowed_tokens,
            checkpoint_tokens=self._life.prices[found.event.seq],
            shares=shares(
                span,
                self._records,
                self._life.prices,
                checkpoint.entries,
                self._meter.text,
            ),
            carried=sum(
                entry.section == "standing" and entry.role == "user" for entry in checkpoint.entries
            ),
            checkpoint=checkpoint,
        )


def _pricing(meter: TokenMeter) -> Callable[[Event], int]:
    def price(event: Event) -> int:
        """Tokens of a message, or of a request's header."""
        if isinstance(event, RequestHeader):
            return sum(meter.text(text) for text in header_texts(event.data.header))
        message = event.message
        return 0 if message is None else meter.message(message)

    return price


def _records(knowledge: KnowledgeBase, session: str) -> tuple[Record, ...]:
    scope = Scope(sources=(SourceRef(session=session),))
    found = knowledge.range(scope, MAX_RECORDS + 1)
    if len(found) > MAX_RECORDS:
        raise KnowledgeError(
            "scope",
            f"session {session!r} has more than {MAX_RECORDS:,} records, too many for a page",
        )
    return found


def _event(record: Record) -> Event:
    value = json.loads(record.event)
    return parse_event({**value, "seq": record.seq}, where=f"{record.session} seq {record.seq}")
