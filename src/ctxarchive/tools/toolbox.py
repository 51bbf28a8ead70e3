"""What a tool is, and how a call of one becomes a result on the log, whatever happens to it.

Decides nothing about which calls are allowed; a cancelled call is left to the host to answer.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import anyio.to_thread

from ctxarchive.errors import alone
from ctxarchive.session.log import Session
from ctxarchive.session.messages import TextBlock, ToolCallBlock, WireModel
from ctxarchive.session.pairing import open_calls
from ctxarchive.session.repair import append_result

ToolAnswer = str | Sequence[WireModel]
"""A text, or content blocks."""


class Tool(Protocol):
    """Something a model may call."""

    @property
    def name(self) -> str:
        """What the model calls it."""

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and JSON schema, as the Messages API takes a tool."""

    def run(self, input: Mapping[str, Any]) -> ToolAnswer | Awaitable[ToolAnswer]:
        """Answer one call; any exception becomes a failed result.

        A plain function runs in a worker thread, a coroutine function on the event loop.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool made of a function.

    Attributes:
        name: what the model calls it.
        description: what the model is told of it.
        schema: JSON schema of its arguments.
        run: the function, plain or a coroutine function.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], ToolAnswer | Awaitable[ToolAnswer]]

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes a tool."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.schema),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a call came to."""

    content: str | list[dict[str, Any]]
    is_error: bool


Authorize = Callable[[ToolCallBlock], Awaitable[str | None]]
"""Says why a call is denied; ``None`` lets it run."""


async def run_calls(
    session: Session,
    calls: Sequence[ToolCallBlock],
    tools: Mapping[str, Tool],
    *,
    authorize: Authorize,
    place: Mapping[str, int],
) -> None:
    """Run a step's calls side by side; each result is on the log as soon as it is there.

    Args:
        session: where the calls stand, and their results go.
        calls: what was called.
        tools: what there is, by name.
        authorize: asked before each call is run.
        place: the ``turn`` and ``step`` they belong to.

    Raises:
        Exception: what ``authorize`` or the log raised; a group where several calls met one.
    """

    async def answer(call: ToolCallBlock) -> None:
        denied = await authorize(call)
        if denied is not None:
            outcome = Outcome(content=f"denied: {denied}", is_error=True)
        else:
            named = {"callId": call.id, "name": call.name, "arguments": call.arguments}
            session.append("tool/call", {**place, **named})
            # Before it acts: a crash must not make a tool look as if it had never started.
            await session.flush()
            outcome = await run_call(tools.get(call.name), call)
        if call.id in open_calls(session):
            append_result(session, call, outcome.content, is_error=outcome.is_error, place=place)

    await session.flush()
    try:
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(answer, call)
    except BaseExceptionGroup as group_error:
        error = alone(group_error)
        raise error from error.__cause__


async def run_call(tool: Tool | None, call: ToolCallBlock) -> Outcome:
    """Run a call and give its outcome; only a cancellation passes through.

    Args:
        tool: what was called; ``None`` where there is no such tool.
        call: the call.
    """
    if tool is None:
        return Outcome(content=f"There is no tool {call.name!r}.", is_error=True)
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return Outcome(content=f"The arguments are no JSON: {error}", is_error=True)
    if not isinstance(arguments, dict):
        return Outcome(content="The arguments are no JSON object.", is_error=True)
    try:
        return Outcome(content=_content(await _run(tool, arguments)), is_error=False)
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is for the model to read
        return Outcome(content=f"{type(error).__name__}: {error}", is_error=True)


NO_OUTPUT = "(no output)"
"""What a model is told of an answer without anything in it: a blank result is refused."""


def _content(answer: Any) -> str | list[dict[str, Any]]:
    """An answer as a request can carry it.

    Raises:
        TypeError: for what is neither text nor content blocks.
    """
    if answer is None:
        return NO_OUTPUT
    if isinstance(answer, str):
        return answer if answer.strip() else NO_OUTPUT
    if not isinstance(answer, Sequence) or not all(isinstance(part, WireModel) for part in answer):
        raise TypeError(f"the tool returned {type(answer).__name__}, not text or content blocks")
    said = [part for part in answer if not (isinstance(part, TextBlock) and not part.text.strip())]
    return [block.wire() for block in said] or NO_OUTPUT


async def _run(tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
    answer: ToolAnswer | Awaitable[ToolAnswer]
    if inspect.iscoroutinefunction(tool.run):
        answer = tool.run(arguments)
    else:
        answer = await anyio.to_thread.run_sync(functools.partial(tool.run, arguments))
    return await answer if isinstance(answer, Awaitable) else answer
