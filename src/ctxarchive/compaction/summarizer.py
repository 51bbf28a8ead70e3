"""Summarizers: what turns a span into a text. Owns the protocol a model must meet.

A summary is text or a failure; an error, a refusal, an image or a tool call is never one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ctxarchive.compaction.engine import Trigger
from ctxarchive.errors import ModelError, SummaryError
from ctxarchive.session.log import Session
from ctxarchive.session.messages import (
    ContentBlock,
    ImageBlock,
    Message,
    Source,
    TextBlock,
    ToolCallBlock,
    text_block,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryInput:
    """What is to be summarized, and how large the answer may be."""

    session: Session
    compaction_id: str
    trigger: Trigger
    shadowed_seqs: tuple[int, ...]
    """The span's seqs, in surface order."""
    shadowed_tokens: int
    room_tokens: int | None
    """Most tokens of a checkpoint that leave the request below its threshold; ``None`` where no
    capacity is known."""
    max_tokens: int
    """Most tokens of the summary."""
    requests_follow: bool = False
    """Whether the checkpoint carries the user's messages beside the summary, so that it need not."""

    def messages(self) -> list[Message]:
        """The span's messages, in surface order."""
        found = (self.session.event_at(seq).message for seq in self.shadowed_seqs)
        return [message for message in found if message is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A finished summary."""

    text: str
    """The summarizer's own text."""
    additions: str = ""
    """What a backend appends to it, in the checkpoint's format; empty for none."""
    summarizer: str
    """Who wrote it: ``model``, ``extractive``, ``recorded``."""
    provider: str = ""
    model: str = ""
    max_tokens: int | None = None
    usage: dict[str, Any] | None = None
    raw_output: tuple[ContentBlock, ...] | None = None
    """The complete output, where it is more than the text."""
    llm_stream_call: bool = False
    """Whether exactly one model call produced it."""

    @property
    def output(self) -> tuple[ContentBlock, ...]:
        """What the summarizer put out."""
        return (text_block(self.text),) if self.raw_output is None else self.raw_output


class Summarizer(Protocol):
    """Turns a span into a text."""

    async def summarize(self, input: SummaryInput) -> Summary:
        """The summary of ``input``.

        Raises:
            SummaryError: when there is no usable one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model."""

    header: dict[str, Any]
    """The conversation's own routing, system prompt and tools, byte for byte."""
    messages: Sequence[Message]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's whole answer."""

    content: tuple[ContentBlock, ...]
    stop: str = "end_turn"
    """The provider's reason to stop: ``end_turn``, ``max_tokens``, ``refusal``, …"""
    provider: str = ""
    model: str = ""
    usage: dict[str, Any] | None = field(default=None)

    def message(self) -> Message:
        """The answer as a conversation keeps it, without text that says nothing.

        Raises:
            ModelError: ``invalid``, for an answer no request could carry on from.
        """
        said = [b for b in self.content if not isinstance(b, TextBlock) or b.text.strip()]
        if not any(isinstance(block, TextBlock | ToolCallBlock) for block in said):
            raise ModelError("invalid", f"the model answered nothing (stop reason {self.stop!r})")
        calls = [block.id for block in said if isinstance(block, ToolCallBlock)]
        if len(set(calls)) < len(calls):
            raise ModelError("invalid", "the model gave one id to several calls")
        source = {"kind": "model", "provider": self.provider, "model": self.model}
        return Message(role="assistant", content=tuple(said), source=Source.model_validate(source))


class Model(Protocol):
    """A language model behind some provider."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer ``request``.

        Raises:
            ModelError: ``context-overflow`` for a request that is too long, whatever the provider
                calls it; other codes for other failures.
        """


INSTRUCTION = """\
Stop working on the task for this one message and write a summary of the conversation above, for \
yourself: the messages it covers will be removed and your summary will stand in their place. Answer \
with text only; call no tool. Use these headings, in this order, and write "none" under one that \
has nothing:

## Request and how it changed
## Concepts in play
## Files and code
## Errors and fixes
## Pending work
## Current work
## Next step
## Critical context (decisions, constraints, preferences)

Keep exact names, paths, numbers, commands and error texts. State what the user asked as they \
asked it, and add no instruction they did not give."""
"""The user message that ends a summary request."""


class ModelSummarizer:
    """Asks a model: the conversation's own request, plus one user message.

    Args:
        model: who is asked.
        route: provider and model that write summaries, where not the conversation's own; the
            provider's prompt cache is then not hit.
    """

    def __init__(self, model: Model, *, route: tuple[str, str] | None = None) -> None:
        self._model = model
        self._route = route

    async def summarize(self, input: SummaryInput) -> Summary:
        """The model's summary of ``input``.

        Raises:
            SummaryError: when the call fails or the answer is not a summary.
        """
        instruction = Message(role="user", content=(text_block(INSTRUCTION),))
        request = ModelRequest(
            header=self._header(input.session),
            messages=[*input.messages(), instruction],
            max_tokens=input.max_tokens,
        )
        try:
            answer = await self._model.complete(request)
        except SummaryError:
            raise
        except Exception as error:  # a provider's errors have no common base
            raise SummaryError("unavailable", f"the summary request failed: {error}") from error
        return Summary(
            text=summary_text(answer),
            summarizer="model",
            provider=answer.provider,
            model=answer.model,
            max_tokens=input.max_tokens,
            usage=answer.usage,
            raw_output=answer.content,
            llm_stream_call=True,
        )

    def _header(self, session: Session) -> dict[str, Any]:
        header = session.request_header
        if self._route is None:
            return header
        provider, model = self._route
        return {**header, "config": {"provider": provider, "model": model}}


def summary_text(answer: ModelAnswer) -> str:
    """The text of an answer that is a summary.

    Raises:
        SummaryError: when it is none: no text, cut off, refused, or something else than text.
    """
    if any(isinstance(block, ToolCallBlock) for block in answer.content):
        raise SummaryError("not-text", "the model called a tool instead of summarizing")
    if any(isinstance(block, ImageBlock) for block in answer.content):
        raise SummaryError("not-text", "the model answered with an image")
    if answer.stop in {"max_tokens", "model_context_window_exceeded"}:
        raise SummaryError("truncated", "the summary was cut off at its token limit")
    if answer.stop == "refusal":
        raise SummaryError("refused", "the model refused to summarize")
    text = "".join(block.text for block in answer.content if isinstance(block, TextBlock)).strip()
    if not text:
        raise SummaryError("empty", "the model's summary holds no text")
    return text
