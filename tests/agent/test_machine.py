"""Anything that can happen to a compacting agent, in any order: what holds after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ctxarchive.agent.commands import compact_command
from ctxarchive.agent.hooks import AgentHooks
from ctxarchive.agent.loop import Agent
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import CompactionAgent, Routing
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner
from ctxarchive.compaction.span import NoSpan, select_all_but_newest
from ctxarchive.compaction.summarizer import INSTRUCTION, ModelAnswer, ModelRequest, ModelSummarizer
from ctxarchive.errors import ModelError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ToolCallBlock, joined_text
from ctxarchive.testing.models import Fail, ScriptedModel, Stall, Step, call, overflow, say
from ctxarchive.testing.sessions import MemorySink
from ctxarchive.testing.validity import request_faults
from ctxarchive.tools.toolbox import FunctionTool

WINDOW = 2_000
POLICY = CompactionPolicy(min_span_tokens=50, min_reclaim_tokens=30)
SIZES = st.sampled_from([1, 20, 200, 600])


class Watching(ScriptedModel):
    """A scripted model that notes what is wrong with the requests it gets."""

    def __init__(self, session: Session, engine: BasicCompactionEngine) -> None:
        self.queue: list[Step] = []
        super().__init__(iter(self._pull, None))
        self.faults: list[str] = []
        self.summaries: list[Step] = []
        self._session = session
        self._engine = engine

    def _pull(self) -> Step:
        return self.queue.pop(0) if self.queue else say("answer")

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Look, then answer as scripted."""
        self.faults += request_faults(request.messages)
        if joined_text(request.messages[-1].content) == INSTRUCTION:
            self._summary = (
                self.summaries.pop(0) if self.summaries else say("## Request\na summary")
            )
        else:
            self._look_for_pressure()
        return await super().complete(request)

    def _look_for_pressure(self) -> None:
        """No pressure may be left that could have been relieved."""
        measured = self._engine.meter.measure(self._session)
        if measured.total < WINDOW * POLICY.threshold_ratio:
            return
        left = select_all_but_newest(
            self._session,
            measured,
            min_tokens=POLICY.min_span_tokens,
            min_reclaim=POLICY.min_reclaim_tokens,
        )
        end = self._session.last("compaction/end")
        refused = end is not None and "the checkpoint has" in (end.data.error or "")
        if not isinstance(left, NoSpan) and not refused:
            self.faults.append(f"{measured.total} tokens, and {left.tokens} could be compacted")


class Deny(AgentHooks):
    """Denies every call whose id says so."""

    async def authorize(self, agent: CompactionAgent, call: ToolCallBlock) -> str | None:
        """Deny, or not."""
        del agent
        return "denied by the test" if call.id.endswith("deny") else None


def output(arguments: Mapping[str, Any]) -> str:
    """A tool that prints so much."""
    return "output line\n" * int(arguments["lines"])


def broken(_: Mapping[str, Any]) -> str:
    """A tool that fails."""
    raise OSError("broken")


async def hang(_: Mapping[str, Any]) -> str:
    """A tool that never returns."""
    await anyio.sleep_forever()
    return ""


