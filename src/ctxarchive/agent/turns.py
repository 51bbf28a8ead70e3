"""How a turn goes: steps of one request, its answer, and the calls it makes.

Every event appended here keeps the session valid: calls are paired with results, steps and turns
are closed, whatever fails or is cancelled. When a turn may run is the loop's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import anyio

from ctxarchive.agent.hooks import AgentHooks
from ctxarchive.agent.inbox import Inbox
from ctxarchive.compaction.automatic import AutomaticCompaction
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.summarizer import Model, ModelAnswer, ModelRequest
from ctxarchive.compaction.target import Capacities, CapacityModel
from ctxarchive.compaction.transaction import live_bracket
from ctxarchive.errors import AgentError, ModelError
from ctxarchive.session.events import UserMessageData
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ToolCallBlock
from ctxarchive.session.repair import close_open, interrupted, stopped
from ctxarchive.tools.toolbox import Tool, run_calls


class TurnAgent(Protocol):
    """Whose turns they are."""

    session: Session
    options: Routing
    inbox: Inbox


@dataclass(kw_only=True)
class Stoppable:
    """Something under way that can be cancelled."""

    scope: anyio.CancelScope
    cause: BaseException | str | None = None
    """Why it was."""


def held(session: Session) -> AgentError | None:
    """What to tell of a compaction that is open on the log, and that nobody will close."""
    live = live_bracket(session)
    if live is None:
        return None
    return AgentError(
        "reopen",
        f"session {session.id!r} has a compaction that could not be closed "
        f"({live.data.compaction_id} at seq {live.seq}); reopen the session to go on",
    )


def mend(session: Session) -> None:
    """Close as interrupted what a session has open, as the store does when it opens one."""
    if live_bracket(session) is None:
        close_open(session, reason={"kind": "interrupted"}, answer=interrupted)


@dataclass(kw_only=True)
class Turns:
    """The turns of one agent; see :class:`~ctxarchive.agent.loop.Agent` for what they go by."""

    agent: TurnAgent
    model: Model
    tools: Sequence[Tool]
    hooks: Sequence[AgentHooks]
    compaction: Sequence[AutomaticCompaction]
    """Asked after the hooks."""
    system: str
    max_tokens: int
    max_steps: int | None

    def __post_init__(self) -> None:
        self._session = self.agent.session
        self._asked: tuple[AgentHooks | AutomaticCompaction, ...] = (*self.hooks, *self.compaction)
        self._tools = {tool.name: tool for tool in self.tools}
        source = self.model.capacity if isinstance(self.model, CapacityModel) else None
        self._capacities = Capacities(source)
        self._learned: Routing | None = None
        """Where requests went when a capacity was last asked for."""

    async def run(self, prompt: UserMessageData, stoppable: Stoppable) -> Exception | None:
        """Run one turn to its end; returns why it failed, ``None`` where it did not."""
        session = self._session
        last = session.last("turn/start")
        turn = 1 if last is None else last.data.turn + 1
        failure: ModelError | AgentError | None = None
        reason: dict[str, Any] = {"kind": "cancelled", "cause": "the host ended"}
        try:
            with stoppable.scope:
                mend(session)
                session.append("turn/start", {"turn": turn})
                self._take_injected()
                session.append("user/message", prompt, surface_op="append")
                await session.flush()
                reason = await self._steps(turn)
            if stoppable.scope.cancelled_caught:
                reason = {"kind": "cancelled", "cause": str(stoppable.cause)}
        except (ModelError, AgentError) as error:
            failure = error
            reason = {"kind": "error", "code": error.code, "error": str(error)}
        except Exception as error:
            reason = {"kind": "error", "error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            # No end of a turn may cross an open compaction: the log then stays as after a crash.
            if live_bracket(session) is None:
                told = reason.get("cause") or reason.get("error") or reason["kind"]
                close_open(session, reason=reason, answer=stopped(told))
                with anyio.CancelScope(shield=True):
                    await session.flush()
        return held(session) or failure

    async def _steps(self, turn: int) -> dict[str, Any]:
        """Step after step until nothing is left to do; returns why the turn ends."""
        session, step = self._session, 0
        while self.max_steps is None or step < self.max_steps:
            step += 1
            place = {"turn": turn, "step": step}
            self._take_injected()
            # Before the hooks: automatic compaction needs the capacity for the first step too.
            await self._learn_capacity()
            for hook in self._asked:
                await hook.pre_step(self.agent)
            self._stop_if_held()
            session.append("step/start", place)
            answer = await self._ask()
            message = answer.message()
            usage = {} if answer.usage is None else {"usage": answer.usage}
            data = {**place, "message": message.wire(), **usage}
            session.append("assistant/message", data, surface_op="append")
            calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
            if calls:
                await run_calls(session, calls, self._tools, authorize=self._authorize, place=place)
            session.append("step/end", place)
            if not calls and not self.agent.inbox.next_step:
                return {"kind": "completed"}
        return {"kind": "max-steps"}

    def _stop_if_held(self) -> None:
        stuck = held(self._session)
        if stuck is not None:
            raise stuck

    def _take_injected(self) -> None:
        waiting = self.agent.inbox.next_step
        while waiting:
            self._session.append("user/message", waiting.popleft(), surface_op="append")

    async def _learn_capacity(self) -> None:
        options, learned = self.agent.options, self._learned
        target = (options.provider, options.model)
        # A host that goes on with `replace(agent.options, model=…)` copies what was learned here.
        copied = learned is not None and options.context_window == learned.context_window
        other = learned is not None and target != (learned.provider, learned.model)
        if options.context_window is None or (copied and other):
            window = await self._capacities.ask(*target)
            self.agent.options = self._learned = replace(options, context_window=window)

    async def _ask(self) -> ModelAnswer:
        """The model's answer; a failed request is tried again as long as a hook made progress."""
        self._describe_requests()
        attempt = 0
        while True:
            self._stop_if_held()
            try:
                return await self._complete()
            except ModelError as error:
                # One after the other: the first hook that can help is enough.
                for hook in self._asked:
                    if await hook.request_error(self.agent, error, attempt):
                        break
                else:
                    raise
            attempt += 1

    def _describe_requests(self) -> None:
        options = self.agent.options
        header: dict[str, Any] = {"config": {"provider": options.provider, "model": options.model}}
        if self.system:
            header["system"] = self.system
        if self._tools:
            header["tools"] = [tool.definition for tool in self._tools.values()]
        self._session.describe_requests(header, context_window=options.context_window)

    async def _complete(self) -> ModelAnswer:
        request = ModelRequest(
            header=self._session.request_header,
            messages=self._session.derive_messages(),
            max_tokens=self.max_tokens,
        )
        try:
            answer = await self.model.complete(request)
        except ModelError:
            raise
        except Exception as error:  # a provider's errors have no common base
            raise ModelError("unavailable", f"{type(error).__name__}: {error}") from error
        if answer.stop == "model_context_window_exceeded":
            raise ModelError("context-overflow", "the model ran out of context while answering")
        return answer

    async def _authorize(self, call: ToolCallBlock) -> str | None:
        for hook in self.hooks:
            denied = await hook.authorize(self.agent, call)
            if denied is not None:
                return denied
        return None
