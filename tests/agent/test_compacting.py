"""The agent with compaction mounted: on pressure, on overflow, by command."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from ctxarchive.agent.commands import compact_command, run_command
from ctxarchive.agent.loop import Agent
from ctxarchive.compaction.automatic import automatic
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner
from ctxarchive.errors import ModelError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.models import ScriptedModel, call, overflow, say
from ctxarchive.testing.sessions import PROMPT, MemorySink, RefusingSession, derived_texts
from ctxarchive.tools.toolbox import FunctionTool

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]
EAGER = CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0)


def basic(policy: CompactionPolicy = EAGER, **options: object) -> BasicCompactionEngine:
    meter = TokenMeter(CharacterEstimator())
    return BasicCompactionEngine(policy=policy, meter=meter, **options)  # type: ignore[arg-type]


def routing(window: int = 2_000) -> Routing:
    return Routing(provider="scripted", model="scripted", context_window=window)


def starts(session: Session) -> int:
    return sum(event.type == "compaction/start" for event in session.events)


@pytest.fixture
def session(watched: Watch) -> Session:
    """A watched, empty session."""
    return watched(Session.create("s"))


async def test_pressure_compacts_before_a_step_inside_the_turn(session: Session) -> None:
    engine = basic()
    async with Agent(session, ScriptedModel(), compaction=engine, options=routing()) as agent:
        for index in range(8):
            agent.followup(f"{PROMPT} {index}")
    assert starts(session) >= 1
    for event in session.events:
        if event.type == "compaction/start":
            assert event.data.turn is not None
    assert engine.meter.measure(session).total < 2_000 * 0.8 + 500


async def test_a_runaway_turn_is_compacted_at_its_closed_steps(session: Session) -> None:
    script = [call((f"c{index}", "bash", {"n": index})) for index in range(12)]
    bash = FunctionTool(name="bash", description="", schema={}, run=lambda _: "output " * 200)
    async with Agent(
        session, ScriptedModel(script), [bash], compaction=basic(), options=routing()
    ) as agent:
        agent.followup("go")
    assert starts(session) >= 1
    assert sum(event.type == "turn/start" for event in session.events) == 1


async def test_an_overflow_is_relieved_and_the_request_tried_again(session: Session) -> None:
    model = ScriptedModel([say("1"), say("2"), overflow(), say("made it")])
    async with Agent(session, model, compaction=basic(), options=routing(100_000)) as agent:
        for index in range(3):
            agent.followup(f"{PROMPT} {index}")
    assert agent.failure is None
    assert derived_texts(session)[-1] == "made it"
    assert starts(session) == 1
    assert len(model.requests) == 4


async def test_one_overflow_is_retried_as_often_as_configured_and_then_raised(
    session: Session,
) -> None:
    model = ScriptedModel([say("1"), say("2"), overflow(), overflow(), overflow()])
    policy = EAGER.model_copy(update={"max_overflow_retries": 2})
    async with Agent(session, model, compaction=basic(policy), options=routing(100_000)) as agent:
        for index in range(3):
            agent.followup(f"{PROMPT} {index}")
    assert isinstance(agent.failure, ModelError)
    assert agent.failure.code == "context-overflow"
    assert len(model.requests) == 4  # the second retry had nothing left to shrink


async def test_without_progress_the_original_error_is_kept(session: Session) -> None:
    error = overflow()
    model = ScriptedModel([error])
    async with Agent(session, model, compaction=basic(), options=routing(100_000)) as agent:
        agent.followup("a short prompt")
    assert agent.failure is error.error
    assert len(model.requests) == 1


async def test_a_failed_relief_keeps_the_original_error(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    engine = GatedCompactionEngine()
    engine.error = RuntimeError("no summary")
    error = overflow()
    model = ScriptedModel([say("1"), error])
    with caplog.at_level(logging.WARNING, "ctxarchive"):
        async with Agent(session, model, compaction=engine, options=routing(100_000)) as agent:
            agent.followup(PROMPT)
            agent.followup(PROMPT)
    assert agent.failure is error.error
    assert "overflow not relieved" in caplog.text


async def test_a_prune_counts_as_progress(session: Session) -> None:
    pruner = ToolResultPruner(PruneSettings(max_chars=400, head_chars=100, tail_chars=50))
    big = FunctionTool(name="big", description="", schema={}, run=lambda _: "x" * 3_000)
    model = ScriptedModel([call(("a", "big", {})), overflow(), say("made it")])
    engine = basic(pruner=pruner)
    async with Agent(session, model, [big], compaction=engine, options=routing(100_000)) as agent:
        agent.followup("go")
    assert agent.failure is None
    assert derived_texts(session)[-1] == "made it"
    assert starts(session) == 0
    assert session.last("compaction/prune") is not None


async def test_a_model_that_ran_out_of_context_while_answering_is_an_overflow_too(
    session: Session,
) -> None:
    from dataclasses import replace

    cut = replace(say("half an ans"), stop="model_context_window_exceeded")
    model = ScriptedModel([say("1"), cut, say("whole")])
    async with Agent(session, model, compaction=basic(), options=routing(100_000)) as agent:
        agent.followup(PROMPT)
        agent.followup(PROMPT)
    assert derived_texts(session)[-1] == "whole"
    assert "half an ans" not in derived_texts(session)


async def test_auto_false_installs_nothing(session: Session) -> None:
    engine = basic(EAGER.model_copy(update={"auto": False}))
    assert automatic(engine) == ()
    assert automatic(None) == ()
    model = ScriptedModel([say("1"), overflow()])
    async with Agent(session, model, compaction=engine, options=routing(500)) as agent:
        agent.followup(PROMPT)
        agent.followup(PROMPT)
    assert starts(session) == 0
    assert isinstance(agent.failure, ModelError)


async def test_a_compaction_that_fails_on_pressure_warns_and_the_step_goes_on(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    engine = GatedCompactionEngine()
    engine.error = RuntimeError("no summary")
    with caplog.at_level(logging.WARNING, "ctxarchive"):
        async with Agent(
            session, ScriptedModel(), compaction=engine, options=routing(600)
        ) as agent:
            agent.followup(PROMPT)
            agent.followup(PROMPT)
    assert agent.failure is None
    assert "not relieved: no summary" in caplog.text


async def test_cancelling_a_turn_while_it_compacts_closes_the_bracket_first(
    session: Session,
) -> None:
    engine = GatedCompactionEngine()
    engine.gate = anyio.Event()
    async with Agent(session, ScriptedModel(), compaction=engine, options=routing(600)) as agent:
        agent.followup(PROMPT)
        agent.followup(PROMPT)
        while not engine.calls:
            await anyio.lowlevel.checkpoint()
        agent.cancel("enough")
        await agent.when_idle()
    ends = [event for event in session.events if event.type in {"compaction/end", "turn/end"}]
    assert [event.type for event in ends] == ["turn/end", "compaction/end", "turn/end"]
    assert ends[1].data.error == "cancelled"


async def test_the_command_says_in_one_sentence_what_was_compacted(session: Session) -> None:
    engine = GatedCompactionEngine()
    async with Agent(session, ScriptedModel(), compaction=engine) as agent:
        assert await compact_command(agent) == (
            "Nothing to compact: the history has no older part that is worth it."
        )
        agent.followup(PROMPT)
        await agent.when_idle()
        said = await run_command(agent, "/compact", "command-1")
        assert said is not None
        assert said.startswith("Compacted 1 messages of 409 tokens into one checkpoint of ")
        start = session.last("compaction/start")
        assert start is not None
        assert start.data.source_command_id == "command-1"


async def test_what_is_no_command_is_left_alone_and_arguments_are_refused(
    session: Session,
) -> None:
    async with Agent(session, ScriptedModel()) as agent:
        assert await run_command(agent, "please /compact") is None
        assert await run_command(agent, "") is None
        assert await run_command(agent, "/compacted") is None
        for typed in ("/compact now", "/compact\tnow", "/compact\nnow", " /compact\u3000now"):
            assert await run_command(agent, typed) == "/compact takes no arguments."
        assert await run_command(agent, "/compact") == (
            "Not compacted: no compaction backend is mounted."
        )


async def test_the_command_has_one_sentence_for_each_failure(watched: Watch) -> None:
    session = RefusingSession()
    watched(session)
    sink = MemorySink()
    session.attach(sink)
    engine = GatedCompactionEngine()
    async with Agent(session, ScriptedModel(), compaction=engine) as agent:
        agent.followup(PROMPT)
        await agent.when_idle()
        agent.followup("waiting")
        said = [await compact_command(agent)]
        await agent.when_idle()
        engine.error = RuntimeError("no luck")
        said.append(await compact_command(agent))
        engine.error = None
        engine.during = lambda: void(agent.cancel("quit"))
        said.append(await compact_command(agent))
        engine.during = None
        session.refuses = {"compaction/summary": "refused"}
        said.append(await compact_command(agent))
        session.refuses = {}
        sink.error = OSError("disk full")
        said.append(await compact_command(agent))
    assert [text.split("(")[0] for text in said] == [
        "Not compacted: the agent is busy; ask again when it is idle ",
        "Not compacted: there is no usable summary, and the history is as it was ",
        "Not compacted: it was cancelled ",
        "Compaction failed while it was written: look at the log ",
        "Compacted, but not saved to disk yet ",
    ]
    assert all("\n" not in text and text.endswith(").") for text in said)


async def test_an_error_of_several_lines_is_told_on_one(session: Session) -> None:
    """As a provider's may be."""
    engine = GatedCompactionEngine()
    async with Agent(session, ScriptedModel(), compaction=engine) as agent:
        agent.followup(PROMPT)
        await agent.when_idle()
        engine.error = ModelError("unavailable", "503\r\n<html>\n  down</html>\n")
        said = await compact_command(agent)
        agent_cancels = RuntimeError("quit\nnow")
        engine.during = lambda: void(agent.cancel(agent_cancels))
        cancelled = await compact_command(agent)
    assert said == (
        "Not compacted: there is no usable summary, and the history is as it was "
        "(no summary: 503 <html> down</html>)."
    )
    assert cancelled == "Not compacted: it was cancelled (the agent cancelled it: quit now)."


def void(_: object) -> None:
    """Use nothing."""