class CompactingAgent(RuleBasedStateMachine):
    """A session, an agent and a basic engine, driven from outside."""

    backend = "asyncio"

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal(self.backend))
        self.session = Session.create("machine")
        self.session.attach(MemorySink())
        self.engine = BasicCompactionEngine(
            policy=POLICY,
            meter=TokenMeter(CharacterEstimator()),
            pruner=ToolResultPruner(PruneSettings(max_chars=2_000, head_chars=500, tail_chars=300)),
        )
        self.model = Watching(self.session, self.engine)
        self.engine._summarizer = ModelSummarizer(self.model)
        self.calls = 0
        self.open()

    def open(self) -> None:
        """An agent on the session."""
        tools = [
            FunctionTool(name=name, description="", schema={}, run=run)
            for name, run in (("output", output), ("broken", broken), ("hang", hang))
        ]
        options = Routing(provider="scripted", model="scripted", context_window=WINDOW)
        self.agent = self.stack.enter_context(
            self.portal.wrap_async_context_manager(
                Agent(
                    self.session,
                    self.model,
                    tools,
                    compaction=self.engine,
                    hooks=[Deny()],
                    options=options,
                )
            )
        )

    def teardown(self) -> None:
        """Close the agent and its loop."""
        self.stack.close()

    def call_id(self, kind: str = "") -> str:
        """A fresh call id."""
        self.calls += 1
        return f"c{self.calls}{kind}"

    def ask(self, words: int, *steps: Step, meanwhile: Callable[[], None] | None = None) -> None:
        """One turn, to its end."""
        self.model.queue += steps

        async def turn() -> None:
            self.agent.followup("please " * words)
            if meanwhile is not None:
                await anyio.wait_all_tasks_blocked()
                meanwhile()
            await self.agent.when_idle()

        self.portal.call(turn)
        self.model.queue.clear()

    @rule(words=SIZES, answer=SIZES)
    def text(self, words: int, answer: int) -> None:
        """A turn of text."""
        self.ask(words, say("well " * answer))

    @rule(lines=st.lists(SIZES, min_size=1, max_size=3), prose=st.booleans())
    def tools(self, lines: list[int], prose: bool) -> None:  # noqa: FBT001 - drawn
        """A turn with parallel calls."""
        calls = [(self.call_id(), "output", {"lines": count}) for count in lines]
        self.ask(5, call(*calls, text="let me see" if prose else ""), say("done"))

    @rule()
    def failing_tools(self) -> None:
        """A turn with a failed, a denied and an unknown call."""
        calls = [
            (self.call_id(), "broken", {}),
            (self.call_id("deny"), "output", {"lines": 1}),
            (self.call_id(), "unknown", {}),
        ]
        self.ask(5, call(*calls), say("done"))

    @rule(times=st.integers(min_value=1, max_value=3), words=SIZES)
    def overflows(self, times: int, words: int) -> None:
        """A turn whose requests overflow."""
        self.ask(words, *[overflow()] * times, say("made it"))

    @rule(where=st.sampled_from(["request", "tool"]))
    def stalls_and_is_cancelled(self, where: str) -> None:
        """A turn that hangs and is cancelled."""
        step: Step = Stall()
        if where == "tool":
            step = call((self.call_id(), "hang", {}), (self.call_id(), "output", {"lines": 2}))
        self.ask(5, step, meanwhile=lambda: drop(self.agent.cancel("the test")))

    @rule(bad=st.sampled_from(["", "  ", "error"]))
    def the_model_fails(self, bad: str) -> None:
        """A turn whose answer is useless."""
        step: Step = Fail(error=ModelError("unavailable", "down")) if bad == "error" else say(bad)
        self.ask(5, step)

    @rule(words=SIZES)
    def injected(self, words: int) -> None:
        """Context for the next step."""
        self.portal.call(self.agent.inject, "context " * words)

    @rule(kind=st.sampled_from(["good", "empty", "fails", "huge"]))
    def the_next_summary_is(self, kind: str) -> None:
        """A summary of a kind to come."""
        kinds: dict[str, Step] = {
            "good": say("## Request\nshort"),
            "empty": say(" "),
            "fails": Fail(error=ModelError("context-overflow", "too long")),
            "huge": say("huge " * 5_000),
        }
        self.model.summaries.append(kinds[kind])

    @rule(cancel=st.booleans())
    def compact(self, cancel: bool) -> None:  # noqa: FBT001 - drawn
        """A manual compaction, perhaps cancelled while its summary is written."""

        async def compacted() -> str:
            if not cancel:
                return await compact_command(self.agent)
            self.model.summaries.insert(0, Stall())
            async with anyio.create_task_group() as group:
                said: list[str] = []

                async def run() -> None:
                    said.append(await compact_command(self.agent))

                group.start_soon(run)
                await anyio.wait_all_tasks_blocked()
                self.agent.cancel("the test")
            if self.model.summaries and isinstance(self.model.summaries[0], Stall):
                self.model.summaries.pop(0)
            return said[0]

        self.portal.call(compacted)

    @rule()
    def reopen(self) -> None:
        """The process ends and another goes on with the log."""
        self.stack.close()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal(self.backend))
        before = self.session.derive_messages()
        self.session = Session.create("machine", self.session.events)
        self.session.attach(MemorySink())
        assert self.session.derive_messages() == before
        self.model._session = self.session
        self.open()

    @invariant()
    def the_log_is_sound(self) -> None:
        """No compaction left anything it may not."""
        assert check_compactions(self.session.events) == []
        assert self.session.open_turn is None

    @invariant()
    def every_request_was_and_the_next_will_be_valid(self) -> None:
        """Roles, pairs, nothing empty; and no relievable pressure was left."""
        assert self.model.faults == []
        assert request_faults(self.session.derive_messages()) == []

    @invariant()
    def totals_are_never_negative_and_equal_a_fresh_count(self) -> None:
        """The meter's running total is what a new meter finds."""
        measured = self.engine.meter.measure(self.session)
        fresh = TokenMeter(CharacterEstimator()).measure(self.session)
        assert measured.total == fresh.total >= 0
        assert measured.surface == fresh.surface >= 0


class TrioCompactingAgent(CompactingAgent):
    """The same under trio."""

    backend = "trio"


def drop(_: object) -> None:
    """Use nothing."""


_SETTINGS = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CompactingAgent.TestCase.settings = _SETTINGS
TrioCompactingAgent.TestCase.settings = _SETTINGS
TestUnderAsyncio = CompactingAgent.TestCase
TestUnderTrio = TrioCompactingAgent.TestCase
