"""The agent: turns and steps over one session, one request at a time.

Every event it appends keeps the session valid: calls are paired with results, steps and turns are
closed, whatever fails or is cancelled. It decides nothing about compaction; hooks do.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import anyio

from ctxarchive.agent.hooks import AgentHooks, compaction_hooks
from ctxarchive.agent.inbox import Inbox, Prompt
from ctxarchive.agent.toolbox import Outcome, Tool, run_call
from ctxarchive.compaction.engine import CompactionEngine, Routing
from ctxarchive.compaction.summarizer import Model, ModelAnswer, ModelRequest
from ctxarchive.errors import ManualCompactionError, ModelError
from ctxarchive.session.events import AssistantMessageData, RequestContext, UserMessageData
from ctxarchive.session.log import Session
from ctxarchive.session.messages import (
    ContentBlock,
    Message,
    Source,
    TextBlock,
    ToolCallBlock,
)
from ctxarchive.session.pairing import open_calls
from ctxarchive.session.repair import append_result, close_open

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@runtime_checkable
class CapacityModel(Protocol):
    """A model that knows what it can hold."""

    async def capacity(self, provider: str, model: str) -> int | None:
        """Tokens ``model`` can hold; ``None`` where that is not known."""


class Agent:
    """An agent; lives within ``async with``, and waits there until it is idle.

    Args:
        session: its log.
        model: answers its requests.
        tools: what the model may call.
        compaction: what relieves it of old history; ``None`` for nothing.
        options: where requests go.
        system: the system prompt.
        hooks: asked before and after compaction's own.
        max_tokens: most tokens of one answer.
        max_steps: most steps of one turn; ``None`` for no limit.
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        tools: Sequence[Tool] = (),
        *,
        compaction: CompactionEngine | None = None,
        options: Routing | None = None,
        system: str = "",
        hooks: Sequence[AgentHooks] = (),
        max_tokens: int = 8_192,
        max_steps: int | None = None,
    ) -> None:
        self.session = session
        self.compaction = compaction
        self.options = options or Routing()
        self.inbox = Inbox()
        self.failure: Exception | None = None
        """Why the newest turn failed; ``None`` where it did not."""
        self._model = model
        self._tools = {tool.name: tool for tool in tools}
        self._hooks = (*hooks, *compaction_hooks(compaction))
        self._system = system
        self._max_tokens = max_tokens
        self._max_steps = max_steps
        self._turn_scope: anyio.CancelScope | None = None
        self._maintenance: anyio.CancelScope | None = None
        self._cause: BaseException | str | None = None
        self._capacities: dict[tuple[str, str], int | None] = {}
        """What the model said of each target's capacity; asked once."""
        self._changed: anyio.Event | None = None
        """Replaced at every change of what the agent does; ``None`` before it lives."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._changed = anyio.Event()
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self._group.start_soon(self._drive)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            if error is None:
                await self.when_idle()
        finally:
            self._group.cancel_scope.cancel()
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def status(self) -> Literal["idle", "running"]:
        """Whether a turn is running; maintenance is no turn."""
        return "idle" if self._turn_scope is None else "running"

    def followup(self, prompt: Prompt) -> UserMessageData:
        """Queue a prompt; it starts a turn when those before it are done."""
        message = self.inbox.followup(prompt)
        self._notify()
        return message

    def inject(self, context: Prompt) -> UserMessageData:
        """Queue context for the next step; it starts no turn."""
        return self.inbox.inject(context)

    def cancel(self, cause: BaseException | str = "cancelled") -> bool:
        """Cancel the running turn or maintenance.

        Args:
            cause: why; on the log for a turn, the error's own cause for maintenance.

        Returns:
            Whether there was anything to cancel.
        """
        scope = self._turn_scope or self._maintenance
        if scope is None:
            return False
        self._cause = cause
        scope.cancel()
        return True

    async def when_idle(self) -> None:
        """Wait until no prompt waits, no turn runs and no maintenance is under way."""
        while self.inbox.next_turn or self._turn_scope or self._maintenance:
            await self._wait()

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task`` while idle; prompts are queued meanwhile, and start afterwards.

        Raises:
            ManualCompactionError: ``busy``, before anything ran, when a turn runs or waits, or
                other maintenance is under way; ``cancelled``, after :meth:`cancel`.
        """
        if self.inbox.next_turn or self._turn_scope or self._maintenance:
            raise ManualCompactionError("busy", "the agent has work under way")
        with anyio.CancelScope() as scope:
            self._maintenance = scope
            try:
                return await task()
            finally:
                self._maintenance = None
                self._notify()
        cause = self._cause
        raise ManualCompactionError("cancelled", f"the agent cancelled it: {cause}") from (
            cause if isinstance(cause, BaseException) else None
        )

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = anyio.Event()

    async def _wait(self) -> None:
        if self._changed is not None:
            await self._changed.wait()

    async def _drive(self) -> None:
        while True:
            while self.inbox.next_turn and self._maintenance is None:
                # Taken and running at once: in between, the agent would look idle.
                self._turn_scope = anyio.CancelScope()
                try:
                    await self._turn(self.inbox.next_turn.popleft(), self._turn_scope)
                finally:
                    self._turn_scope = None
                    self._notify()
            await self._wait()

    async def _turn(self, prompt: UserMessageData, scope: anyio.CancelScope) -> None:
        session = self.session
        last = session.last("turn/start")
        turn = 1 if last is None else last.data.turn + 1
        reason: dict[str, Any] = {"kind": "cancelled", "cause": "the host ended"}
        self.failure = None
        try:
            with scope:
                session.append("turn/start", {"turn": turn})
                self._take_injected()
                session.append("user/message", prompt, surface_op="append")
                await session.flush()
                reason = await self._steps(turn)
            if scope.cancelled_caught:
                reason = {"kind": "cancelled", "cause": str(self._cause)}
        except ModelError as error:
            self.failure = error
            reason = {"kind": "error", "code": error.code, "error": str(error)}
        except Exception as error:
            reason = {"kind": "error", "error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            told = reason.get("cause") or reason.get("error") or reason["kind"]
            close_open(
                session,
                reason=reason,
                answer=lambda call, started: (
                    f"{call.name}: {'stopped while it ran' if started else 'not run'}: {told}"
                ),
            )
            with anyio.CancelScope(shield=True):
                await session.flush()

    async def _steps(self, turn: int) -> dict[str, Any]:
        step = 0
        while self._max_steps is None or step < self._max_steps:
            step += 1
            self._take_injected()
            # Before the hooks: automatic compaction needs the capacity for the first step too.
            await self._learn_capacity()
            for hook in self._hooks:
                await hook.pre_step(self)
            self.session.append("step/start", {"turn": turn, "step": step})
            answer = await self._ask()
            calls = self._take_answer(answer, turn, step)
            if calls:
                await self._run_calls(calls, {"turn": turn, "step": step})
            self.session.append("step/end", {"turn": turn, "step": step})
            if not calls and not self.inbox.next_step:
                return {"kind": "completed"}
        return {"kind": "max-steps"}

    def _take_injected(self) -> None:
        while self.inbox.next_step:
            context = self.inbox.next_step.popleft()
            self.session.append("user/message", context, surface_op="append")

    async def _ask(self) -> ModelAnswer:
        """The model's answer; a failed request is tried again as long as a hook made progress."""
        await self._describe_request()
        attempt = 0
        while True:
            try:
                return await self._complete()
            except ModelError as error:
                # One after the other: the first hook that can help is enough.
                for hook in self._hooks:
                    if await hook.request_error(self, error, attempt):
                        break
                else:
                    raise
            attempt += 1

    async def _complete(self) -> ModelAnswer:
        request = ModelRequest(
            header=self.session.request_header,
            messages=self.session.derive_messages(),
            max_tokens=self._max_tokens,
        )
        try:
            answer = await self._model.complete(request)
        except ModelError:
            raise
        except Exception as error:  # a provider's errors have no common base
            raise ModelError("unavailable", f"{type(error).__name__}: {error}") from error
        if answer.stop == "model_context_window_exceeded":
            raise ModelError("context-overflow", "the model ran out of context while answering")
        return answer

    async def _describe_request(self) -> None:
        """Put the request's fixed part on the log, when it first holds or changes."""
        options, session = self.options, self.session
        header: dict[str, Any] = {"config": {"provider": options.provider, "model": options.model}}
        if self._system:
            header["system"] = self._system
        if self._tools:
            header["tools"] = [tool.definition for tool in self._tools.values()]
        if session.request_header != header:
            reason = "changed" if session.request_header else "initial"
            session.append("request/header", {"header": header, "reason": reason})
        window = options.context_window
        if window is None:
            return
        named = {"provider": options.provider, "model": options.model, "contextWindow": window}
        known = session.last("request/context")
        if not isinstance(known, RequestContext) or known.data.wire() != named:
            session.append("request/context", named)

    async def _learn_capacity(self) -> None:
        """Ask the model what it can hold, once a target, where nobody said it."""
        options = self.options
        if options.context_window is None and isinstance(self._model, CapacityModel):
            window = await self._ask_capacity(self._model, options.provider, options.model)
            if window is not None:
                self.options = replace(options, context_window=window)

    async def _ask_capacity(self, model: CapacityModel, provider: str, name: str) -> int | None:
        if (provider, name) not in self._capacities:
            try:
                self._capacities[provider, name] = await model.capacity(provider, name)
            except Exception as error:  # noqa: BLE001 - a failing endpoint leaves it unknown
                _LOG.warning("the capacity of %s/%s is unknown: %s", provider, name, error)
                self._capacities[provider, name] = None
        return self._capacities[provider, name]

    def _take_answer(self, answer: ModelAnswer, turn: int, step: int) -> list[ToolCallBlock]:
        """Append the answer and return its calls.

        Raises:
            ModelError: ``invalid``, for an answer no request could carry on from.
        """
        content = tuple(block for block in answer.content if _says_something(block))
        calls = [block for block in content if isinstance(block, ToolCallBlock)]
        if not any(isinstance(block, TextBlock | ToolCallBlock) for block in content):
            raise ModelError("invalid", f"the model answered nothing (stop reason {answer.stop!r})")
        if len({call.id for call in calls}) < len(calls):
            raise ModelError("invalid", "the model gave one id to several calls")
        data: dict[str, Any] = {
            "turn": turn,
            "step": step,
            "message": Message(
                role="assistant",
                content=content,
                source=Source.model_validate(
                    {"kind": "model", "provider": answer.provider, "model": answer.model}
                ),
            ),
        }
        if answer.usage is not None:
            data["usage"] = answer.usage
        self.session.append(
            "assistant/message", AssistantMessageData.model_validate(data), surface_op="append"
        )
        return calls

    async def _run_calls(self, calls: list[ToolCallBlock], place: dict[str, int]) -> None:
        """Run a step's calls side by side; each result is on the log as soon as it is there."""
        await self.session.flush()
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(self._run_call, call, place)

    async def _run_call(self, call: ToolCallBlock, place: dict[str, int]) -> None:
        denied = None
        for hook in self._hooks:
            denied = denied or await hook.authorize(self, call)
        if denied is not None:
            outcome = Outcome(content=f"denied: {denied}", is_error=True)
        else:
            named = {"callId": call.id, "name": call.name, "arguments": call.arguments}
            self.session.append("tool/call", {**place, **named})
            # Before it acts: a crash must not make a tool look as if it had never started.
            await self.session.flush()
            outcome = await run_call(self._tools.get(call.name), call)
        if call.id in open_calls(self.session):
            append_result(
                self.session, call, outcome.content, is_error=outcome.is_error, place=place
            )


def _says_something(block: ContentBlock) -> bool:
    return not isinstance(block, TextBlock) or bool(block.text.strip())
