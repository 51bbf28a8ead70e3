"""Manual compaction as a transaction: what is written, and what each failure is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import anyio
import pytest

from ctxarchive.compaction.engine import CompactionResult
from ctxarchive.compaction.pruner import replace_priced
from ctxarchive.errors import CompactionError, ManualCompactionError
from ctxarchive.metering.meter import Measurement, TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import (
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    UserMessage,
)
from ctxarchive.session.log import Session
from ctxarchive.session.messages import CheckpointSource, ReasoningBlock, text_block
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import PROMPT, IdleAgent, MemorySink, RefusingSession, user

pytestmark = pytest.mark.anyio

Make = Callable[..., Session]


def brackets(session: Session) -> list[str]:
    return [
        event.type.removeprefix("compaction/")
        for event in session.events
        if event.type in {"compaction/start", "compaction/summary", "compaction/end"}
    ]


def checkpoints(session: Session) -> list[UserMessage]:
    return [e for e in session.events if isinstance(e, UserMessage) and e.is_checkpoint]


def last_end(session: Session) -> CompactionEnd:
    end = session.last("compaction/end")
    assert isinstance(end, CompactionEnd)
    return end


def attached(session: Session) -> MemorySink:
    sink = MemorySink()
    session.attach(sink)
    return sink


async def rejected(operation: Awaitable[object]) -> ManualCompactionError:
    with pytest.raises(ManualCompactionError) as caught:
        await operation
    return caught.value


def rival(session: Session, position: int = 0) -> None:
    """Someone else replaces one message, as the protocol demands."""
    seq = session.surface[position]
    replace_priced(
        session,
        TokenMeter(CharacterEstimator()),
        (seq, seq),
        "user/message",
        {
            "role": "user",
            "content": [{"type": "text", "text": "competing replacement"}],
            "source": {"kind": "rival"},
        },
    )


async def test_history_that_cannot_be_compacted_gives_none_and_writes_no_bracket(
    watched: Callable[[Session], Session],
) -> None:
    engine, agent = GatedCompactionEngine(), IdleAgent(watched(Session.create("empty")))
    assert await engine.compact_now(agent) is None
    assert agent.released == 1
    assert engine.calls == []
    assert list(agent.session.events) == []


async def test_a_standalone_bracket_takes_no_turn_number_and_is_checkpointed_durably(
    conversation: Make,
) -> None:
    engine = GatedCompactionEngine()
    session = conversation(2, last_turn=7)
    sink = attached(session)
    result = await engine.compact_now(IdleAgent(session), "manual-compact-command")
    assert result is not None
    assert result.source_command_id == "manual-compact-command"
    assert sink.flushes == 1
    assert sink.durable == len(sink.taken) == 4
    turn = session.last("turn/start")
    assert turn is not None
    assert turn.data.turn == 7
    start, summary = session.event_at(result.start_seq), session.event_at(result.summary_seq)
    correlated = {
        "compactionId": result.compaction_id,
        "sourceCommandId": "manual-compact-command",
    }
    assert isinstance(start, CompactionStart)
    assert start.data.wire() == {**correlated, "turn": None}
    assert isinstance(summary, CompactionSummary)
    assert summary.data.source_command_id == "manual-compact-command"
    source = checkpoints(session)[-1].data.source
    assert isinstance(source, CheckpointSource)
    assert source.wire() == {"kind": "compact-checkpoint", **correlated}
    assert last_end(session).data.wire() == {**correlated, "turn": None}
    assert last_end(session).seq == result.end_seq


async def test_a_live_unmatched_bracket_is_busy_without_summarizing(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    session.append("compaction/start", {"compactionId": "live", "turn": None})
    error = await rejected(engine.compact_now(IdleAgent(session)))
    assert error.code == "busy"
    assert "compaction lock is already active" in str(error)
    assert engine.calls == []


async def test_an_unmatched_bracket_before_a_later_end_seed_is_ignored(
    conversation: Make, watched: Callable[[Session], Session]
) -> None:
    engine, original = GatedCompactionEngine(), conversation()
    original.append("compaction/start", {"compactionId": "stale", "turn": None})
    reloaded = watched(Session.create("stale-orphan", original.events))
    assert reloaded.events[-1].type == "session/end-seed"
    assert await engine.compact_now(IdleAgent(reloaded)) is not None
    assert len(engine.calls) == 1


async def test_a_stale_orphan_is_told_apart_from_later_repaired_turns(
    watched: Callable[[Session], Session], conversation: Make
) -> None:
    engine = GatedCompactionEngine()
    original = Session.create("reloaded")
    for event in conversation().events:
        original.adopt(event)
    original.append("compaction/start", {"compactionId": "stale", "turn": None})
    original.append("turn/start", {"turn": 3})
    original.append("turn/end", {"turn": 3, "reason": {"kind": "interrupted"}})
    reloaded = watched(Session.create("reloaded-orphan", original.events))
    assert await engine.compact_now(IdleAgent(reloaded)) is not None
    assert len(engine.calls) == 1


async def test_an_open_turn_in_the_log_is_busy(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    session.append("turn/start", {"turn": 3})
    error = await rejected(engine.compact_now(IdleAgent(session)))
    assert error.code == "busy"
    assert "already has an open turn" in str(error)


async def test_without_admission_it_is_busy_and_nothing_is_summarized(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    before = len(session)
    error = await rejected(engine.compact_now(IdleAgent(session, admits=False)))
    assert error.code == "busy"
    assert engine.calls == []
    assert len(session) == before


async def test_a_span_replaced_during_summarization_is_changed_and_an_error_close_is_recorded(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    sink, agent = attached(session), IdleAgent(session)
    engine.during = lambda: rival(session)
    assert (await rejected(engine.compact_now(agent))).code == "changed"
    assert agent.released == 1
    assert sink.flushes == 1
    assert brackets(session) == ["start", "end"]
    assert checkpoints(session) == []


async def test_a_span_whose_middle_was_replaced_during_summarization_is_changed(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation(3)
    engine.during = lambda: rival(session, 1)
    error = await rejected(engine.compact_now(IdleAgent(session)))
    assert error.code == "changed"
    assert "span changed during summarization" in str(error.__cause__)


async def test_the_span_is_checked_again_after_the_summarizer_has_settled(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    sink, agent = attached(session), IdleAgent(session)
    gate = engine.gate = anyio.Event()
    head, generation = session.surface[0], session.surface.replace_generation
    errors: list[ManualCompactionError] = []

    async def compact() -> None:
        errors.append(await rejected(engine.compact_now(agent)))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await anyio.wait_all_tasks_blocked()
        assert len(engine.calls) == 1
        gate.set()
        rival(session)  # between the summary's arrival and the engine's next step
    assert errors[0].code == "changed"
    assert "selected span" in str(errors[0].__cause__)
    assert agent.released == 1
    assert sink.flushes == 1
    assert session.surface.replace_generation == generation + 1
    assert head not in session.surface
    assert brackets(session) == ["start", "end"]
    assert checkpoints(session) == []


async def test_a_failing_compaction_end_is_a_commit_failure_and_leaves_one_orphan(
    refusing: RefusingSession,
) -> None:
    engine, agent, sink = GatedCompactionEngine(), IdleAgent(refusing), attached(refusing)
    refusing.refuses = {"compaction/end": "boundary rejected"}
    error = await rejected(engine.compact_now(agent))
    assert error.code == "commit"
    assert str(error.__cause__) == "boundary rejected"
    assert refusing.refused == ["compaction/end"]  # one attempt, not two
    refusing.refuses = {}
    assert sink.flushes == 0
    assert brackets(refusing) == ["start", "summary"]
    assert (await rejected(engine.compact_now(agent))).code == "busy"
    assert len(engine.calls) == 1


async def test_a_failed_error_close_is_the_commit_failure_and_is_not_flushed(
    refusing: RefusingSession,
) -> None:
    engine, agent, sink = GatedCompactionEngine(), IdleAgent(refusing), attached(refusing)
    engine.error = RuntimeError("summary rejected")
    refusing.refuses = {"compaction/end": "error boundary rejected"}
    error = await rejected(engine.compact_now(agent))
    assert error.code == "commit"
    assert str(error.__cause__) == "error boundary rejected"
    assert refusing.refused == ["compaction/end"]
    assert agent.released == 1
    assert sink.flushes == 0
    assert brackets(refusing) == ["start"]


class _Repricing(TokenMeter):
    """A meter that prices the first entry one token higher in one measurement."""

    armed = False

    def measure(self, session: Session) -> Measurement:
        measured = super().measure(session)
        if not self.armed:
            return measured
        self.armed = False
        sums = [0, *(total + 1 for total in measured._sums[1:])]
        return dataclasses.replace(measured, _sums=sums)


async def test_a_span_whose_price_changed_during_summarization_is_changed(
    conversation: Make,
) -> None:
    meter = _Repricing(CharacterEstimator())
    engine = GatedCompactionEngine(meter=meter)

    def arm() -> None:
        meter.armed = True

    engine.during = arm
    error = await rejected(engine.compact_now(IdleAgent(conversation())))
    assert error.code == "changed"
    assert "price" in str(error)


async def test_a_failure_in_the_commit_is_classified_and_admission_is_released(
    refusing: RefusingSession,
) -> None:
    engine, agent = GatedCompactionEngine(), IdleAgent(refusing)
    refusing.refuses = {"compaction/summary": "summary record rejected"}
    assert (await rejected(engine.compact_now(agent))).code == "commit"
    assert agent.released == 1
    end = last_end(refusing).data
    assert "summary record rejected" in (end.error or "")
    assert end.turn is None


async def test_a_commit_failure_stays_one_when_the_durability_checkpoint_fails_too(
    refusing: RefusingSession,
) -> None:
    engine, sink = GatedCompactionEngine(), attached(refusing)
    refusing.refuses = {"compaction/summary": "summary record rejected"}
    sink.error = OSError("disk full")
    error = await rejected(engine.compact_now(IdleAgent(refusing)))
    assert error.code == "commit"
    assert str(error.__cause__) == "summary record rejected"
    assert sink.flushes == 1


async def test_a_session_without_turns_is_compacted_without_making_one(
    watched: Callable[[Session], Session],
) -> None:
    engine, session = GatedCompactionEngine(), watched(Session.create("turnless"))
    for text in (PROMPT, "recent tail"):
        user(session, text)
    result = await engine.compact_now(IdleAgent(session))
    assert result is not None
    assert session.last("turn/start") is None
    assert session.event_at(result.start_seq).data.wire() == {
        "compactionId": result.compaction_id,
        "turn": None,
    }


async def test_a_durability_failure_after_the_commit_is_a_persistence_failure(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    attached(session).error = OSError("disk full")
    error = await rejected(engine.compact_now(IdleAgent(session)))
    assert error.code == "persistence"
    assert "disk full" in str(error)
    assert brackets(session) == ["start", "summary", "end"]
    assert last_end(session).data.error is None


@pytest.mark.parametrize("case", ["busy", "empty", "compactable"])
async def test_a_cancellation_before_the_call_wins_over_everything(
    conversation: Make, case: str
) -> None:
    measured: list[Session] = []

    class Counting(TokenMeter):
        def measure(self, session: Session) -> Measurement:
            measured.append(session)
            return super().measure(session)

    engine = GatedCompactionEngine(meter=Counting(CharacterEstimator()))
    session = Session.create("empty") if case == "empty" else conversation()
    agent, before = IdleAgent(session, admits=case != "busy"), list(session.events)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await engine.compact_now(agent)
    assert scope.cancelled_caught
    assert agent.reserved == 0
    assert measured == []
    assert engine.calls == []
    assert list(session.events) == before


async def test_a_callers_cancellation_is_raised_as_it_came_when_the_summarizer_fails_too(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    sink, agent = attached(session), IdleAgent(session)
    engine.error = RuntimeError("summarizer aborted")
    with anyio.CancelScope() as scope:
        engine.during = scope.cancel
        await engine.compact_now(agent)
    assert scope.cancelled_caught
    assert agent.released == 1
    assert sink.flushes == 1
    assert brackets(session) == ["start", "end"]
    assert "summarizer aborted" in (last_end(session).data.error or "")


async def test_an_agents_cancellation_of_its_maintenance_is_an_expected_one(
    conversation: Make,
) -> None:
    engine, agent = GatedCompactionEngine(), IdleAgent(conversation())
    reason = RuntimeError("agent cancelled maintenance")
    engine.during = lambda: agent.cancel(reason)
    engine.error = RuntimeError("summarizer observed cancellation")
    error = await rejected(engine.compact_now(agent))
    assert error.code == "cancelled"
    assert error.__cause__ is reason


async def test_a_cancellation_after_summarization_stops_before_the_commit(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    with anyio.CancelScope() as scope:
        engine.during = scope.cancel
        await engine.compact_now(IdleAgent(session))
    assert scope.cancelled_caught
    assert brackets(session) == ["start", "end"]
    assert last_end(session).data.error == "cancelled"


async def test_a_cancellation_while_the_summary_is_written_closes_and_flushes_the_bracket(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    sink, agent = attached(session), IdleAgent(session)
    engine.gate = anyio.Event()
    with anyio.move_on_after(0.01) as scope:
        await engine.compact_now(agent)
    assert scope.cancelled_caught
    assert brackets(session) == ["start", "end"]
    assert sink.durable == len(sink.taken) == 2
    assert agent.released == 1


async def test_a_cancellation_waits_for_the_durability_checkpoint_before_it_wins(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    sink, agent = attached(session), IdleAgent(session)
    gate = sink.gate = anyio.Event()
    settled: list[bool] = []
    scope = anyio.CancelScope()

    async def compact() -> None:
        with scope:
            await engine.compact_now(agent)
        settled.append(scope.cancelled_caught)

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        while not sink.flushes:
            await anyio.lowlevel.checkpoint()
        scope.cancel()
        await anyio.sleep(0.01)
        assert settled == []
        assert agent.released == 0
        gate.set()
    assert settled == [True]
    assert agent.released == 1
    assert brackets(session) == ["start", "summary", "end"]


async def test_raw_output_and_usage_are_kept_in_the_summary_event(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    engine.raw_output = (
        text_block("checkpoint"),
        ReasoningBlock(type="reasoning", text="hidden reasoning"),
    )
    engine.usage = {"inputTokens": 40, "outputTokens": 5}
    await engine.compact_now(IdleAgent(session))
    summary = session.last("compaction/summary")
    assert isinstance(summary, CompactionSummary)
    assert summary.data.raw_output == engine.raw_output
    assert summary.data.usage == engine.usage


async def test_a_duration_can_be_derived_from_the_times_of_start_and_end(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()

    class Slow(GatedCompactionEngine):
        async def summarize(self, input: object) -> object:  # type: ignore[override]
            await anyio.sleep(0.01)
            return await super().summarize(input)  # type: ignore[arg-type]

    engine = Slow()
    result = await engine.compact_now(IdleAgent(session))
    assert result is not None
    start, end = session.event_at(result.start_seq), session.event_at(result.end_seq)
    assert start.time is not None
    assert end.time is not None
    assert end.time - start.time > 0


async def test_an_automatic_and_a_manual_compaction_of_one_session_exclude_each_other(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation(3)
    agent = IdleAgent(session)
    gate = engine.gate = anyio.Event()
    results: list[CompactionResult | None] = []

    async def compact() -> None:
        results.append(await engine.compact_now(agent))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await anyio.wait_all_tasks_blocked()
        first, second = session.surface[0], session.surface[1]
        with pytest.raises(CompactionError, match="compaction lock is already active") as caught:
            await engine.compact_region(first, second, agent)
        assert caught.value.code == "busy"
        gate.set()
    assert results[0] is not None
