"""A manual compaction beside what else happens on the surface, and how a region differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from ctxarchive.compaction.engine import CompactionResult
from ctxarchive.errors import CompactionError, ManualCompactionError
from ctxarchive.session.events import (
    Event,
)
from ctxarchive.session.log import Session
from ctxarchive.session.messages import text_block
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import IdleAgent, user

pytestmark = pytest.mark.anyio

Make = Callable[..., Session]


def brackets(session: Session) -> list[str]:
    return [
        event.type.removeprefix("compaction/")
        for event in session.events
        if event.type in {"compaction/start", "compaction/summary", "compaction/end"}
    ]


async def rejected(operation: Awaitable[object]) -> ManualCompactionError:
    with pytest.raises(ManualCompactionError) as caught:
        await operation
    return caught.value


async def test_a_manual_request_is_busy_while_a_region_is_compacted(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation(3)
    session.append("turn/start", {"turn": 4})
    agent = IdleAgent(session)
    gate = engine.gate = anyio.Event()
    nodes = session.surface.nodes
    results: list[CompactionResult] = []

    async def compact() -> None:
        results.append(await engine.compact_region(nodes[0], nodes[1], agent))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await anyio.wait_all_tasks_blocked()
        assert (await rejected(engine.compact_now(agent))).code == "busy"
        gate.set()
    assert results[0].shadowed_seqs == nodes[:2]


async def test_a_listener_that_fails_at_the_start_leaves_no_lock_behind(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()

    def fail(_: Session, event: Event) -> None:
        if event.type == "compaction/start":
            raise RuntimeError("listener failed")

    unsubscribe = session.subscribe(fail)
    assert (await rejected(engine.compact_now(IdleAgent(session)))).code == "commit"
    unsubscribe()
    assert brackets(session) == ["start", "end"]
    assert await engine.compact_now(IdleAgent(session)) is not None


async def test_context_added_outside_the_span_is_tolerated_by_a_manual_compaction(
    conversation: Make,
) -> None:
    engine, session = GatedCompactionEngine(), conversation()
    engine.during = lambda: drop(user(session, "meanwhile", kind="injected"))
    result = await engine.compact_now(IdleAgent(session))
    assert result is not None
    assert session.derive_messages()[-1].content == (text_block("meanwhile"),)


async def test_a_region_demands_that_the_whole_surface_stays_as_it_was(conversation: Make) -> None:
    engine, session = GatedCompactionEngine(), conversation(3)
    session.append("turn/start", {"turn": 4})
    engine.during = lambda: drop(user(session, "meanwhile", kind="injected"))
    nodes = session.surface.nodes
    with pytest.raises(CompactionError, match="the surface changed") as caught:
        await engine.compact_region(nodes[0], nodes[1], IdleAgent(session))
    assert caught.value.code == "changed"


def drop(_: object) -> None:
    """Use nothing."""
