"""Tool pairing: where a cut through the surface parts no tool call from its result.

Answers from a cache per session, rebuilt when the surface was replaced and extended by the new
entries only when it has grown. Reads events, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ctxarchive.errors import SessionError
from ctxarchive.session.events import AssistantMessage, Event, ToolResult
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ToolCallBlock


@dataclass(slots=True, kw_only=True)
class _Balance:
    generation: int
    open_calls: set[str] = field(default_factory=set)
    cuts: list[bool] = field(default_factory=lambda: [True])
    """``cuts[i]``: whether the cut before surface position ``i`` is balanced."""


_CACHE: WeakKeyDictionary[Session, _Balance] = WeakKeyDictionary()


def balanced_before(session: Session, seq: int) -> bool:
    """Whether no unanswered tool call crosses the cut directly before ``seq``.

    Raises:
        SessionError: ``surface`` when ``seq`` is not on the surface, ``pairing`` when the surface
            holds a result without its call.
    """
    position = session.surface.position(seq)
    return _balance(session).cuts[position]


def balanced_after(session: Session, seq: int) -> bool:
    """Whether no unanswered tool call crosses the cut directly after ``seq``.

    Raises:
        SessionError: as :func:`balanced_before`.
    """
    position = session.surface.position(seq)
    return _balance(session).cuts[position + 1]


def balanced_cut(session: Session, position: int) -> bool:
    """Whether the cut before surface ``position`` (0 to length) is balanced."""
    return _balance(session).cuts[position]


def open_calls(session: Session) -> frozenset[str]:
    """Ids of the tool calls at the end of the surface that have no result yet."""
    return frozenset(_balance(session).open_calls)


def _balance(session: Session) -> _Balance:
    generation = session.surface.replace_generation
    cached = _CACHE.get(session)
    if cached is None or cached.generation != generation:
        cached = _Balance(generation=generation)
        _extend(session, cached)
        _CACHE[session] = cached
    elif len(cached.cuts) - 1 < len(session.surface):
        _extend(session, cached)
    return cached


def _extend(session: Session, balance: _Balance) -> None:
    # Computed aside and committed at once: a corrupt entry must leave no half-advanced cache.
    calls = set(balance.open_calls)
    cuts: list[bool] = []
    for seq in session.surface.since(len(balance.cuts) - 1):
        event = session.event_at(seq)
        if event.type != "user/message":
            _step(event, calls)
        cuts.append(not calls)
    balance.open_calls = calls
    balance.cuts.extend(cuts)


def _step(event: Event, calls: set[str]) -> None:
    # The type's name first: it is read several times as fast as a class is asked for.
    kind = event.type
    if kind == "tool/result" and isinstance(event, ToolResult):
        call_id, _ = event.data.message.answer
        if call_id not in calls:
            raise SessionError(
                "pairing", f"the tool/result at seq {event.seq} answers no open call ({call_id!r})"
            )
        calls.discard(call_id)
    elif kind == "assistant/message" and isinstance(event, AssistantMessage):
        for block in event.data.message.content:
            if block.type == "tool-call" and isinstance(block, ToolCallBlock):
                calls.add(block.id)
