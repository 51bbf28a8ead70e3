"""When an agent can work, what it says when it cannot, and what a later one goes on with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ctxarchive.agent.commands import compact_command
from ctxarchive.agent.hooks import AgentHooks
from ctxarchive.agent.loop import Agent
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.engine import CompactionAgent, CompactionEngine, Routing
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.errors import AgentError, CompactionError, SessionError
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import ToolResult
from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.session.repair import NOT_STARTED, STARTED
from ctxarchive.session.store import SessionStore
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.models import ScriptedModel, Step, overflow, say
from ctxarchive.testing.sessions import (
    PROMPT,
    MemorySink,
    RefusingSession,
    assistant,
    derived_texts,
    user,
)
from ctxarchive.testing.validity import request_faults

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]
REOPEN = r"^session 'refusing' has a compaction that could not be closed \(\S+ at seq \d+\); reopen"
REFUSED = {"compaction/end": "boundary rejected"}


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


def routing(window: int) -> Routing:
    return Routing(provider="scripted", model="scripted", context_window=window)


async def go_on(session: Session, compaction: CompactionEngine, **options: object) -> list[str]:
    """Another process reopens the log: it is sound, a turn runs, and the next compaction too."""
    reopened = Session.create("refusing", session.events)
    async with Agent(reopened, ScriptedModel(), compaction=compaction, **options) as agent:  # type: ignore[arg-type]
        agent.followup("go on")
        await agent.when_idle()
        texts = derived_texts(reopened)
        assert (await compact_command(agent)).startswith("Compacted ")
    assert check_compactions(reopened.events) == []
    assert reopened.open_turn is None
    return texts


# --- a compaction that cannot be closed ------------------------------------------------------


async def test_no_turn_starts_across_a_compaction_that_could_not_be_closed(watched: Watch) -> None:
    """The prompts that waited are kept, and the agent of the reopened session takes them up."""
    session, engine = RefusingSession(), GatedCompactionEngine()
    watched(session)
    agent = Agent(session, ScriptedModel(), compaction=engine)
    said: list[str] = []

    async def work() -> None:
        async with agent:
            agent.followup(PROMPT)
            await agent.when_idle()
            session.refuses = REFUSED
            engine.during = lambda: void(agent.followup("waiting"), agent.inject("context"))
            said.append(await compact_command(agent))

    with anyio.fail_after(5), pytest.raises(AgentError, match=REOPEN) as caught:
        await work()
    engine.during = None
    assert caught.value.code == "reopen"
    assert said[0].startswith("Compaction failed while it was written: reopen the session (")
    assert types(session)[-1] == "user/message"  # the checkpoint; the start stays unmatched
    assert len(agent.inbox.next_turn) == len(agent.inbox.next_step) == 1
    texts = await go_on(session, engine, inbox=agent.inbox)
    assert texts[-5:] == ["context", "waiting", "answer", "go on", "answer"]
    assert not agent.inbox.next_turn


async def test_a_prompt_to_a_locked_agent_is_refused_and_it_can_still_be_left(
    watched: Watch,
) -> None:
    """With nothing waiting there is nothing that failed."""
    session, engine = RefusingSession(), GatedCompactionEngine()
    watched(session)
    async with Agent(session, ScriptedModel(), compaction=engine) as agent:
        agent.followup(PROMPT)
        await agent.when_idle()
        session.refuses = REFUSED
        await compact_command(agent)
        with pytest.raises(AgentError, match=REOPEN):
            agent.followup("more")
        await agent.when_idle()
        said = await compact_command(agent)
    assert not agent.inbox.next_turn
    assert said.startswith("Not compacted: session 'refusing' has a compaction that could not be")
    assert said.endswith("; reopen the session to go on.")


@pytest.mark.parametrize("trigger", ["pressure", "overflow", "late"])
async def test_a_turn_whose_compaction_could_not_be_closed_goes_no_further(trigger: str) -> None:
    """It stays open on the log, as after a crash: its end would cross the compaction."""
    session, engine = RefusingSession(), GatedCompactionEngine()
    sink = MemorySink()
    session.attach(sink)
    if trigger == "late":
        engine.error = RuntimeError("no summary")
    script: list[Step] = [say("1")] if trigger == "pressure" else [say("1"), overflow()]
    window = 600 if trigger == "pressure" else 100_000
    model = ScriptedModel(script)
    agent = Agent(session, model, compaction=engine, options=routing(window))

    async def work() -> None:
        async with agent:
            agent.followup(PROMPT)
            await agent.when_idle()
            session.refuses = REFUSED
            agent.followup(PROMPT)
            agent.followup("waiting")

    with anyio.fail_after(5), pytest.raises(AgentError, match=REOPEN):
        await work()
    engine.error = None
    assert isinstance(agent.failure, AgentError)
    assert len(model.requests) == (1 if trigger == "pressure" else 2)
    assert len(agent.inbox.next_turn) == 1
    assert types(session).count("turn/start") == 2
    assert types(session).count("turn/end") == 1
    assert check_compactions(session.events) == []
    assert types(session).count("compaction/start") == 1
    assert sink.durable < len(session)  # an unmatched start is not flushed
    await go_on(session, engine)


async def test_the_log_that_is_left_verifies_and_the_store_mends_it(tmp_path: Path) -> None:
    """On disk, with an archive, by the command."""
    session = RefusingSession()
    path, log = tmp_path / "a.db", tmp_path / "refusing.jsonl"
    with SqliteKnowledgeBase.open(path, render=render) as knowledge:
        engine = ArchiveCompactionEngine(
            knowledge,
            policy=CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0),
            meter=TokenMeter(CharacterEstimator()),
        )

        async def work() -> None:
            options = routing(1_000)
            async with Agent(session, ScriptedModel(), compaction=engine, options=options) as agent:
                agent.followup(PROMPT)
                await agent.when_idle()
                session.refuses = REFUSED
                agent.followup(PROMPT)
                agent.followup(PROMPT)

        with pytest.raises(AgentError):
            await work()
        write_session(log, session)
        assert types(session)[-1] == "user/message"
        verify = [sys.executable, "-m", "ctxarchive", "verify", str(path), "--log", str(log)]
        done = await anyio.run_process(verify, check=False, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
        with SessionStore(tmp_path).open("refusing") as opened:
            assert opened.closed.turn == 2
            async with Agent(opened.session, ScriptedModel(), compaction=engine) as agent:
                agent.followup("go on")
                await agent.when_idle()
                assert (await compact_command(agent)).startswith("Compacted ")
        done = await anyio.run_process(verify, check=False, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout


async def test_a_region_compacted_beside_a_running_turn_leaves_a_turn_that_is_closed_later(
    watched: Watch,
) -> None:
    """The agent stops before the open compaction; once that is over, the next prompt runs."""
    session, engine = RefusingSession(), GatedCompactionEngine()
    watched(session)

    class Beside(AgentHooks):
        async def pre_step(self, agent: CompactionAgent) -> None:
            if group is not None:
                surface = agent.session.surface
                group.start_soon(engine.compact_region, surface[0], surface[0], agent)
                await anyio.wait_all_tasks_blocked()

    group = None
    engine.gate = anyio.Event()
    async with Agent(session, ScriptedModel(), hooks=[Beside()]) as agent:
        agent.followup(PROMPT)
        await agent.when_idle()
        async with anyio.create_task_group() as group:
            agent.followup("second")
            with pytest.raises(AgentError):
                await agent.when_idle()
            engine.gate.set()
        group = None
        agent.followup("third")
        await agent.when_idle()
    assert derived_texts(session)[-2:] == ["third", "answer"]
    assert types(session).count("turn/start") == types(session).count("turn/end") == 3


# --- outside its context ---------------------------------------------------------------------


async def test_waiting_for_an_agent_that_does_not_run_says_so(watched: Watch) -> None:
    """Before and after ``async with``; nothing ever would happen."""
    session = watched(Session.create("s"))
    agent = Agent(session, ScriptedModel())
    await agent.when_idle()
    agent.followup("go")
    with anyio.fail_after(5), pytest.raises(AgentError, match="async with") as caught:
        await agent.when_idle()
    assert caught.value.code == "not-running"
    async with agent:
        await agent.when_idle()
    assert derived_texts(session) == ["go", "answer"]
    agent.followup("too late")
    with anyio.fail_after(5), pytest.raises(AgentError):
        await agent.when_idle()


async def test_an_agent_can_be_entered_again(watched: Watch) -> None:
    session = watched(Session.create("s"))
    agent = Agent(session, ScriptedModel())
    for prompt in ("one", "two"):
        async with agent:
            agent.followup(prompt)
    assert derived_texts(session) == ["one", "answer", "two", "answer"]


async def test_a_cancellation_while_it_is_left_is_raised_as_it_came(watched: Watch) -> None:
    session = watched(Session.create("s"))

    class Stops(AgentHooks):
        async def pre_step(self, agent: CompactionAgent) -> None:
            del agent
            scope.cancel()

    with anyio.CancelScope() as scope:
        async with Agent(session, ScriptedModel(), hooks=[Stops()]) as agent:
            agent.followup("go")
    assert scope.cancelled_caught
    assert session.open_turn is None


# --- a session with something open -----------------------------------------------------------


async def test_what_a_seed_has_open_is_closed_as_the_store_does(watched: Watch) -> None:
    """Also without a store: no request may go out with an unanswered call."""
    session = watched(Session.create("s"))
    session.append("turn/start", {"turn": 1})
    user(session, "go")
    session.append("step/start", {"turn": 1, "step": 1})
    assistant(session, "", ("a", "bash", "{}"), ("b", "bash", "{}"))
    session.append("tool/call", {"turn": 1, "step": 1, "callId": "a", "name": "bash"})
    model = ScriptedModel()
    async with Agent(session, model) as agent:
        agent.followup("go on")
    assert request_faults(model.requests[0].messages) == []
    told = [e.data.message.block for e in session.events if isinstance(e, ToolResult)]
    assert [(block.tool_call_id, joined_text(block.content)) for block in told] == [
        ("a", f"bash: {STARTED}"),
        ("b", f"bash: {NOT_STARTED}"),
    ]
    assert types(session)[5:9] == ["tool/result", "tool/result", "step/end", "turn/end"]


async def test_compacting_a_seed_with_an_open_turn_needs_no_prompt_first(watched: Watch) -> None:
    session = watched(Session.create("s"))
    session.append("turn/start", {"turn": 1})
    for text in (PROMPT, "tail"):
        user(session, text)
    async with Agent(session, ScriptedModel(), compaction=GatedCompactionEngine()) as agent:
        assert (await compact_command(agent)).startswith("Compacted ")


async def test_a_session_whose_compaction_is_open_is_left_as_it_is() -> None:
    session = RefusingSession()
    user(session, PROMPT)
    session.append("compaction/start", {"compactionId": "live", "turn": None})
    before = len(session)
    async with Agent(session, ScriptedModel()) as agent:
        with pytest.raises(AgentError, match=r"\(live at seq 1\)"):
            agent.followup("go")
    assert len(session) == before


async def test_a_step_that_hides_the_failure_of_its_own_compaction_stops_as_well() -> None:
    """Whoever called the engine, no request is made across what it left open."""
    session, engine = RefusingSession(), GatedCompactionEngine()

    class Hides(AgentHooks):
        async def pre_step(self, agent: CompactionAgent) -> None:
            surface = agent.session.surface
            with pytest.raises(CompactionError):
                await engine.compact_region(surface[0], surface[0], agent)

    session.refuses = REFUSED
    model = ScriptedModel()
    with pytest.raises(AgentError, match=REOPEN):
        async with Agent(session, model, hooks=[Hides()]) as agent:
            agent.followup(PROMPT)
    assert model.requests == []


def void(*_: object) -> None:
    """Use nothing."""


class Unreachable:
    """A sink whose disk is full."""

    def write(self, event: object) -> None:
        """Take nothing."""

    async def flush(self) -> None:
        """Fail."""
        await anyio.lowlevel.checkpoint()
        raise SessionError("storage", "disk full")


async def test_what_a_host_raises_within_the_agent_comes_out_as_it_was() -> None:
    cause = KeyError("cause")
    with pytest.raises(ValueError, match="mine") as raised:
        async with Agent(Session.create("s"), ScriptedModel()):
            raise ValueError("mine") from cause
    assert raised.value.__cause__ is cause


async def test_a_log_that_fails_ends_the_agent_with_its_own_error() -> None:
    session = Session.create("s")
    session.attach(Unreachable())
    with pytest.raises(SessionError, match="disk full"):
        async with Agent(session, ScriptedModel()) as agent:
            agent.followup("go")
    assert session.open_turn is None


async def test_an_agent_is_entered_once_at_a_time() -> None:
    agent = Agent(Session.create("s"), ScriptedModel())
    async with agent:
        with pytest.raises(AgentError) as raised:
            await agent.__aenter__()
        assert raised.value.code == "running"
        agent.followup("one")
    async with agent:
        agent.followup("two")
    assert derived_texts(agent.session) == ["one", "answer", "two", "answer"]
