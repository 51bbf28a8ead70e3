"""The archive engine: files a span, asks for the summary, and appends what says where the rest is.

Only the summary step differs from the basic engine. Any failure here leaves the plain summary and
one ``archive/failed``: a checkpoint promises nothing that is not on disk.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ctxarchive.archive import marking
from ctxarchive.archive.additions import AdditionsBuilder, Kept, held_with
from ctxarchive.archive.history import History, history_of
from ctxarchive.archive.index import DEFAULT_TOOL_NAME, Holding
from ctxarchive.archive.recording import record
from ctxarchive.archive.redaction import Redactor
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import Observer
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import ToolResultPruner
from ctxarchive.compaction.recovery import SummaryErrorHook
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.compaction.target import CapacitySource
from ctxarchive.knowledge.records import LAYERS, Layer, Record
from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.events import ArchiveFailedData, ArchiveFiledData
from ctxarchive.session.log import Session


class ArchiveCompactionEngine(BasicCompactionEngine):
    """A basic engine whose checkpoints point at everything they leave out.

    Args:
        knowledge: where spans are filed; opened and closed by the caller.
        transcript: how much a checkpoint shows.
        tool_name: what the host calls the search tool.
        redactor: masks keys and tokens in all that is filed or added; ``None`` to mask nothing. The
            summary is the summarizer's own; it is masked where it is filed.
        index: ``behind`` indexes new records while the summary is written; ``later`` leaves it to
            the caller (a search finds unindexed records too, only more slowly).
        summarizer: see the basic engine.
        policy: see the basic engine.
        meter: see the basic engine.
        observer: see the basic engine.
        pruner: see the basic engine.
        summary_error_hooks: see the basic engine.
        capacity: see the basic engine.
    """

    def __init__(
        self,
        knowledge: KnowledgeBase,
        *,
        transcript: TranscriptConfig | None = None,
        tool_name: str = DEFAULT_TOOL_NAME,
        redactor: Redactor | None = None,
        index: Literal["behind", "later"] = "behind",
        summarizer: Summarizer | None = None,
        policy: CompactionPolicy | None = None,
        meter: TokenMeter | None = None,
        observer: Observer | None = None,
        pruner: ToolResultPruner | None = None,
        summary_error_hooks: Sequence[SummaryErrorHook] = (),
        capacity: CapacitySource | None = None,
    ) -> None:
        super().__init__(
            summarizer,
            policy=policy,
            meter=meter,
            observer=observer,
            pruner=pruner,
            summary_error_hooks=summary_error_hooks,
            capacity=capacity,
        )
        self.knowledge = knowledge
        self.transcript = transcript or TranscriptConfig()
        self._builder = AdditionsBuilder(
            config=self.transcript, meter=self.meter, tool_name=tool_name, redactor=redactor
        )
        self._redactor = redactor
        self._index = index
        self._filed: WeakKeyDictionary[Session, int] = WeakKeyDictionary()
        """How many of a session's content seqs are known to be on disk."""
        self._held: WeakKeyDictionary[Session, dict[Layer, Holding]] = WeakKeyDictionary()
        """What each layer holds of a session, up to there."""

    async def summarize(self, input: SummaryInput) -> Summary:
        """File the span, summarize it, and append the additions.

        Raises:
            SummaryError: as the basic engine.
        """
        filed = await self._try_file(input)
        if filed is None:
            return await super().summarize(input)
        asked = replace(input, requests_follow=True)
        if self._index == "later":
            summary = await super().summarize(asked)
        else:
            summary = await self._summarize_and_index(asked)
        started = time.perf_counter()
        try:
            additions = self._additions(input, summary, filed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the plain summary is legal
            self._failed(input, "build", error)
            return summary
        self.report(input.compaction_id, "built", started, numbers={"chars": len(additions)})
        return Summary(
            text=summary.text,
            additions=additions,
            summarizer=summary.summarizer,
            provider=summary.provider,
            model=summary.model,
            max_tokens=summary.max_tokens,
            usage=summary.usage,
            raw_output=summary.raw_output,
            llm_stream_call=summary.llm_stream_call,
        )

    async def pin(self, session: Session, seq: int) -> str:
        """Keep a message of the user in view from the next compaction on, before everything else.

        It is shown whole as long as it fits, and clipped with its pointer where it does not.

        Args:
            session: the session.
            seq: the message's.

        Returns:
            What was done, in one sentence.

        Raises:
            KnowledgeError: ``missing`` for a seq that is no message, ``mark`` for one that the user
                did not say, and whatever the archive cannot do.
        """
        return await self._mark(
            session, (seq,), lambda found: marking.pin(self.knowledge, session.id, seq, found)
        )

    async def unpin(self, session: Session, seq: int) -> str:
        """Take the pin off a message.

        Args:
            session: the session.
            seq: the message's.

        Returns:
            What was done, in one sentence.

        Raises:
            KnowledgeError: as :meth:`pin`.
        """
        return await self._mark(
            session, (seq,), lambda found: marking.unpin(self.knowledge, session.id, seq, found)
        )

    async def supersede(self, session: Session, seq: int, by: int | None = None) -> str:
        """Take a message of the user out of view from the next compaction on.

        It stays in the archive, and search says that it was superseded. Pinning it brings it back.

        Args:
            session: the session.
            seq: the message's.
            by: seq of the later message of the user that took its place, if one did.

        Returns:
            What was done, in one sentence.

        Raises:
            KnowledgeError: as :meth:`pin`; ``mark`` also for ``by`` that is not later.
        """
        seqs = (seq,) if by is None else (seq, by)
        return await self._mark(
            session,
            seqs,
            lambda found: marking.supersede(self.knowledge, session.id, seq, by, found),
        )

    async def _mark(
        self, session: Session, seqs: Sequence[int], act: Callable[[marking.LookUp], str]
    ) -> str:
        history = history_of(session, self._redactor)
        found = {
            seq: _record(session, history, seq) if 0 <= seq < len(session) else None for seq in seqs
        }
        self._register(session)
        return await anyio.to_thread.run_sync(act, found)

    def _register(self, session: Session) -> None:
        header = session.header
        self.knowledge.register(
            session.id,
            title=header.title,
            parent=header.parent,
            inherited_seq=header.inherited_seq,
        )

    async def _try_file(self, input: SummaryInput) -> dict[int, Record] | None:
        started = time.perf_counter()
        try:
            records, counts = await self._file(input)
        except Exception as error:  # noqa: BLE001 - whatever it is, no promise may be made
            self._failed(input, "file", error)
            return None
        self.report(input.compaction_id, "filed", started, numbers=counts)
        return records

    async def _file(self, input: SummaryInput) -> tuple[dict[int, Record], dict[str, int]]:
        """Put every event up to the span's end on disk that is not there yet."""
        session = input.session
        await session.flush()
        history = history_of(session, self._redactor)
        through = max(input.shadowed_seqs)
        start = self._filed.get(session, 0)
        end = start
        records: dict[int, Record] = {}
        while end < len(history.content) and history.content[end] <= through:
            made = _record(session, history, history.content[end])
            if made is not None:
                records[made.seq] = made
            end += 1
        if start == 0:
            self._register(session)
        with anyio.CancelScope(shield=True):
            put = await anyio.to_thread.run_sync(self.knowledge.put, tuple(records.values()))
        self._filed[session] = end
        # Counted here, not asked of the archive: it may hold later events of an earlier run.
        self._held[session] = held_with(self._held.get(session, {}), list(records.values()))
        counts = {layer: put.added.get(layer, 0) for layer in LAYERS} | {
            "already": put.already,
            "purged": put.purged,
            "redacted": len(records.keys() & history.redacted.keys()),
        }
        if put.already or put.purged:
            # Filed by an earlier process, perhaps by other rules: the archive says where they are.
            records = {}
        session.append(
            "archive/filed",
            ArchiveFiledData(
                compaction_id=input.compaction_id,
                through_seq=through,
                constraint=counts["constraint"],
                finding=counts["finding"],
                narrative=counts["narrative"],
                already=counts["already"],
                purged=counts["purged"],
                redacted=counts["redacted"],
            ),
        )
        return records, counts

    async def _summarize_and_index(self, input: SummaryInput) -> Summary:
        """The summary, with the index brought up to date in the meantime."""
        outcome: list[Summary | Exception] = []

        async def summarize() -> None:
            try:
                outcome.append(await super(ArchiveCompactionEngine, self).summarize(input))
            except Exception as error:  # noqa: BLE001 - re-raised below, outside the group
                outcome.append(error)

        async def index() -> None:
            started = time.perf_counter()
            try:
                await anyio.to_thread.run_sync(self.knowledge.index_pending)
            except Exception as error:  # noqa: BLE001 - records are safe; search scans meanwhile
                self.report(input.compaction_id, "failed", started, error=error)

        async with anyio.create_task_group() as group:
            group.start_soon(index)
            group.start_soon(summarize)
        result = outcome[0]
        if isinstance(result, Exception):
            raise result
        return result

    def _additions(
        self,
        input: SummaryInput,
        summary: Summary,
        filed: dict[int, Record],
    ) -> str:
        session = input.session
        history = history_of(session, self._redactor)
        purged = self.knowledge.purged(session.id).keys()
        originals = [history.original(seq) for seq in input.shadowed_seqs]
        span = [
            None if seq in purged else self._held_record(session, filed, seq) for seq in originals
        ]
        covered = {item.seq for item in span if item is not None} | purged
        older = _older_messages(session, history, covered, max(input.shadowed_seqs))
        kept = Kept(
            span=span,
            older=older,
            layers=self._held[session],
            marks=self.knowledge.marks(session.id),
        )
        return self._builder.build(input, summary, kept)

    def _held_record(self, session: Session, filed: dict[int, Record], seq: int) -> Record | None:
        """What is archived of an event, masked also where it was filed before there was a redactor."""
        if seq in filed:
            return filed[seq]
        found = self.knowledge.get(session.id, seq)
        return found if found is None or self._redactor is None else self._redactor.record(found)

    def _failed(
        self,
        input: SummaryInput,
        stage: Literal["file", "build"],
        error: Exception,
    ) -> None:
        input.session.append(
            "archive/failed",
            ArchiveFailedData(
                compaction_id=input.compaction_id,
                stage=stage,
                error=str(error) or type(error).__name__,
            ),
        )
        self.report(input.compaction_id, "failed", time.perf_counter(), error=error)


def _record(session: Session, history: History, seq: int) -> Record | None:
    call = history.calls.get(seq)
    return record(
        session.id,
        history.event(session, seq),
        name=None if call is None else call.name,
        head="" if call is None else call.line,
    )


def _older_messages(
    session: Session, history: History, span: set[int], through: int
) -> list[Record]:
    """What the user said that neither stands in view nor in the span; all of it is filed."""
    found: list[Record] = []
    for seq in history.constraints[: bisect_right(history.constraints, through)]:
        if seq in span or history.newest(seq) in session.surface:
            continue
        # Made once: the standing messages of a long session are the same every time.
        if seq not in history.said:
            history.said[seq] = _record(session, history, seq)
        item = history.said[seq]
        if item is not None and (item.text or item.images):
            found.append(item)
    return found


def records_through(session: Session, seqs: Sequence[int]) -> list[Record]:
    """The records of some events, in order; events that have none are left out."""
    history = history_of(session)
    made = (_record(session, history, seq) for seq in seqs)
    return [item for item in made if item is not None]
