"""Sessions to begin with, an idle agent to own them, and a sink that can be made to fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from ctxarchive.compaction.engine import Routing
from ctxarchive.errors import ManualCompactionError
from ctxarchive.session.events import Event
from ctxarchive.session.log import Session, SessionHeader
from ctxarchive.session.messages import joined_text

T = TypeVar("T")

PROMPT = "older conversation history " * 60
"""A prompt long enough that a checkpoint of a few words is smaller."""


def user(session: Session, text: str, *, kind: str = "user") -> Event:
    """Append a user message."""
    return session.append(
        "user/message",
        {"role": "user", "content": [{"type": "text", "text": text}], "source": {"kind": kind}},
        surface_op="append",
    )


def assistant(session: Session, text: str, *calls: tuple[str, str, str], **data: Any) -> Event:
    """Append an assistant message.

    Args:
        session: where.
        text: its prose; none where empty.
        calls: id, name and raw arguments of each tool call.
        data: further fields of the payload.
    """
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": content, "source": {"kind": "model"}}
    return session.append("assistant/message", {**data, "message": message}, surface_op="append")


def result(session: Session, call_id: str, text: str, **message: Any) -> Event:
    """Append a tool's result."""
    content = [{"type": "text", "text": text}]
    value = {"role": "tool", "toolCallId": call_id, "content": content, **message}
    return session.append("tool/result", {"message": value}, surface_op="append")


def closed_conversation(
    turns: int = 2,
    *,
    last_turn: int | None = None,
    session: Session | None = None,
    text: str = PROMPT,
) -> Session:
    """A session of closed turns, each of one long prompt and a short answer.

    Args:
        turns: how many.
        last_turn: number of the last; ``turns`` by default.
        session: where to append them; a new one by default.
        text: what each prompt begins with.
    """
    session = Session.create(f"closed-{turns}") if session is None else session
    for index in range(1, turns + 1):
        turn = last_turn if last_turn is not None and index == turns else index
        session.append("turn/start", {"turn": turn})
        user(session, f"{text} {turn}")
        session.append("step/start", {"turn": turn, "step": 1})
        if index == 1:
            header = {"config": {"provider": "scripted", "model": "scripted"}}
            session.append("request/header", {"header": header, "reason": "initial"})
        assistant(session, f"answer {turn}", turn=turn, step=1)
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    return session


def derived_texts(session: Session) -> list[str]:
    """The text of each message the model would see."""
    return [joined_text(message.content) for message in session.derive_messages()]


class IdleAgent:
    """An agent that does nothing by itself.

    Args:
        session: its session.
        options: where its requests would go.
        admits: whether maintenance may run.
    """

    def __init__(
        self, session: Session, *, options: Routing | None = None, admits: bool = True
    ) -> None:
        self.session = session
        self.options = options or Routing(provider="scripted", model="scripted")
        self.admits = admits
        self.reserved = 0
        """How often maintenance was asked for."""
        self.released = 0
        """How often it has settled."""
        self._scope: anyio.CancelScope | None = None
        self._cause: BaseException | None = None

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task``, as the protocol has it.

        Raises:
            ManualCompactionError: ``busy`` or ``cancelled``.
        """
        self.reserved += 1
        if not self.admits:
            raise ManualCompactionError("busy", "the agent has active work already")
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                return await task()
            finally:
                self.released += 1
        raise ManualCompactionError("cancelled", f"cancelled: {self._cause}") from self._cause

    def cancel(self, cause: BaseException) -> None:
        """Cancel what maintenance is running."""
        self._cause = cause
        if self._scope is not None:
            self._scope.cancel()


class MemorySink:
    """A sink that keeps events in memory, counts flushes, and fails or waits where told."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.durable = 0
        """How many events had been taken at the newest flush."""
        self.flushes = 0
        self.error: Exception | None = None
        """Raised by the next flush, once."""
        self.gate: anyio.Event | None = None
        """Waited for by every flush."""
        self.on_flush: Callable[[], None] | None = None
        """Called when a flush begins."""

    def write(self, event: Event) -> None:
        """Take an event."""
        self.taken.append(event)

    async def flush(self) -> None:
        """Count, wait, fail: as told.

        Raises:
            Exception: what :attr:`error` says.
        """
        self.flushes += 1
        if self.on_flush is not None:
            self.on_flush()
        await checkpoint()  # as a real one: a cancellation may arrive here
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.durable = len(self.taken)


class RefusingSession(Session):
    """A session that refuses to append one type of event while told to.

    Args:
        session_id: its id.
    """

    def __init__(self, session_id: str = "refusing") -> None:
        super().__init__(SessionHeader(id=session_id))
        self.refuses: dict[str, str] = {}
        """Event types that are refused, with the message of the error."""
        self.refused: list[str] = []
        """What was refused so far."""

    def append(self, event_type: str, data: Mapping[str, Any] | BaseModel, **options: Any) -> Event:
        """Append, unless refused.

        Raises:
            RuntimeError: with the message given for the type.
        """
        if event_type in self.refuses:
            self.refused.append(event_type)
            raise RuntimeError(self.refuses[event_type])
        return super().append(event_type, data, **options)
