"""One log's compactions, each held at the moment when its additions are built.

The log is read, replayed, filed and priced once; after that a scene builds its additions under any
number of configurations, as a replay under them would have; only what its span weighs stays as the
current configuration made it, where an earlier checkpoint is part of it. Writes to the archive it is
given and to nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import anyio

from ctxarchive.archive.additions import AdditionsBuilder, Kept
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.engine import CompactionEngine
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.config.mounting import Request
from ctxarchive.config.settings import Settings
from ctxarchive.errors import CompactionError
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import Estimator, estimator
from ctxarchive.replay.needs import needed
from ctxarchive.replay.run import Replay, ReplayedCompaction, Replayer, ReplaySettings
from ctxarchive.session.events import CompactionStart
from ctxarchive.session.log import Session
from ctxarchive.session.pairing import open_calls

Cuts = Literal["auto", "recorded", "pressure"]
"""Where to compact: ``auto`` is where the log's harness did, or on pressure where it never did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Where logs are compacted."""

    cuts: Cuts = "auto"
    points: tuple[float, ...] = ()
    """Shares of a log's length, 0 to 1, at which to compact instead; each takes the next place
    where no tool call is open."""
    window: int | None = None
    """Context window in tokens, for pressure; the log's own, else 200,000, where ``None``."""

    def settings(self, log: ImportedLog, settings: Settings) -> ReplaySettings:
        """How one log is replayed, and who writes its summaries: its own harness, where it did."""
        recorded = any(isinstance(item, RecordedCompaction) for item in log.items)
        if self.points or self.cuts == "pressure" or not (recorded or self.cuts == "recorded"):
            return ReplaySettings(at="pressure", window=self.window, settings=settings)
        return ReplaySettings(
            at="recorded", summarizer="recorded", window=self.window, settings=settings
        )


class CountedOnce:
    """An estimator that counts each text once: settings share most of what they show."""

    def __init__(self, inner: Estimator) -> None:
        self.name = inner.name
        self._inner = inner
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._inner.count(text)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What a builder was asked for, and how far the log then was."""

    length: int
    """Events on the log."""
    input: SummaryInput
    summary: Summary
    kept: Kept
    builder: AdditionsBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watching(AdditionsBuilder):
    """A builder that remembers what it was asked for."""

    moments: dict[str, _Moment] = field(default_factory=dict)
    """By the compaction's id."""

    def build(self, input: SummaryInput, summary: Summary, kept: Kept) -> str:
        """The additions, as ever."""
        builder = AdditionsBuilder(**_values(self))
        self.moments[input.compaction_id] = _Moment(
            length=len(input.session), input=input, summary=summary, kept=kept, builder=builder
        )
        return builder.build(input, summary, kept)


def _values(builder: AdditionsBuilder) -> dict[str, Any]:
    return {each.name: getattr(builder, each.name) for each in fields(AdditionsBuilder)}


class _WatchedEngine(ArchiveCompactionEngine):
    """An archive engine whose builder is watched."""

    def __init__(self, knowledge: KnowledgeBase, **options: Any) -> None:
        super().__init__(knowledge, **options)
        self.watched = _Watching(**_values(self._builder))
        self._builder = self.watched


class _SceneReplayer(Replayer):
    """A replayer that compacts at given points too, counts every text once, and is watched."""

    engine: _WatchedEngine

    def __init__(
        self,
        log: ImportedLog,
        settings: ReplaySettings,
        knowledge: KnowledgeBase,
        points: Sequence[float],
    ) -> None:
        self._knowledge = knowledge
        self._waiting = [int(point * len(log.items)) for point in sorted(points)]
        self._by_points = bool(points)
        self._replies = iter(
            index
            for index, item in enumerate(log.items)
            if isinstance(item, Entry) and item.type == "assistant/message"
        )
        super().__init__(log, settings, knowledge)

    def _make_engine(
        self, settings: Settings, knowledge: KnowledgeBase | None, summarizer: Summarizer | None
    ) -> CompactionEngine:
        del knowledge
        self._meter = TokenMeter(CountedOnce(estimator(settings.estimator)), trust_usage=False)
        request = Request(
            settings=settings, observer=self._observe, summarizer=summarizer, meter=self._meter
        )
        self.engine = _WatchedEngine(
            self._knowledge,
            transcript=settings.transcript,
            index="later",
            **request.engine_options(),
        )
        return self.engine

    async def _relieve(self, session: Session) -> None:
        """Compact where it is time: before a reply, on pressure or behind a point."""
        if not self._by_points:
            await super()._relieve(session)
            return
        place = next(self._replies)
        if not self._waiting or place < self._waiting[0] or open_calls(session):
            return
        while self._waiting and self._waiting[0] <= place:
            self._waiting.pop(0)
        surface = session.surface
        if self._meter.measure(session).surface < self._policy.min_span_tokens:
            self._warnings.append(f"at seq {len(session)}: too little to compact yet")
            return
        own_turn = session.open_turn is None
        if own_turn:
            self._between_turns(session, "turn/start")
        before = len(session)
        await self.engine.compact_region(surface[0], surface[len(surface) - 1], self._agent)
        self._collect(session, before, "pressure")
        if own_turn:
            self._between_turns(session, "turn/end")


