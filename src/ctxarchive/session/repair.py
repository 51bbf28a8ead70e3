"""Closing what an interruption left open: unanswered calls, a step, a turn.

Appends what is missing and nothing else; a log with nothing open is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ctxarchive.session.events import AssistantMessage
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ToolCallBlock
from ctxarchive.session.pairing import open_calls

Answer = Callable[[ToolCallBlock, bool], str]
"""Says what an unanswered call is answered with, given whether its tool had started."""

STARTED = (
    "The session was interrupted before this call's result was recorded. The tool had started: "
    "what it does may be done, in part or whole. Check before you run it again."
)
"""The answer to a call whose tool had started."""

NOT_STARTED = (
    "The session was interrupted before this call was run. The tool had not started: nothing has "
    "been done."
)
"""The answer to a call whose tool had not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What was left open and is closed now."""

    calls: tuple[str, ...]
    """Ids of the calls that got a synthetic result."""
    step: int | None
    turn: int | None

    @property
    def anything(self) -> bool:
        """Whether there was something to close."""
        return bool(self.calls) or self.step is not None or self.turn is not None


def interrupted(call: ToolCallBlock, started: bool) -> str:  # noqa: FBT001 - an Answer
    """The answer after a crash."""
    return f"{call.name}: {STARTED if started else NOT_STARTED}"


def stopped(why: str) -> Answer:
    """The answer of a host that ended the turn itself.

    Args:
        why: what it is told of the reason.
    """
    return lambda call, started: (
        f"{call.name}: {'stopped while it ran' if started else 'not run'}: {why}"
    )


def close_open(session: Session, *, reason: Mapping[str, Any], answer: Answer) -> Closed:
    """Answer every open call, then close the open step and the open turn.

    Args:
        session: the session.
        reason: why the turn ends, e.g. ``{"kind": "interrupted"}``.
        answer: what each open call is answered with.

    Raises:
        SessionError: when the log refuses an event.
    """
    turn, step = session.open_turn, _open_step(session)
    place = {name: value for name, value in (("turn", turn), ("step", step)) if value is not None}
    calls = _unanswered(session)
    started = _started(session, {call.id for call in calls})
    for call in calls:
        append_result(session, call, answer(call, call.id in started), is_error=True, place=place)
    if step is not None:
        session.append("step/end", {"turn": turn, "step": step})
    if turn is not None:
        session.append("turn/end", {"turn": turn, "reason": dict(reason)})
    return Closed(calls=tuple(call.id for call in calls), step=step, turn=turn)


def append_result(
    session: Session,
    call: ToolCallBlock,
    content: str | list[dict[str, Any]],
    *,
    is_error: bool,
    place: Mapping[str, int],
) -> None:
    """Append a tool's answer.

    Args:
        session: the session.
        call: the call it answers.
        content: its text, or its content blocks as on the wire.
        is_error: whether it tells of a failure.
        place: the ``turn`` and ``step`` it belongs to, where there are any.

    Raises:
        SessionError: when the log refuses the event.
    """
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    message: dict[str, Any] = {
        "role": "tool",
        "toolCallId": call.id,
        "content": blocks,
        "source": {"kind": "tool", "callId": call.id},
    }
    if is_error:
        message["isError"] = True
    session.append(
        "tool/result", {**place, "name": call.name, "message": message}, surface_op="append"
    )


def _open_step(session: Session) -> int | None:
    start, end = session.last("step/start"), session.last("step/end")
    if start is None or session.open_turn is None:
        return None
    turn = session.last("turn/start")
    if turn is not None and turn.seq > start.seq:
        return None
    if end is not None and end.seq > start.seq:
        return None
    step = start.data.get("step") if isinstance(start.data, dict) else None
    return step if isinstance(step, int) else None


def _unanswered(session: Session) -> list[ToolCallBlock]:
    """The surface's calls without a result, in the order in which they were made."""
    missing = set(open_calls(session))
    found: list[ToolCallBlock] = []
    for place in range(len(session.surface) - 1, -1, -1):
        if not missing:
            break
        event = session.event_at(session.surface[place])
        if isinstance(event, AssistantMessage):
            here = [
                block
                for block in event.data.message.content
                if isinstance(block, ToolCallBlock) and block.id in missing
            ]
            missing -= {call.id for call in here}
            found[:0] = here
    return found


def _started(session: Session, calls: set[str]) -> set[str]:
    """Which of some open calls have a ``tool/call`` event: their tools were begun."""
    started: set[str] = set()
    not_met = set(calls)
    for event in reversed(session.events):
        if not not_met:
            break  # no call is begun before it is made
        if event.type == "tool/call" and isinstance(event.data, dict):
            named = event.data.get("callId")
            if named in calls:
                started.add(named)
        elif isinstance(event, AssistantMessage):
            not_met -= {
                block.id for block in event.data.message.content if isinstance(block, ToolCallBlock)
            }
    return started
