"""A session's life in tokens: the context after each event, and every replacement of a span. Pure.

Works on a whole log, and on what an archive kept of one: there, events that no model sees are
missing, and so are results in their shortened form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ctxarchive.replay.report.values import Point
from ctxarchive.session.events import (
    AssistantMessage,
    Event,
    Replace,
    RequestHeader,
    ToolResult,
    UserMessage,
)
from ctxarchive.session.messages import ToolCallBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A checkpoint took the place of a span."""

    event: UserMessage
    shadowed: tuple[int, ...]
    """Seqs that left the surface, in its order."""
    tokens_before: int
    tokens_after: int
    shadowed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """All of it."""

    points: tuple[Point, ...]
    replacements: tuple[Replacement, ...]
    prices: dict[int, int]
    """Tokens of each message, by seq."""


def live(events: Iterable[Event], price: Callable[[Event], int]) -> Life:
    """Follow a session.

    Args:
        events: oldest first.
        price: tokens of a message, or of a request's header.
    """
    state = _State(price)
    for event in events:
        state.take(event)
    return Life(
        points=tuple(state.points),
        replacements=tuple(state.replacements),
        prices=state.prices,
    )


class _State:
    def __init__(self, price: Callable[[Event], int]) -> None:
        self.points: list[Point] = []
        self.replacements: list[Replacement] = []
        self.prices: dict[int, int] = {}
        self._price = price
        self._surface: list[int] = []
        self._header = self._now = self._all = 0
        self._calls: dict[str, str] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, RequestHeader):
            self._header = self._price(event)
        elif event.surface_op is None:
            return
        else:
            self._place(event)
        self.points.append(
            Point(
                seq=event.seq,
                time=event.time,
                what=self._what(event),
                tokens=self._header + self._now,
                uncompacted=self._header + self._all,
            )
        )

    def _place(self, event: Event) -> None:
        price = self.prices[event.seq] = self._price(event)
        checkpoint = isinstance(event, UserMessage) and event.is_checkpoint
        before = self._now
        shadowed: list[int] = []
        if isinstance(event.surface_op, Replace):
            shadowed = self._replace(event)
        else:
            self._surface.append(event.seq)
            self._all += 0 if checkpoint else price
        self._now += price
        if isinstance(event, UserMessage) and checkpoint:
            self.replacements.append(
                Replacement(
                    event=event,
                    shadowed=tuple(shadowed),
                    tokens_before=self._header + before,
                    tokens_after=self._header + self._now,
                    shadowed_tokens=sum(self.prices[seq] for seq in shadowed),
                )
            )

    def _replace(self, event: Event) -> list[int]:
        """Put an event in the place of what it cites, and say what that was."""
        cited = set(event.source_event_seqs)
        places = [place for place, seq in enumerate(self._surface) if seq in cited]
        if not places:
            self._surface.append(event.seq)
            return []
        # From the first to the last of them: an archive keeps a shortened result as its original,
        # which the checkpoint does not cite.
        first, last = places[0], places[-1]
        gone = self._surface[first : last + 1]
        self._surface[first : last + 1] = [event.seq]
        self._now -= sum(self.prices[seq] for seq in gone)
        return gone

    def _what(self, event: Event) -> str:
        if isinstance(event, UserMessage):
            if event.is_checkpoint:
                return "checkpoint"
            return "user" if event.data.source.kind == "user" else "host"
        if isinstance(event, AssistantMessage):
            for block in event.data.message.content:
                if isinstance(block, ToolCallBlock):
                    self._calls[block.id] = block.name
            return "assistant"
        if isinstance(event, ToolResult):
            return f"tool {self._calls.get(event.data.message.block.tool_call_id, '')}".strip()
        return "system prompt and tools"
