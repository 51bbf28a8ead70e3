"""Manual compaction through the real agent loop: what may run when, and what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from ctxarchive.agent.loop import Agent
from ctxarchive.compaction.engine import CompactionResult, Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.errors import ManualCompactionError
from ctxarchive.session.events import (
    CompactionEnd,
    CompactionStart,
    Event,
    UserMessage,
    user_message,
)
from ctxarchive.session.log import Session
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.models import ScriptedModel, request_texts
from ctxarchive.testing.sessions import PROMPT, MemorySink, derived_texts

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]


@dataclass
class Loop:
    """A real agent on a real session, and the order of what happened."""

    agent: Agent
    engine: GatedCompactionEngine
    model: ScriptedModel
    log: list[str]

    @property
    def compactions(self) -> list[Event]:
        """The brackets on the log."""
        return [event for event in self.agent.session.events if "compaction/" in event.type]


@asynccontextmanager
async def loop(watched: Watch) -> AsyncIterator[Loop]:
    session = watched(Session.create("manual-compact"))
    log: list[str] = []

    def note(_: Session, event: Event) -> None:
        if isinstance(event, CompactionStart | CompactionEnd):
            log.append(f"{event.type}:{event.data.turn}")
        elif event.type in {"turn/start", "turn/end", "compaction/summary", "user/message"}:
            log.append(event.type)

    sink = MemorySink()
    sink.on_flush = lambda: log.append("flush")
    session.attach(sink)
    session.subscribe(note)
    model = ScriptedModel()
    engine = GatedCompactionEngine(
        CompactionPolicy(min_span_tokens=0, on_summary_failure="error", auto=False)
    )
    options = Routing(provider="scripted", model="scripted", context_window=100_000)
    async with Agent(session, model, compaction=engine, options=options) as agent:
        agent.followup(PROMPT)
        await agent.when_idle()
        log.clear()
        yield Loop(agent=agent, engine=engine, model=model, log=log)


async def test_a_prompt_accepted_during_summarization_is_held_until_the_bracket_is_flushed(
    watched: Watch,
) -> None:
    async with loop(watched) as host:
        gate = host.engine.gate = anyio.Event()
        results: list[CompactionResult | None] = []

        async def compact() -> None:
            results.append(await host.engine.compact_now(host.agent))

        async with anyio.create_task_group() as group:
            group.start_soon(compact)
            await anyio.wait_all_tasks_blocked()
            assert host.log == ["compaction/start:None"]
            host.agent.followup("after compaction")
            await anyio.wait_all_tasks_blocked()
            assert host.agent.status == "idle"
            assert len(host.model.requests) == 1
            assert host.log == ["compaction/start:None"]
            gate.set()
        assert results[0] is not None
        await host.agent.when_idle()
        order = [
            host.log.index(name)
            for name in (
                "compaction/start:None",
                "compaction/summary",
                "compaction/end:None",
                "flush",
                "turn/start",
            )
        ]
        assert order == sorted(order)
        assert len(host.model.requests) == 2
        second = request_texts(host.model.requests[1])
        assert "checkpoint" in second[0]
        assert second[-1] == "after compaction"
        assert not any(PROMPT in text for text in second)


async def test_context_injected_during_summarization_stays_pending_for_the_next_step(
    watched: Watch,
) -> None:
    async with loop(watched) as host:
        agent = host.agent
        host.engine.during = lambda: void(agent.inject("INJECTED CONTEXT"))
        assert await host.engine.compact_now(agent) is not None
        assert [message.content[0].text for message in agent.inbox.next_step] == [  # type: ignore[union-attr]
            "INJECTED CONTEXT"
        ]
        assert "INJECTED CONTEXT" not in derived_texts(agent.session)
        agent.followup("after compaction")
        await agent.when_idle()
        texts = derived_texts(agent.session)
        assert "checkpoint" in texts[0]
        assert texts.count("INJECTED CONTEXT") == 1
        assert not agent.inbox.next_step


async def test_the_marker_order_is_kept_when_listeners_inject_re_entrantly(watched: Watch) -> None:
    async with loop(watched) as host:
        agent = host.agent
        attempts: list[str] = []

        def meddle(_: Session, event: Event) -> None:
            if event.type in {"compaction/start", "compaction/summary"}:
                attempts.append(event.type)
                agent.inject(user_message(f"from {event.type}", kind="listener"))

        unsubscribe = agent.session.subscribe(meddle)
        assert await host.engine.compact_now(agent) is not None
        unsubscribe()
        assert attempts == ["compaction/start", "compaction/summary"]
        assert "checkpoint" in derived_texts(agent.session)[0]
        assert not any(
            isinstance(event, UserMessage) and event.data.source.kind == "listener"
            for event in agent.session.events
        )
        assert [event.type for event in host.compactions] == [
            "compaction/start",
            "compaction/summary",
            "compaction/end",
        ]


async def test_busy_is_reported_without_summarizing_when_a_prompt_owns_the_next_turn(
    watched: Watch,
) -> None:
    async with loop(watched) as host:
        host.agent.followup("first in line")
        with pytest.raises(ManualCompactionError) as caught:
            await host.engine.compact_now(host.agent)
        assert caught.value.code == "busy"
        assert host.engine.calls == []
        await host.agent.when_idle()
        assert len(host.model.requests) == 2
        assert host.compactions == []


async def test_turn_admission_is_released_after_a_failed_summary_and_the_attempt_is_recorded(
    watched: Watch,
) -> None:
    async with loop(watched) as host:
        host.engine.error = RuntimeError("summarizer unavailable")
        before = host.agent.session.surface.nodes
        with pytest.raises(ManualCompactionError) as caught:
            await host.engine.compact_now(host.agent)
        assert caught.value.code == "summary"
        assert host.agent.session.surface.nodes == before
        start, end = host.compactions
        assert start.type == "compaction/start"
        assert isinstance(end, CompactionEnd)
        assert "summarizer unavailable" in (end.data.error or "")
        host.agent.followup("runs after the failure")
        await host.agent.when_idle()
        assert len(host.model.requests) == 2


def void(_: object) -> None:
    """Drop a value."""
