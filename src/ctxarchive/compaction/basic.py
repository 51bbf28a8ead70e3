"""The basic engine: policy, selection and the one transaction behind every entry.

A subclass gets one hook, :meth:`BasicCompactionEngine.summarize`, on every path.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

import anyio

from ctxarchive.compaction.engine import (
    AutomaticTrigger,
    CompactionAgent,
    CompactionEngine,
    CompactionResult,
    ManualCompactionAgent,
    Observer,
    Stage,
    StageReport,
    Trigger,
)
from ctxarchive.compaction.extractive import ExtractiveSummarizer
from ctxarchive.compaction.policy import Budget, CompactionPolicy
from ctxarchive.compaction.span import (
    NoSpan,
    Span,
    select_all_but_newest,
    select_older,
    select_region,
)
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.compaction.transaction import Transaction, live_bracket, require_unlocked
from ctxarchive.errors import (
    CompactionError,
    ManualCompactionError,
    SessionError,
    SummaryError,
)
from ctxarchive.metering.meter import Measurement, TokenMeter
from ctxarchive.session.log import Session


class BasicCompactionEngine(CompactionEngine):
    """Compacts with one summarizer and a deterministic one to fall back to.

    Args:
        summarizer: who writes summaries; the deterministic one by default.
        policy: when and how far.
        meter: prices everything; hosts that measure themselves pass their own.
        observer: told of each stage.
    """

    def __init__(
        self,
        summarizer: Summarizer | None = None,
        *,
        policy: CompactionPolicy | None = None,
        meter: TokenMeter | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.meter = meter or TokenMeter()
        self.policy = policy or CompactionPolicy()
        self._fallback = ExtractiveSummarizer(self.meter)
        self._summarizer: Summarizer = summarizer or self._fallback
        self._observer = observer
        self._impossible: set[tuple[str, str, int]] = set()

    async def compact_if_needed(
        self, agent: CompactionAgent, trigger: AutomaticTrigger
    ) -> CompactionResult | None:
        """See :meth:`CompactionEngine.compact_if_needed`."""
        budget = self._budget(agent) if self.policy.auto else None
        if budget is None:
            return None
        result: CompactionResult | None = None
        for attempt in range(1 + self.policy.compaction_retries):
            measurement = self.meter.measure(agent.session)
            over = measurement.total >= budget.threshold
            if trigger == "pressure" and not over:
                return result
            if result is not None and not over:
                return result
            self._require_possible(agent, budget, measurement)
            keep_tail = trigger == "pressure" and attempt == 0
            span = self._older(agent.session, measurement, budget if keep_tail else None)
            if isinstance(span, NoSpan):
                return result
            owner = self._open_turn(agent.session)
            result = await self._compact(agent, span, trigger=trigger, owner=owner, budget=budget)
        return result

    async def compact_now(
        self, agent: ManualCompactionAgent, source_command_id: str | None = None
    ) -> CompactionResult | None:
        """See :meth:`CompactionEngine.compact_now`."""
        await anyio.lowlevel.checkpoint_if_cancelled()

        async def maintenance() -> CompactionResult | None:
            session = agent.session
            with _manual_codes(session):
                require_unlocked(session)
                if session.open_turn is not None:
                    raise CompactionError(
                        "busy", f"session already has an open turn: {session.open_turn}"
                    )
                measurement = self.meter.measure(session)
                span = self._older(session, measurement, None)
                if isinstance(span, NoSpan):
                    return None
                try:
                    result = await self._compact(
                        agent, span, trigger="manual", owner=None, command_id=source_command_id
                    )
                except BaseException:
                    await self._flush_closed(session)
                    raise
                await self._flush_committed(session)
                return result

        return await agent.run_maintenance(maintenance)

    async def compact_region(
        self, start: int, end: int, agent: CompactionAgent
    ) -> CompactionResult:
        """See :meth:`CompactionEngine.compact_region`."""
        session = agent.session
        require_unlocked(session)
        owner = self._open_turn(session)
        try:
            span = select_region(session, self.meter.measure(session), start, end)
        except SessionError as error:
            raise CompactionError("range", str(error)) from error
        return await self._compact(
            agent, span, trigger="region", owner=owner, budget=self._budget(agent)
        )

    async def summarize(self, input: SummaryInput) -> Summary:
        """The summary of a span: the one step a subclass may change.

        Raises:
            SummaryError: when there is none and the policy forbids the fallback.
        """
        started = time.perf_counter()
        summary = await self._summarize_or_fall_back(input)
        self.report(input.compaction_id, "summarized", started)
        return summary

    def report(
        self,
        compaction_id: str,
        stage: Stage,
        started: float,
        *,
        numbers: Mapping[str, int] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Tell the observer of a stage that began at ``started`` (``time.perf_counter``)."""
        if self._observer is not None:
            self._observer(
                StageReport(
                    compaction_id=compaction_id,
                    stage=stage,
                    seconds=time.perf_counter() - started,
                    numbers=numbers or {},
                    error=None if error is None else str(error) or type(error).__name__,
                )
            )

    async def _summarize_or_fall_back(self, input: SummaryInput) -> Summary:
        summary: Summary | None = None
        failure: SummaryError | None = None
        try:
            with anyio.fail_after(self.policy.summary_timeout_s):
                summary = await self._summarizer.summarize(input)
        except TimeoutError:
            failure = SummaryError(
                "timeout", f"no summary within {self.policy.summary_timeout_s:g} s"
            )
        except SummaryError as error:
            failure = error
        if summary is not None:
            return summary
        refused = self.policy.on_summary_failure == "error" or self._summarizer is self._fallback
        if failure is not None and refused:
            raise failure
        return await self._fallback.summarize(input)

    async def _compact(
        self,
        agent: CompactionAgent,
        span: Span,
        *,
        trigger: Trigger,
        owner: int | None,
        command_id: str | None = None,
        budget: Budget | None = None,
    ) -> CompactionResult:
        session = agent.session
        budget = budget or self._budget(agent)
        room = None
        if budget is not None:
            rest = self.meter.measure(session).total - span.tokens
            room = max(0, budget.threshold - 1 - rest)
        started = time.perf_counter()
        transaction = Transaction.open(
            session, self.meter, span, trigger=trigger, owner=owner, command_id=command_id
        )
        try:
            summary = await self.summarize(
                SummaryInput(
                    session=session,
                    compaction_id=transaction.compaction_id,
                    trigger=trigger,
                    shadowed_seqs=span.seqs,
                    shadowed_tokens=span.tokens,
                    room_tokens=room,
                    max_tokens=self.policy.max_tokens if budget is None else budget.max_tokens,
                )
            )
            transaction.revalidate()
            result = transaction.commit(summary)
            numbers = {
                "shadowed_tokens": span.tokens,
                "checkpoint_tokens": result.checkpoint_token_count,
            }
            self.report(transaction.compaction_id, "committed", started, numbers=numbers)
        except BaseException as error:
            self.report(transaction.compaction_id, "failed", started, error=error)
            try:
                transaction.abort(error)
            except Exception as closing:
                raise CompactionError(
                    "commit", f"the bracket would not close: {closing}"
                ) from closing
            raise
        return result

    def _older(
        self, session: Session, measurement: Measurement, budget: Budget | None
    ) -> Span | NoSpan:
        least = self.policy.min_span_tokens
        if budget is None:
            return select_all_but_newest(session, measurement, min_tokens=least)
        return select_older(session, measurement, retain=budget.retain, min_tokens=least)

    def _budget(self, agent: CompactionAgent) -> Budget | None:
        window = agent.options.context_window or agent.session.context_window
        if window is None:
            return None
        return self.policy.resolve(agent.options.provider, agent.options.model, window)

    def _require_possible(
        self, agent: CompactionAgent, budget: Budget, measurement: Measurement
    ) -> None:
        """Refuse, once a target, a threshold that the fixed envelope alone exceeds."""
        target = (agent.options.provider, agent.options.model, budget.threshold)
        if measurement.header >= budget.threshold and target not in self._impossible:
            self._impossible.add(target)
            raise CompactionError(
                "capacity",
                f"system prompt and tools take {measurement.header} tokens, the threshold is "
                f"{budget.threshold}: no compaction can help",
            )

    @staticmethod
    def _open_turn(session: Session) -> int:
        turn = session.open_turn
        if turn is None:
            raise CompactionError("turn", "no turn is open to own the compaction")
        return turn

    @staticmethod
    async def _flush_closed(session: Session) -> None:
        # A failed attempt is on the log; an unmatched start stays unflushed, as the busy signal.
        if live_bracket(session) is None:
            with contextlib.suppress(SessionError), anyio.CancelScope(shield=True):
                await session.flush()

    @staticmethod
    async def _flush_committed(session: Session) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await session.flush()
            except SessionError as error:
                raise ManualCompactionError(
                    "persistence", f"compacted, but not on disk: {error}"
                ) from error
        await anyio.lowlevel.checkpoint_if_cancelled()


@contextlib.contextmanager
def _manual_codes(session: Session) -> Iterator[None]:
    """Classify what a manual compaction may expect to meet."""
    try:
        yield
    except SummaryError as error:
        raise ManualCompactionError("summary", str(error)) from error
    except CompactionError as error:
        code: ManualCompactionError.Code = "commit"
        if error.code == "busy":
            code = "busy"
        elif error.code in {"changed", "range"}:
            code = "changed"
        elif error.code in {"growth", "summary"}:
            code = "summary"
        raise ManualCompactionError(code, str(error)) from error
    except SessionError as error:
        raise ManualCompactionError("commit", f"session {session.id!r}: {error}") from error
