"""A model that answers from a script: the same answers every time, and every request kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from ctxarchive.compaction.summarizer import INSTRUCTION, ModelAnswer, ModelRequest
from ctxarchive.errors import ModelError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.messages import ContentBlock, ToolCallBlock, joined_text, text_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A scripted answer."""

    content: tuple[ContentBlock, ...]
    stop: str = "end_turn"
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """A scripted failure."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A scripted wait before the next item of the script; without end until cancelled."""

    seconds: float | None = None
    started: Callable[[], None] | None = field(default=None)
    """Called when the wait begins."""


Step = Reply | Fail | Stall


def say(text: str, *, usage: dict[str, Any] | None = None) -> Reply:
    """An answer of one text."""
    return Reply(content=(text_block(text),), usage=usage)


def call(*calls: tuple[str, str, Mapping[str, Any]], text: str = "") -> Reply:
    """An answer that calls tools, side by side where there are several.

    Args:
        calls: id, tool name and arguments of each.
        text: prose before the calls.
    """
    blocks: list[ContentBlock] = [text_block(text)] if text else []
    blocks += [
        ToolCallBlock(
            type="tool-call",
            id=call_id,
            name=name,
            arguments=json.dumps(dict(arguments), ensure_ascii=False),
        )
        for call_id, name, arguments in calls
    ]
    return Reply(content=tuple(blocks), stop="tool_use")


def overflow() -> Fail:
    """The failure of a request that is too long."""
    return Fail(error=ModelError("context-overflow", "prompt is too long"))


class ScriptedModel:
    """Answers from a script, then always the same.

    Args:
        script: what to answer, in order.
        then: what to answer when the script is at its end.
        summary: what to answer a summary request with, beside the script.
        capacity: tokens it can hold: a longer request, by characters/4, overflows; no limit where
            ``None``.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        then: str = "answer",
        summary: Step | None = None,
        capacity: int | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        """Every request, in order."""
        self._script = iter(script)
        self._then = then
        self._summary = summary or say("## Request and how it changed\na scripted summary")
        self._capacity = capacity
        self._meter = TokenMeter(CharacterEstimator())

    async def capacity(self, provider: str, model: str) -> int | None:
        """What it can hold."""
        del provider, model
        return self._capacity

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer as scripted.

        Raises:
            ModelError: as scripted, or ``context-overflow`` beyond the capacity.
        """
        self.requests.append(request)
        if self._capacity is not None and self._size(request) > self._capacity:
            raise ModelError("context-overflow", f"more than {self._capacity} tokens")
        step = self._summary if _asks_for_summary(request) else self._next()
        while isinstance(step, Stall):
            if step.started is not None:
                step.started()
            await (anyio.sleep_forever() if step.seconds is None else anyio.sleep(step.seconds))
            step = self._next()
        await checkpoint()
        if isinstance(step, Fail):
            raise step.error
        return ModelAnswer(
            content=step.content,
            stop=step.stop,
            provider="scripted",
            model="scripted",
            usage=step.usage,
        )

    def _next(self) -> Step:
        return next(self._script, None) or say(self._then)

    def _size(self, request: ModelRequest) -> int:
        header = len(json.dumps(request.header, ensure_ascii=False)) // 4
        return header + sum(self._meter.message(message) for message in request.messages)


def _asks_for_summary(request: ModelRequest) -> bool:
    return bool(request.messages) and joined_text(request.messages[-1].content) == INSTRUCTION


def request_texts(request: ModelRequest) -> list[str]:
    """The text of each message of a request, in order."""
    return [joined_text(message.content) for message in request.messages]
