"""The basic engine: policy, selection and the one transaction behind every entry.

A subclass gets one hook, :meth:`BasicCompactionEngine.summarize`, on every path.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

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
from ctxarchive.compaction.pruner import ToolResultPruner
from ctxarchive.compaction.recovery import MAX_RECOVERIES, SummaryErrorHook, recovered
from ctxarchive.compaction.span import (
    NoSpan,
    Span,
    retained_from,
    select_all_but_newest,
    select_older,
    select_region,
)
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.compaction.target import CapacitySource, Targets
from ctxarchive.compaction.transaction import (
    Transaction,
    error_text,
    live_bracket,
    require_unlocked,
)
from ctxarchive.errors import (
    CompactionError,
    CtxArchiveError,
    ManualCompactionError,
    SessionError,
    SummaryError,
)
from ctxarchive.metering.meter import Measurement, TokenMeter
from ctxarchive.session.log import Session

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Run:
    """A compaction under way."""

    transaction: Transaction
    refused: Exception | None = None
    """The failure that every hook has declined."""
    recoveries: int = 0
    """How often a hook changed the input."""


class BasicCompactionEngine(CompactionEngine):
    """Compacts with one summarizer and a deterministic one to fall back to.

    Args:
        summarizer: who writes summaries; the deterministic one by default.
        policy: when and how far.
        meter: prices everything; hosts that measure themselves pass their own.
        observer: told of each stage; what it raises changes nothing.
        pruner: shortens oversized tool results before anything is summarized; none by default.
        summary_error_hooks: asked, in order, after a failed summary.
        capacity: asked once a target whose capacity neither agent nor log says.
    """

    def __init__(
        self,
        summarizer: Summarizer | None = None,
        *,
        policy: CompactionPolicy | None = None,
        meter: TokenMeter | None = None,
        observer: Observer | None = None,
        pruner: ToolResultPruner | None = None,
        summary_error_hooks: Sequence[SummaryErrorHook] = (),
        capacity: CapacitySource | None = None,
    ) -> None:
        self.meter = meter or TokenMeter()
        self.policy = policy or CompactionPolicy()
        self._fallback = ExtractiveSummarizer(self.meter)
        self._summarizer: Summarizer = summarizer or self._fallback
        self._observer = observer
        self._warned_of_observer = False
        self._pruner = pruner
        self._hooks = tuple(summary_error_hooks)
        self._targets = Targets(self.policy, capacity)
        self._runs: dict[tuple[int, str], _Run] = {}

    async def compact_if_needed(
        self, agent: CompactionAgent, trigger: AutomaticTrigger
    ) -> CompactionResult | None:
        """See :meth:`CompactionEngine.compact_if_needed`."""
        await checkpoint_if_cancelled()
        if not self.policy.auto:
            return None
        budget = await self._targets.budget(agent)
        if trigger == "context-overflow":
            return await self._relieve_overflow(agent, budget)
        if budget is None:
            return None
        return await self._relieve_pressure(agent, budget)

    async def compact_now(
        self, agent: ManualCompactionAgent, source_command_id: str | None = None
    ) -> CompactionResult | None:
        """See :meth:`CompactionEngine.compact_now`."""
        await checkpoint_if_cancelled()

        async def maintenance() -> CompactionResult | None:
            try:
                return await self._manual(agent, source_command_id)
            except ManualCompactionError:
                raise
            except CtxArchiveError as error:
                raise _classified(error) from (error.__cause__ or error)

        return await agent.run_maintenance(maintenance)

    async def compact_region(
        self, start: int, end: int, agent: CompactionAgent
    ) -> CompactionResult:
        """See :meth:`CompactionEngine.compact_region`."""
        await checkpoint_if_cancelled()
        session = agent.session
        require_unlocked(session)
        owner = _open_turn(session)
        try:
            span = select_region(session, self.meter.measure(session), start, end)
        except SessionError as error:
            raise CompactionError("range", str(error)) from error
        return await self._compact(
            agent, span, trigger="region", owner=owner, budget=self._targets.known(agent)
        )

    async def summarize(self, input: SummaryInput) -> Summary:
        """The summary of a span: the one step a subclass may change.

        Raises:
            SummaryError: when there is none and the policy forbids the fallback.
        """
        started = time.perf_counter()
        summary = await self._summarize_or_fall_back(input)
        self.report(
            input.compaction_id,
            "summarized",
            started,
            numbers={
                "summary_chars": len(summary.text),
                "fallback": int(
                    summary.summarizer == "extractive" and self._summarizer is not self._fallback
                ),
            },
        )
        return summary

    def report(
        self,
        compaction_id: str,
        stage: Stage,
        started: float,
        *,
        numbers: Mapping[str, int] | None = None,
        error: BaseException | None = None,
        final: bool = False,
    ) -> None:
        """Tell the observer of a stage that began at ``started`` (``time.perf_counter``)."""
        if self._observer is None:
            return
        told = StageReport(
            compaction_id=compaction_id,
            stage=stage,
            seconds=time.perf_counter() - started,
            numbers=numbers or {},
            error=None if error is None else error_text(error),
            final=final,
        )
        try:
            self._observer(told)
        except Exception as failed:  # noqa: BLE001 - who watches must not change the outcome
            if not self._warned_of_observer:
                _LOG.warning(
                    "the observer of compactions failed at %r, which changes nothing: %s: %s",
                    stage,
                    type(failed).__name__,
                    error_text(failed),
                )
            self._warned_of_observer = True

    async def _relieve_pressure(
        self, agent: CompactionAgent, budget: Budget
    ) -> CompactionResult | None:
        """Compact until the request is under the threshold, within the configured retries."""
        session = agent.session
        measurement = self.meter.measure(session)
        if measurement.total < budget.threshold:
            return None
        if not self._targets.possible(agent, budget, measurement):
            return None
        require_unlocked(session)
        if self._pruner is not None:
            self._pruner.prune(
                session, self.meter, before=retained_from(measurement, budget.retain)
            )
        result: CompactionResult | None = None
        for attempt in range(1 + self.policy.compaction_retries):
            measurement = self.meter.measure(session)
            if measurement.total < budget.threshold:
                return result
            span = self._older(session, measurement, budget if attempt == 0 else None)
            if isinstance(span, NoSpan):
                break
            try:
                result = await self._compact(
                    agent, span, trigger="pressure", owner=_open_turn(session), budget=budget
                )
            except CompactionError as error:
                if error.code != "growth" or attempt == self.policy.compaction_retries:
                    raise
        left = self.meter.measure(session).total
        if result is not None and left >= budget.threshold:
            raise CompactionError(
                "stuck", f"compacted, and still {left} tokens: the threshold is {budget.threshold}"
            )
        return result

    async def _relieve_overflow(
        self, agent: CompactionAgent, budget: Budget | None
    ) -> CompactionResult | None:
        """Free what can be freed: the provider said that the request is too long."""
        session = agent.session
        require_unlocked(session)
        if self._pruner is not None:
            pruned = self._pruner.prune(session, self.meter)
            enough = budget is not None and self.meter.measure(session).total < budget.threshold
            if pruned.seqs and enough:
                return None
        span = self._older(session, self.meter.measure(session), None, min_reclaim=0)
        if isinstance(span, NoSpan):
            return None
        return await self._compact(
            agent, span, trigger="context-overflow", owner=_open_turn(session), budget=budget
        )

    async def _manual(
        self, agent: ManualCompactionAgent, command_id: str | None
    ) -> CompactionResult | None:
        session = agent.session
        require_unlocked(session)
        if session.open_turn is not None:
            raise CompactionError("busy", f"session already has an open turn: {session.open_turn}")
        span = self._older(session, self.meter.measure(session), None, min_reclaim=0)
        if isinstance(span, NoSpan):
            return None
        try:
            result = await self._compact(
                agent,
                span,
                trigger="manual",
                owner=None,
                command_id=command_id,
                budget=self._targets.known(agent),
            )
        except BaseException as error:
            await self._flush_failed(session, error)
            if not isinstance(error, get_cancelled_exc_class()):
                await checkpoint_if_cancelled()  # a caller's own cancellation wins
            raise
        await self._flush_committed(session)
        return result

    async def _compact(
        self,
        agent: CompactionAgent,
        span: Span,
        *,
        trigger: Trigger,
        owner: int | None,
        budget: Budget | None,
        command_id: str | None = None,
    ) -> CompactionResult:
        started = time.perf_counter()
        session = agent.session
        before = self.meter.measure(session).total
        transaction = Transaction.open(
            session, self.meter, span, trigger=trigger, owner=owner, command_id=command_id
        )
        name = transaction.compaction_id
        # Two sessions of one id are two sessions, whatever they call their compactions.
        key = (id(session), name)
        run = self._runs[key] = _Run(transaction=transaction)
        try:
            numbers = {"total_tokens": before, "shadowed_tokens": span.tokens}
            numbers["shadowed_entries"] = len(span.seqs)
            if budget is not None:
                numbers["threshold_tokens"] = budget.threshold
            self.report(name, "before", started, numbers=numbers)
            summary = await self._summary_for(run, budget)
            await checkpoint_if_cancelled()
            run.transaction.revalidate()
            committed = run.transaction.commit(summary)
        except BaseException as error:
            try:
                transaction.close(error)
            finally:
                self.report(name, "failed", started, error=error, final=True)
            raise
        finally:
            del self._runs[key]
        try:
            end = transaction.close()
        except CompactionError as error:
            self.report(name, "failed", started, error=error, final=True)
            raise
        result = run.transaction.result(committed, end)
        numbers = {
            "shadowed_tokens": result.shadowed_token_count,
            "checkpoint_tokens": result.checkpoint_token_count,
            "total_tokens": self.meter.measure(session).total,
        }
        self.report(name, "committed", started, numbers=numbers, final=True)
        return result

    async def _summary_for(self, run: _Run, budget: Budget | None) -> Summary:
        """The summary of the run's span, asked for again after each change of its input."""
        while True:
            try:
                return await self.summarize(self._input(run.transaction, budget))
            except SummaryError as error:
                if error.code == "retry":
                    continue
                if error is run.refused or not await self._recover(run, error):
                    raise
            except CompactionError:
                raise
            except Exception as error:
                if not await self._recover(run, error):
                    raise SummaryError("unavailable", f"no summary: {error_text(error)}") from error

    def _input(self, transaction: Transaction, budget: Budget | None) -> SummaryInput:
        session, span = transaction.session, transaction.span
        room = None
        if budget is not None:
            rest = self.meter.measure(session).total - span.tokens
            room = max(0, budget.threshold - 1 - rest)
        return SummaryInput(
            session=session,
            compaction_id=transaction.compaction_id,
            trigger=transaction.trigger,
            shadowed_seqs=span.seqs,
            shadowed_tokens=span.tokens,
            room_tokens=room,
            max_tokens=self.policy.max_tokens if budget is None else budget.max_tokens,
        )

    async def _summarize_or_fall_back(self, input: SummaryInput) -> Summary:
        summary: Summary | None = None
        failure: SummaryError | None = None
        try:
            with anyio.move_on_after(self.policy.summary_timeout_s) as deadline:
                summary = await self._summarizer.summarize(input)
        except SummaryError as error:
            failure = error
        except CompactionError:
            raise
        except Exception as error:  # noqa: BLE001 - another's summarizer may raise anything
            failure = SummaryError("unavailable", f"no summary: {error_text(error)}")
        if failure is None and deadline.cancelled_caught:
            limit = self.policy.summary_timeout_s
            failure = SummaryError("timeout", f"no summary within {limit:g} s")
        if summary is not None and not summary.text.strip():
            summary, failure = None, SummaryError("empty", "the summary holds no text")
        if summary is not None:
            return summary
        run = self._runs.get((id(input.session), input.compaction_id))
        if failure is not None and run is not None:
            if await self._recover(run, failure):
                raise SummaryError("retry", "a hook changed the input") from failure
            run.refused = failure
        refused = self.policy.on_summary_failure == "error" or self._summarizer is self._fallback
        if failure is not None and refused:
            raise failure
        return await self._fallback.summarize(input)

    async def _recover(self, run: _Run, error: Exception) -> bool:
        """Whether a hook changed the failed summary's input; the run's span is then the new one."""
        if not self._hooks or run.recoveries >= MAX_RECOVERIES:
            return False
        await checkpoint_if_cancelled()
        changed = recovered(self._hooks, run.transaction, error)
        if changed is None:
            return False
        run.transaction = changed
        run.recoveries += 1
        return True

    def _older(
        self,
        session: Session,
        measurement: Measurement,
        budget: Budget | None,
        *,
        min_reclaim: int | None = None,
    ) -> Span | NoSpan:
        """The span before the retained tail; all but the newest unit where there is no budget."""
        least = self.policy.min_span_tokens
        reclaim = self.policy.min_reclaim_tokens if min_reclaim is None else min_reclaim
        if budget is None:
            return select_all_but_newest(
                session, measurement, min_tokens=least, min_reclaim=reclaim
            )
        return select_older(
            session, measurement, retain=budget.retain, min_tokens=least, min_reclaim=reclaim
        )

    @staticmethod
    async def _flush_failed(session: Session, error: BaseException) -> None:
        # A failed attempt is on the log; an unmatched start stays unflushed, as the busy signal.
        if live_bracket(session) is not None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await session.flush()
            except Exception as failed:  # noqa: BLE001 - the first failure is the one to tell
                error.add_note(f"and the failed attempt is not on disk: {error_text(failed)}")

    @staticmethod
    async def _flush_committed(session: Session) -> None:
        failure: Exception | None = None
        with anyio.CancelScope(shield=True):
            try:
                await session.flush()
            except Exception as error:  # noqa: BLE001 - raised below, a sink is the host's
                failure = error
        await checkpoint_if_cancelled()
        if failure is not None:
            raise ManualCompactionError(
                "persistence", f"compacted, but not on disk: {error_text(failure)}"
            ) from failure


def _open_turn(session: Session) -> int:
    turn = session.open_turn
    if turn is None:
        raise CompactionError("turn", "no turn is open to own the compaction")
    return turn


def _classified(error: CtxArchiveError) -> ManualCompactionError:
    """A failure of a manual compaction, as the person who asked for it is told."""
    code: ManualCompactionError.Code = "commit"
    if isinstance(error, SummaryError):
        code = "summary"
    elif isinstance(error, CompactionError):
        if error.code == "busy":
            code = "busy"
        elif error.code in {"changed", "range"}:
            code = "changed"
        elif error.code in {"growth", "summary"}:
            code = "summary"
    return ManualCompactionError(code, str(error))