class Scene:
    """One compaction of a log, at the moment when its additions are built.

    Args:
        session: the whole replayed session.
        moment: what the builder was asked for.
        made: what came of it.
    """

    def __init__(self, session: Session, moment: _Moment, made: ReplayedCompaction) -> None:
        self._whole = session
        self._moment = moment
        self._stage: tuple[str, Session] | None = None
        self.shadowed_tokens = made.shadowed_tokens
        self.needed = self._needed(made)
        """What the agent went on to need; ``None`` where there is too little to say."""

    @property
    def summary(self) -> str:
        """The summarizer's text."""
        return self._moment.summary.text

    @property
    def meter(self) -> TokenMeter:
        """What prices this scene; it counts every text once."""
        return self._moment.builder.meter

    @property
    def records(self) -> tuple[Record, ...]:
        """What a checkpoint could show: the span's records, and older messages of the user."""
        kept = self._moment.kept
        return (*kept.older, *(item for item in kept.span if item is not None))

    def additions(self, config: TranscriptConfig) -> str:
        """What would be appended to the summary under ``config``."""
        moment = self._moment
        asked = replace(moment.input, session=self._session(config))
        return replace(moment.builder, config=config).build(asked, moment.summary, moment.kept)

    def _session(self, config: TranscriptConfig) -> Session:
        """The session as it was at this moment.

        The archive remembers by session what a message shows, so each way of showing messages has a
        session of its own; budgets and weights may share one.
        """
        shows = config.model_dump_json(exclude=set(BUDGETS))
        if self._stage is None or self._stage[0] != shows:
            self._stage = (shows, self._copy())
        return self._stage[1]

    def _copy(self) -> Session:
        events = self._whole.events[: self._moment.length]
        return Session.create(self._whole.id, events, header=self._whole.header, clock=lambda: None)

    def _needed(self, made: ReplayedCompaction) -> frozenset[str] | None:
        session = self._whole
        shadowed = set(made.shadowed_seqs)
        later = session.events[made.checkpoint_seq + 1 :]
        until = next(
            (place for place, event in enumerate(later) if isinstance(event, CompactionStart)),
            len(later),
        )
        before = self._copy()
        return needed(
            span=[session.event_at(seq) for seq in made.shadowed_seqs],
            kept=[session.event_at(seq) for seq in before.surface if seq not in shadowed],
            summary=self.summary,
            later=later[:until],
        )


BUDGETS = (
    "anchor_tokens",
    "anchor_weights",
    "max_addition_chars",
    "max_checkpoint_ratio",
    "max_index_chars",
    "max_transcript_chars",
    "transcript_tokens",
)
"""Fields of a configuration that change how much is shown, and no message by itself."""


def scenes(
    log: ImportedLog,
    settings: Settings,
    occasion: Occasion,
    knowledge: KnowledgeBase,
    progress: Callable[[int], None] | None = None,
) -> tuple[Replay, list[Scene]]:
    """Replay a log once, and hold each of its compactions.

    Args:
        log: what to replay.
        settings: the current ones, which say where pressure begins.
        occasion: where to compact.
        knowledge: an archive of its own; the records are filed there.
        progress: told how many of the log's items are done.

    Raises:
        LogFormatError: for a log that contradicts itself.
        CompactionError: when a compaction failed, or could not be filed.
    """
    how = occasion.settings(log, settings)
    replayer = _SceneReplayer(log, how, knowledge, occasion.points)
    replay = anyio.run(replayer.run, progress)
    moments = replayer.engine.watched.moments
    for made in replay.compactions:
        if made.compaction_id not in moments:
            told = replay.warnings[-1] if replay.warnings else "its span was not filed"
            raise CompactionError("summary", f"{log.path}: compaction without additions: {told}")
    return replay, [
        Scene(replay.session, moments[made.compaction_id], made) for made in replay.compactions
    ]
