"""The agent's loop: turns, steps, tools, cancellation, and what it leaves on the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from ctxarchive.agent.hooks import AgentHooks
from ctxarchive.agent.loop import Agent
from ctxarchive.compaction.engine import CompactionAgent, Routing
from ctxarchive.errors import ManualCompactionError, ModelError, SessionError
from ctxarchive.session.events import AssistantMessage, ToolResult, TurnEnd
from ctxarchive.session.log import Session
from ctxarchive.session.messages import (
    ImageBlock,
    ReasoningBlock,
    ToolCallBlock,
    joined_text,
    text_block,
)
from ctxarchive.testing.models import Fail, Reply, ScriptedModel, Stall, Step, call, say
from ctxarchive.testing.sessions import MemorySink, derived_texts
from ctxarchive.tools.toolbox import FunctionTool, ToolAnswer

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]


def tool(
    run: Callable[[Mapping[str, Any]], ToolAnswer | Awaitable[ToolAnswer]], name: str = "bash"
) -> FunctionTool:
    return FunctionTool(name=name, description="runs", schema={"type": "object"}, run=run)


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


def results(session: Session) -> list[tuple[str, str, bool]]:
    return [
        (
            event.data.message.block.tool_call_id,
            joined_text(event.data.message.block.content),
            event.data.message.block.is_error,
        )
        for event in session.events
        if isinstance(event, ToolResult)
    ]


def endings(session: Session) -> list[dict[str, Any]]:
    return [event.data.reason or {} for event in session.events if isinstance(event, TurnEnd)]


@pytest.fixture
def session(watched: Watch) -> Session:
    """A watched, empty session."""
    return watched(Session.create("s"))


async def run(session: Session, script: Sequence[Step], *prompts: str, **options: Any) -> Agent:
    async with Agent(session, ScriptedModel(script), **options) as agent:
        for prompt in prompts or ("go",):
            agent.followup(prompt)
    return agent


async def test_a_prompt_becomes_a_turn_of_one_step(session: Session) -> None:
    await run(session, [say("hello")])
    assert types(session) == [
        "turn/start",
        "user/message",
        "step/start",
        "request/header",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    assert derived_texts(session) == ["go", "hello"]
    assert endings(session) == [{"kind": "completed"}]


async def test_prompts_queue_first_in_first_out_each_with_a_turn(session: Session) -> None:
    await run(session, [say("1"), say("2")], "a", "b")
    assert derived_texts(session) == ["a", "1", "b", "2"]
    assert [e.data.turn for e in session.events if e.type == "turn/start"] == [1, 2]


async def test_turn_numbers_go_on_from_the_log(session: Session) -> None:
    await run(session, [])
    await run(session, [])
    assert [e.data.turn for e in session.events if e.type == "turn/start"] == [1, 2]


async def test_the_requests_fixed_part_is_logged_when_it_first_holds_or_changes(
    session: Session,
) -> None:
    options = Routing(provider="p", model="m", context_window=1_000)
    await run(session, [], "a", "b", system="be brief", options=options)
    assert types(session).count("request/header") == 1
    assert types(session).count("request/context") == 1
    assert session.context_window == 1_000
    await run(session, [], system="be long", options=options)
    assert types(session).count("request/header") == 2
    assert session.request_header["system"] == "be long"


async def test_the_models_capacity_is_asked_once_and_logged(session: Session) -> None:
    async with Agent(session, ScriptedModel(capacity=5_000)) as agent:
        agent.followup("a")
        agent.followup("b")
    assert session.context_window == 5_000
    assert types(session).count("request/context") == 1


class TwoModels(ScriptedModel):
    """Says what a large model and a small one hold, after as many failures as told."""

    def __init__(self, *, failures: int = 0) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.failures = failures

    async def capacity(self, provider: str, model: str) -> int | None:
        """What the one asked for holds."""
        del provider
        self.asked.append(model)
        if len(self.asked) <= self.failures:
            raise OSError("no route")
        return {"large": 200_000, "small": 2_000}[model]


async def test_a_capacity_that_was_not_to_be_had_is_asked_for_again(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    model = TwoModels(failures=2)
    async with Agent(session, model, options=Routing(provider="p", model="large")) as agent:
        for prompt in "abc":
            agent.followup(prompt)
    assert model.asked == ["large", "large", "large"]
    assert session.context_window == 200_000
    assert [record.getMessage() for record in caplog.records] == [
        "the capacity of p/large was not to be had: no route"
    ]


async def test_a_host_that_changes_the_model_gets_that_ones_capacity(session: Session) -> None:
    model = TwoModels()
    async with Agent(session, model, options=Routing(provider="p", model="large")) as agent:
        agent.followup("a")
        agent.followup("b")
        await agent.when_idle()
        agent.options = replace(agent.options, model="small")
        agent.followup("c")
        await agent.when_idle()
        assert agent.options.context_window == 2_000
        agent.options = replace(agent.options, model="large", context_window=90_000)
        agent.followup("d")
    assert agent.options.context_window == 90_000
    assert session.context_window == 90_000


async def test_a_hook_that_cannot_authorize_ends_the_turn_with_its_own_error(
    session: Session,
) -> None:
    class Broken(AgentHooks):
        async def authorize(self, agent: CompactionAgent, call: ToolCallBlock) -> str | None:
            del agent, call
            raise LookupError("no rules")

    script = [call(("c1", "bash", {}))]
    with pytest.raises(LookupError, match="no rules"):
        async with Agent(session, ScriptedModel(script), hooks=[Broken()]) as agent:
            agent.followup("go")
    ended = session.last("turn/end")
    assert ended is not None
    assert ended.data.wire()["reason"]["error"] == "LookupError: no rules"


async def test_a_call_is_answered_by_its_tool_and_the_model_goes_on(session: Session) -> None:
    seen: list[Mapping[str, Any]] = []

    def bash(input: Mapping[str, Any]) -> str:
        seen.append(input)
        return "output"

    await run(session, [call(("c1", "bash", {"command": "ls"})), say("done")], tools=[tool(bash)])
    assert seen == [{"command": "ls"}]
    assert results(session) == [("c1", "output", False)]
    assert derived_texts(session) == ["go", "", "", "done"]
    started = next(event for event in session.events if event.type == "tool/call")
    assert started.data == {
        "turn": 1,
        "step": 1,
        "callId": "c1",
        "name": "bash",
        "arguments": '{"command": "ls"}',
    }


async def test_parallel_calls_run_side_by_side_and_are_all_answered(session: Session) -> None:
    both = anyio.Event()
    running: list[str] = []

    async def meet(input: Mapping[str, Any]) -> str:
        running.append(input["name"])
        if len(running) == 2:
            both.set()
        await both.wait()  # each needs the other
        return f"met {input['name']}"

    calls = call(("a", "bash", {"name": "x"}), ("b", "bash", {"name": "y"}))
    await run(session, [calls, say("done")], tools=[tool(meet)])
    assert sorted(results(session)) == [("a", "met x", False), ("b", "met y", False)]


async def test_whatever_goes_wrong_with_a_call_is_a_failed_result(session: Session) -> None:
    def fails(_: Mapping[str, Any]) -> str:
        raise FileNotFoundError("no such file")

    bad = ToolCallBlock(type="tool-call", id="json", name="bash", arguments="{not json")
    odd = ToolCallBlock(type="tool-call", id="list", name="bash", arguments="[1]")
    script: list[Step] = [
        call(("a", "bash", {}), ("b", "nothing", {})),
        Reply(content=(bad, odd), stop="tool_use"),
        say("done"),
    ]
    await run(session, script, tools=[tool(fails)])
    found = {name: (text, error) for name, text, error in results(session)}
    assert found["a"] == ("FileNotFoundError: no such file", True)
    assert found["b"] == ("There is no tool 'nothing'.", True)
    assert found["json"][0].startswith("The arguments are no JSON:")
    assert found["list"] == ("The arguments are no JSON object.", True)
    assert all(error for _, error in found.values())


async def test_a_denied_call_is_answered_with_the_reason_and_its_tool_never_starts(
    session: Session,
) -> None:
    class Deny(AgentHooks):
        async def authorize(self, agent: CompactionAgent, call: ToolCallBlock) -> str | None:
            del agent
            return "not on a Friday" if call.id == "a" else None

    script = [call(("a", "bash", {}), ("b", "bash", {})), say("done")]
    await run(session, script, tools=[tool(lambda _: "ran")], hooks=[Deny()])
    assert sorted(results(session)) == [
        ("a", "denied: not on a Friday", True),
        ("b", "ran", False),
    ]
    assert [e.data["callId"] for e in session.events if e.type == "tool/call"] == ["b"]


async def test_a_tool_may_answer_with_blocks_and_an_empty_answer_still_says_something(
    session: Session,
) -> None:
    image = ImageBlock.model_validate({"type": "image", "source": {"data": "AAAA"}})
    tools = [tool(lambda _: [image], "see"), tool(lambda _: "", "quiet")]
    await run(session, [call(("a", "see", {}), ("b", "quiet", {})), say("done")], tools=tools)
    blocks = {
        event.data.message.block.tool_call_id: event.data.message.block.content
        for event in session.events
        if isinstance(event, ToolResult)
    }
    assert blocks["a"] == (image,)
    assert joined_text(blocks["b"]) == "(no output)"


async def test_a_call_is_on_disk_before_its_tool_starts(session: Session) -> None:
    sink = MemorySink()
    session.attach(sink)
    durable: list[str] = []

    def bash(_: Mapping[str, Any]) -> str:
        durable.extend(event.type for event in sink.taken[: sink.durable])
        return "ok"

    await run(session, [call(("a", "bash", {})), say("done")], tools=[tool(bash)])
    assert durable[-1] == "tool/call"
    assert sink.durable == len(sink.taken) == len(session)


async def test_injected_context_goes_into_the_next_step_of_a_running_turn(
    session: Session,
) -> None:
    model = ScriptedModel([call(("a", "bash", {})), say("done")])

    async with Agent(session, model) as agent:
        agent._turns._tools["bash"] = tool(lambda _: str(agent.inject("by the way")))
        agent.followup("go")
        await agent.when_idle()
    assert [message.role for message in model.requests[1].messages] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert joined_text(model.requests[1].messages[-1].content) == "by the way"


async def test_injected_context_alone_starts_no_turn(session: Session) -> None:
    async with Agent(session, ScriptedModel()) as agent:
        agent.inject("by the way")
        await agent.when_idle()
        assert len(session) == 0
        agent.followup("go")
    assert derived_texts(session) == ["by the way", "go", "answer"]


async def test_a_message_that_says_nothing_is_refused(session: Session) -> None:
    async with Agent(session, ScriptedModel()) as agent:
        with pytest.raises(SessionError, match="an empty message"):
            agent.followup("  \n")


async def test_a_failed_request_ends_the_turn_with_its_code_and_the_next_turn_runs(
    session: Session,
) -> None:
    script: list[Step] = [Fail(error=ModelError("rate-limit", "slow down")), say("better")]
    failures: list[Exception | None] = []
    async with Agent(session, ScriptedModel(script)) as agent:
        for prompt in ("a", "b"):
            agent.followup(prompt)
            await agent.when_idle()
            failures.append(agent.failure)
    assert isinstance(failures[0], ModelError)
    assert failures[1] is None
    assert endings(session) == [
        {"kind": "error", "code": "rate-limit", "error": "slow down"},
        {"kind": "completed"},
    ]
    assert types(session).count("step/start") == types(session).count("step/end")


async def test_a_foreign_error_of_a_provider_is_a_model_error(session: Session) -> None:
    agent = await run(session, [Fail(error=ConnectionError("reset"))])
    assert isinstance(agent.failure, ModelError)
    assert agent.failure.code == "unavailable"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(content=()),
        say(" \n "),
        Reply(content=(ReasoningBlock(type="reasoning", text="hm"),)),
        call(("a", "bash", {}), ("a", "bash", {})),
    ],
)
async def test_an_answer_no_request_could_carry_on_from_ends_the_turn(
    session: Session, reply: Reply
) -> None:
    agent = await run(session, [reply])
    assert isinstance(agent.failure, ModelError)
    assert agent.failure.code == "invalid"
    assert session.last("assistant/message") is None


async def test_empty_text_beside_a_call_is_left_out(session: Session) -> None:
    blocks = (*say("").content, *call(("a", "bash", {})).content)
    await run(session, [Reply(content=blocks), say("done")], tools=[tool(lambda _: "ok")])
    first = next(event for event in session.events if isinstance(event, AssistantMessage))
    assert [block.type for block in first.data.message.content] == ["tool-call"]


async def test_a_turn_ends_at_its_most_steps(session: Session) -> None:
    script: list[Step] = [call((f"c{index}", "bash", {})) for index in range(5)]
    await run(session, script, tools=[tool(lambda _: "ok")], max_steps=2)
    assert endings(session) == [{"kind": "max-steps"}]
    assert types(session).count("step/start") == 2


async def test_cancelling_a_request_closes_the_turn_with_the_cause(session: Session) -> None:
    started = anyio.Event()
    async with Agent(session, ScriptedModel([Stall(started=started.set)])) as agent:
        assert agent.cancel() is False
        agent.followup("go")
        await started.wait()
        assert agent.status == "running"
        assert agent.cancel("changed my mind") is True
        await agent.when_idle()
        agent.followup("again")
    assert endings(session) == [
        {"kind": "cancelled", "cause": "changed my mind"},
        {"kind": "completed"},
    ]
    assert types(session).count("step/start") == types(session).count("step/end")


async def test_cancelling_tools_answers_every_call_and_keeps_what_was_answered(
    session: Session,
) -> None:
    running = anyio.Event()

    async def hang(_: Mapping[str, Any]) -> str:
        running.set()
        await anyio.sleep_forever()
        return ""

    async def quick(_: Mapping[str, Any]) -> str:
        return "quick"

    tools = [tool(hang, "hang"), tool(quick, "quick")]
    script = [call(("a", "quick", {}), ("b", "hang", {}))]
    async with Agent(session, ScriptedModel(script), tools) as agent:
        agent.followup("go")
        await running.wait()
        await anyio.wait_all_tasks_blocked()
        agent.cancel("stop")
        await agent.when_idle()
    assert results(session) == [
        ("a", "quick", False),
        ("b", "hang: stopped while it ran: stop", True),
    ]


async def test_a_host_that_ends_closes_the_turn_too(session: Session) -> None:
    started = anyio.Event()
    with anyio.CancelScope() as scope:
        async with Agent(session, ScriptedModel([Stall(started=started.set)])) as agent:
            agent.followup("go")
            await started.wait()
            scope.cancel()
            await anyio.sleep(1)
    assert endings(session) == [{"kind": "cancelled", "cause": "the host ended"}]


async def test_an_error_in_a_hosts_own_hook_is_raised_and_the_turn_closed(
    session: Session,
) -> None:
    class Broken(AgentHooks):
        async def pre_step(self, agent: CompactionAgent) -> None:
            del agent
            raise LookupError("a bug of the host")

    with pytest.raises(LookupError, match="a bug of the host"):
        await run(session, [], hooks=[Broken()])
    assert endings(session)[0]["kind"] == "error"


async def test_maintenance_holds_back_turns_and_gives_its_result(session: Session) -> None:
    async with Agent(session, ScriptedModel()) as agent:

        async def task() -> str:
            agent.followup("go")
            await anyio.sleep(0.01)
            assert len(session) == 0
            return "done"

        assert await agent.run_maintenance(task) == "done"
    assert endings(session) == [{"kind": "completed"}]


async def test_maintenance_is_refused_while_other_maintenance_or_a_turn_is_under_way(
    session: Session,
) -> None:
    started = anyio.Event()

    async def nothing() -> None:
        raise AssertionError

    async with Agent(session, ScriptedModel([Stall(started=started.set)])) as agent:

        async def outer() -> None:
            with pytest.raises(ManualCompactionError) as caught:
                await agent.run_maintenance(nothing)
            assert caught.value.code == "busy"

        await agent.run_maintenance(outer)
        agent.followup("go")
        await started.wait()
        with pytest.raises(ManualCompactionError) as caught:
            await agent.run_maintenance(nothing)
        assert caught.value.code == "busy"
        agent.cancel()


async def test_maintenance_the_agent_cancels_is_told_with_its_cause(session: Session) -> None:
    cause = RuntimeError("shutting down")
    async with Agent(session, ScriptedModel()) as agent:

        async def task() -> None:
            agent.cancel(cause)
            await anyio.sleep(1)

        with pytest.raises(ManualCompactionError) as caught:
            await agent.run_maintenance(task)
        assert caught.value.code == "cancelled"
        assert caught.value.__cause__ is cause
        agent.followup("go on")
    assert endings(session) == [{"kind": "completed"}]


@pytest.mark.parametrize("answer", [None, "", "  \n", [], [text_block(" ")]])
async def test_an_answer_with_nothing_in_it_says_so(session: Session, answer: Any) -> None:
    """A blank result would be refused with the next request."""
    await run(session, [call(("a", "t", {})), say("done")], tools=[tool(lambda _: answer, "t")])
    assert [text for _, text, _ in results(session)] == ["(no output)"]


@pytest.mark.parametrize("answer", [5, [{"type": "text", "text": "x"}], object()])
async def test_an_answer_of_the_wrong_type_is_a_failed_result(
    session: Session, answer: Any
) -> None:
    """It is the model's to read and no end of the host."""
    await run(session, [call(("a", "t", {})), say("done")], tools=[tool(lambda _: answer, "t")])
    ((_, text, failed),) = results(session)
    assert "not text or content blocks" in text
    assert failed
