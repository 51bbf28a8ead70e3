"""Replays one log, event by event, and compacts where asked.

Deterministic: the same log under the same settings gives the same session, byte for byte, in a
session id of its own, so that replays under other settings never meet it in an archive. Only the
counts of ``archive/filed`` say what the archive held before, and they are never filed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.format import (
    ParsedEntry,
    Pointer,
    parse_additions,
    source_argument,
)
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.checkpoint import parse_frame
from ctxarchive.compaction.engine import CompactionEngine, Routing, StageReport
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.config.mounting import OURS, Request, backend_named, redactor_of
from ctxarchive.config.settings import Settings
from ctxarchive.errors import CompactionError, ManualCompactionError, SummaryError
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.importers.playback import Playback
from ctxarchive.knowledge.records import LAYERS
from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.metering.meter import Measurement, TokenMeter
from ctxarchive.metering.tokenizers import estimator
from ctxarchive.replay.marked import marked_session
from ctxarchive.session.events import CompactionSummary, UserMessage
from ctxarchive.session.jsontext import dump_json
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.session.pairing import open_calls

_LEFT_OUT = {"archive", "retention"}
"""Settings that change no session."""

_OPTIONAL = ("prune", "redact", "redact_patterns")
"""Those that change none where they are left out; so the ids of older replays hold."""

DEFAULT_WINDOW = 200_000
"""Tokens assumed where a log's model is not known."""

LARGEST_WINDOW = 1_000_000_000
"""Tokens; a log that claims more is not believed."""

When = Literal["pressure", "recorded", "end"]
SummarizerName = Literal["extractive", "recorded"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a log is replayed."""

    at: When = "pressure"
    """Where to compact: on pressure, where the log's harness did, or once at the end."""
    summarizer: SummarizerName = "extractive"
    window: int | None = None
    """Context window in tokens; the log's own, else 200,000, where ``None``."""
    settings: Settings = field(default_factory=Settings)

    def fingerprint(self, window: int) -> str:
        """Eight hex digits that name everything that could change the replayed session."""
        values = {
            "at": self.at,
            "summarizer": self.summarizer,
            "window": window,
            "settings": self.settings.model_dump(
                mode="json",
                exclude=_LEFT_OUT
                | {name for name in _OPTIONAL if not getattr(self.settings, name)},
            ),
        }
        return hashlib.blake2b(dump_json(values).encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCompaction:
    """One compaction of a replay, with what it filed, shows and took."""

    compaction_id: str
    trigger: str
    """``pressure``, ``recorded`` or ``end``."""
    shadowed_seqs: tuple[int, ...]
    shadowed_tokens: int
    checkpoint_seq: int
    checkpoint_tokens: int
    checkpoint: str
    """The full text the model sees."""
    summary: str
    """The summarizer's part alone."""
    archived: dict[str, int]
    """Records filed by layer, and those that were there before."""
    pointers: tuple[Pointer, ...]
    seconds: dict[str, float]
    """Wall time of ``file``, ``summarize``, ``build`` and ``total``."""
    summarizer: str
    """Who wrote the summary: ``extractive``, ``recorded``, or another backend's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of replaying a log."""

    log: ImportedLog
    session: Session
    window: int
    tokens_before: int
    """What the model would see had nothing been compacted."""
    tokens_after: int
    compactions: tuple[ReplayedCompaction, ...]
    warnings: tuple[str, ...]


class _Agent:
    """The log's agent: idle whenever nobody plays it an event."""

    def __init__(self, session: Session, options: Routing) -> None:
        self.session = session
        self.options = options

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task``: nothing else can happen meanwhile."""
        return await task()


class RecordedSummarizer:
    """Gives the summary that the log holds for the compaction at hand."""

    def __init__(self) -> None:
        self.current: RecordedCompaction | None = None

    async def summarize(self, input: SummaryInput) -> Summary:
        """The recorded summary.

        Raises:
            SummaryError: ``missing``, where the log holds none.
        """
        if self.current is None or not self.current.summary:
            raise SummaryError("missing", f"no recorded summary for {input.compaction_id}")
        return Summary(text=self.current.summary, summarizer="recorded", provider="recorded")


class Replayer:
    """Replays one log into a session of its own.

    Args:
        log: what to replay.
        settings: how.
        knowledge: where spans are filed; only the archive backend uses it.

    Raises:
        ConfigError: when the settings' backend cannot be loaded.
    """

    def __init__(
        self, log: ImportedLog, settings: ReplaySettings, knowledge: KnowledgeBase | None
    ) -> None:
        self.log = log
        self.window = settings.window or _capacity(log) or DEFAULT_WINDOW
        plain = f"{log.session_id}~{settings.fingerprint(self.window)}"
        filing = None if settings.settings.backend == "basic" else knowledge
        self.session_id = marked_session(plain, filing)
        self._at = settings.at
        self._summarizer = settings.summarizer
        self._playback = Playback(log, session_id=self.session_id)
        # The log's own usage counts are of a history that this replay does not have.
        self._meter = TokenMeter(estimator(settings.settings.estimator), trust_usage=False)
        self._recorded = RecordedSummarizer()
        self._stages: dict[str, list[StageReport]] = {}
        recorded: Summarizer | None = self._recorded if settings.summarizer == "recorded" else None
        self._opened = ExitStack()
        self._policy = settings.settings.compaction
        self._engine = self._make_engine(settings.settings, knowledge, recorded)
        options = Routing(
            provider=log.provider or "", model=log.model or "", context_window=self.window
        )
        self._agent = _Agent(self._playback.session, options)
        self._done: list[ReplayedCompaction] = []
        self._warnings = list(log.warnings)
        if settings.settings.prune is not None and settings.at != "pressure":
            self._warnings.append(
                f"prune: tool results are shortened on pressure only, not at {settings.at!r}"
            )

    def _make_engine(
        self, settings: Settings, knowledge: KnowledgeBase | None, summarizer: Summarizer | None
    ) -> CompactionEngine:
        request = Request(
            settings=settings, observer=self._observe, summarizer=summarizer, meter=self._meter
        )
        if settings.backend not in OURS:
            mounted = self._opened.enter_context(backend_named(settings.backend)(request))
            return mounted.engine
        if settings.backend == "basic" or knowledge is None:
            return BasicCompactionEngine(**request.engine_options())
        return ArchiveCompactionEngine(
            knowledge,
            transcript=settings.transcript,
            redactor=redactor_of(settings),
            index="later",
            **request.engine_options(),
        )

    def close(self) -> None:
        """Close what another package's backend opened; closing twice is no error."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def run(self, progress: Callable[[int], None] | None = None) -> Replay:
        """Replay the whole log.

        Args:
            progress: told how many of the log's items are done.

        Raises:
            LogFormatError: for a log that contradicts itself.
            CompactionError: when a compaction that was asked for failed.
        """
        session = self._playback.session
        for done, item in enumerate(self.log.items):
            if self._at == "end" and done == self.log.open_from:
                await self._compact_closed(session)
            if isinstance(item, Entry):
                if item.type == "assistant/message" and self._at == "pressure":
                    await self._relieve(session)
                self._playback.apply(item)
            elif self._at == "recorded":
                await self._repeat(item, session)
            if progress is not None and done % 64 == 0:
                progress(done)
        if self._at == "end" and self.log.open_from is None:
            await self._compact_at_end(session)
        after = self._meter.measure(session)
        self._say_what_is_left(after)
        return Replay(
            log=self.log,
            session=session,
            window=self.window,
            tokens_before=after.header + self._whole_history(session),
            tokens_after=after.total,
            compactions=tuple(self._done),
            warnings=tuple(self._warnings),
        )

    async def _relieve(self, session: Session) -> None:
        if open_calls(session):
            return
        before = len(session)
        try:
            await self._engine.compact_if_needed(self._agent, "pressure")
        except CompactionError as error:
            self._warnings.append(f"at seq {len(session)}: {error}")
        self._collect(session, before, "pressure")

    async def _repeat(self, item: RecordedCompaction, session: Session) -> None:
        span = self._playback.span(item)
        if span is None:
            self._warnings.append(
                f"line {item.origin.line}: nothing of what this compaction replaced is left"
            )
            return
        own_turn = session.open_turn is None
        if own_turn:
            self._between_turns(session, "turn/start")
        self._recorded.current = item
        before = len(session)
        made = len(self._done)
        await self._engine.compact_region(*span, self._agent)
        self._collect(session, before, "recorded")
        self._say_who_wrote(item, self._done[made:])
        if own_turn:
            self._between_turns(session, "turn/end")

    def _say_who_wrote(self, item: RecordedCompaction, made: Sequence[ReplayedCompaction]) -> None:
        """Warn of a summary that is not the log's own, where the log's own was asked for."""
        if self._summarizer != "recorded":
            return
        self._warnings.extend(
            f"line {item.origin.line}: the log holds no summary of this compaction; the "
            f"{compaction.summarizer} summarizer wrote one instead"
            for compaction in made
            if compaction.summarizer != "recorded"
        )

    @staticmethod
    def _between_turns(session: Session, boundary: str) -> None:
        """A turn around a compaction that its harness made between turns: a region needs one."""
        last = session.last("turn/start")
        number = 0 if last is None else last.data.turn
        if boundary == "turn/start":
            session.append(boundary, {"turn": number + 1})
        else:
            session.append(boundary, {"turn": number, "reason": {"kind": "completed"}})

    def _say_what_is_left(self, after: Measurement) -> None:
        """Warn of a request that would not fit, and of a compaction that found nothing to do."""
        if self._at == "pressure" and after.total > self.window:
            self._warnings.append(
                f"the context ends at {after.total} tokens, over the window of {self.window}: "
                "nothing older than its newest unit is left to compact"
            )
        if self._at == "end" and not self._done:
            self._warnings.append(
                "nothing was compacted: what is older than the newest unit is below "
                f"min_span_tokens ({self._policy.min_span_tokens})"
            )

    async def _compact_closed(self, session: Session) -> None:
        """Compact all but the unit that the log leaves open.

        That unit's calls may still be answered: nothing of it may be filed, since its events are
        not yet what they will be.
        """
        surface = session.surface
        measured = self._meter.measure(session)
        least = self._policy.min_span_tokens
        if session.open_turn is None or not len(surface) or measured.surface < least:
            return
        before = len(session)
        await self._engine.compact_region(surface[0], surface[len(surface) - 1], self._agent)
        self._collect(session, before, "end")

    async def _compact_at_end(self, session: Session) -> None:
        if session.open_turn is not None:
            self._between_turns(session, "turn/end")
        before = len(session)
        try:
            await self._engine.compact_now(self._agent)
        except ManualCompactionError as error:
            raise CompactionError("summary", str(error)) from error
        self._collect(session, before, "end")

    def _observe(self, report: StageReport) -> None:
        self._stages.setdefault(report.compaction_id, []).append(report)
        if report.stage == "failed" and report.error is not None:
            self._warnings.append(f"compaction {report.compaction_id}: {report.error}")

    def _collect(self, session: Session, start: int, trigger: str) -> None:
        """Take up the compactions committed since ``start``."""
        for seq in range(start, len(session)):
            event = session.event_at(seq)
            if isinstance(event, CompactionSummary):
                self._done.append(self._describe(session, event, trigger))

    def _describe(
        self, session: Session, event: CompactionSummary, trigger: str
    ) -> ReplayedCompaction:
        checkpoint = session.event_at(event.seq + 1)
        text = joined_text(checkpoint.message.content) if checkpoint.message else ""
        framed = parse_frame(text)
        entries, _ = parse_additions(framed.additions)
        reports = {
            report.stage: report for report in self._stages.get(event.data.compaction_id, [])
        }
        filed = reports.get("filed")
        numbers = {} if filed is None else filed.numbers
        return ReplayedCompaction(
            compaction_id=event.data.compaction_id,
            trigger=trigger,
            shadowed_seqs=event.data.shadowed_seqs,
            shadowed_tokens=event.data.shadowed_token_count,
            checkpoint_seq=checkpoint.seq,
            checkpoint_tokens=self._meter.price(session, checkpoint.seq),
            checkpoint=text,
            summary=framed.summary,
            archived={name: numbers.get(name, 0) for name in (*LAYERS, "already")},
            pointers=tuple(pointer for entry in entries for pointer in _whole(entry)),
            seconds={
                name: reports[stage].seconds if stage in reports else 0.0
                for name, stage in _SECONDS.items()
            },
            summarizer=event.data.summarizer or event.data.provider,
        )

    def _whole_history(self, session: Session) -> int:
        return sum(
            self._meter.price(session, event.seq)
            for event in session.events
            if event.message is not None
            and not (isinstance(event, UserMessage) and event.is_checkpoint)
        )


def _capacity(log: ImportedLog) -> int | None:
    """The window that a log names, where it is one that a model could have."""
    window = log.context_window
    return window if window is not None and 0 < window <= LARGEST_WINDOW else None


def _whole(entry: ParsedEntry) -> tuple[Pointer, ...]:
    """An entry's pointers, with the length of what each returns."""
    return tuple(
        pointer
        if pointer.seq is None or pointer.length is not None
        else replace(pointer, length=entry.chars)
        for pointer in entry.pointers
    )


_SECONDS = {
    "file": "filed",
    "summarize": "summarized",
    "build": "built",
    "total": "committed",
}


def replay_json(replay: Replay, *, archive: str | None) -> dict[str, Any]:
    """The public JSON of one replayed log."""
    return {
        "session": replay.session.id,
        "format": replay.log.format,
        "log": str(replay.log.path),
        "archive": archive,
        "window": replay.window,
        "events": len(replay.session),
        "tokens_before": replay.tokens_before,
        "tokens_after": replay.tokens_after,
        "compactions": [
            _compaction_json(index, compaction)
            for index, compaction in enumerate(replay.compactions)
        ],
        "warnings": list(replay.warnings),
    }


def _compaction_json(index: int, made: ReplayedCompaction) -> dict[str, Any]:
    return {
        "index": index,
        "compaction_id": made.compaction_id,
        "trigger": made.trigger,
        "shadowed_seqs": list(made.shadowed_seqs),
        "shadowed_tokens": made.shadowed_tokens,
        "checkpoint_seq": made.checkpoint_seq,
        "checkpoint_tokens": made.checkpoint_tokens,
        "checkpoint": made.checkpoint,
        "summary": made.summary,
        "archived": made.archived,
        "pointers": [pointer_json(pointer) for pointer in made.pointers],
        "seconds": {name: round(value, 6) for name, value in made.seconds.items()},
        "summarizer": made.summarizer,
    }


def pointer_json(pointer: Pointer) -> dict[str, Any]:
    """A pointer as the tool takes it."""
    source = source_argument(pointer.sources)
    if pointer.seq is None:
        return {
            "source": source,
            "after_seq": pointer.after_seq,
            "before_seq": pointer.before_seq,
        }
    return {
        "source": source,
        "seq": pointer.seq,
        "offset": pointer.offset,
        "length": pointer.length,
    }
