"""A session: the append-only log, and the surface it implies.

Appending is the only change. Where events go to disk is the sink's business; what they mean is
the rooms' above.
"""

from __future__ import annotations

import time as _time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from ctxarchive.errors import SessionError
from ctxarchive.session.events import (
    SURFACE_TYPES,
    Event,
    Origin,
    Replace,
    RequestContext,
    RequestHeader,
    TurnEnd,
    TurnStart,
    parse_event,
)
from ctxarchive.session.ids import SessionId
from ctxarchive.session.messages import Message, WireModel
from ctxarchive.session.surface import Surface


class SessionHeader(WireModel):
    """What a session is, once for all: the first line of its file."""

    id: str
    created_at: int | None = None
    """Milliseconds since the epoch."""
    title: str | None = None
    cwd: str | None = None
    parent: str | None = None
    """The session this one was seeded from."""
    inherited_seq: int | None = None
    """The last seq taken over from the parent."""


class SessionSink(Protocol):
    """Where a session's events go to stay."""

    def write(self, event: Event) -> None:
        """Take one event, in order."""

    async def flush(self) -> None:
        """Return once everything taken is durable."""


Listener = Callable[["Session", Event], None]


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return _time.time_ns() // 1_000_000


class Session:
    """One conversation.

    Args:
        header: identity and provenance.
        clock: gives the time of an appended event in milliseconds since the epoch, or ``None``
            where it is not known.
    """

    def __init__(self, header: SessionHeader, *, clock: Callable[[], int | None] = now_ms) -> None:
        if not header.id:
            raise SessionError("event", "a session id must not be empty")
        self.header = header
        self.surface = Surface()
        self._events: list[Event] = []
        self._last: dict[str, int] = {}
        self._clock = clock
        self._listeners: list[Listener] = []
        self._sink: SessionSink | None = None

    @classmethod
    def create(
        cls,
        session_id: str,
        seed: Iterable[Event] = (),
        *,
        header: SessionHeader | None = None,
        clock: Callable[[], int | None] = now_ms,
    ) -> Session:
        """A session, empty or continuing ``seed``.

        A non-empty seed is closed by one ``session/end-seed``; one that already ends with it is
        left as it is.

        Raises:
            SessionError: as :meth:`adopt`.
        """
        session = cls(header or SessionHeader(id=session_id, created_at=clock()), clock=clock)
        for event in seed:
            session.adopt(event)
        if session._events and session._events[-1].type != "session/end-seed":
            session.append("session/end-seed", {})
        return session

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return SessionId(self.header.id)

    @property
    def events(self) -> Sequence[Event]:
        """The log, oldest first. Not to be changed."""
        return self._events

    def __len__(self) -> int:
        return len(self._events)

    def event_at(self, seq: int) -> Event:
        """The event at ``seq``.

        Raises:
            SessionError: ``surface``, when there is none.
        """
        if 0 <= seq < len(self._events):
            return self._events[seq]
        raise SessionError("surface", f"no event at seq {seq}: the log has {len(self._events)}")

    def since(self, seq: int) -> Sequence[Event]:
        """The events from ``seq`` on, oldest first."""
        return self._events[seq:]

    def last(self, event_type: str) -> Event | None:
        """The newest event of a type, in O(1)."""
        seq = self._last.get(event_type)
        return None if seq is None else self._events[seq]

    @property
    def open_turn(self) -> int | None:
        """Number of the turn that has started and not ended."""
        start, end = self.last("turn/start"), self.last("turn/end")
        if not isinstance(start, TurnStart):
            return None
        if isinstance(end, TurnEnd) and end.seq > start.seq:
            return None
        return start.data.turn

    @property
    def request_header(self) -> dict[str, Any]:
        """The newest request header: ``config``, ``system``, ``tools``; empty where none."""
        event = self.last("request/header")
        return event.data.header if isinstance(event, RequestHeader) else {}

    @property
    def context_window(self) -> int | None:
        """Capacity in tokens of the model in use, where the log says it."""
        event = self.last("request/context")
        return event.data.context_window if isinstance(event, RequestContext) else None

    def append(
        self,
        event_type: str,
        data: Mapping[str, Any] | BaseModel,
        *,
        surface_op: Mapping[str, Any] | Replace | str | None = None,
        source_event_seqs: Sequence[int] = (),
        origin: Origin | None = None,
        time: int | None = None,
    ) -> Event:
        """Add an event at the end of the log, and tell the listeners.

        Args:
            event_type: its wire name.
            data: its payload.
            surface_op: ``"append"`` or a replacement, for the types that enter the surface.
            source_event_seqs: what it was made from; a replacement cites all it shadows.
            origin: where it stood in a foreign log.
            time: milliseconds since the epoch; now by default.

        Raises:
            SessionError: ``event`` for a payload of the wrong shape, ``surface`` for an operation
                the surface does not allow. The log is then unchanged.
        """
        value: dict[str, Any] = {
            "seq": len(self._events),
            "type": event_type,
            "data": data.wire() if isinstance(data, WireModel) else data,
        }
        moment = self._clock() if time is None else time
        if moment is not None:
            value["time"] = moment
        if surface_op is not None:
            value["surfaceOp"] = (
                surface_op.wire() if isinstance(surface_op, Replace) else surface_op
            )
        if source_event_seqs:
            value["sourceEventSeqs"] = list(source_event_seqs)
        if origin is not None:
            value["origin"] = origin.wire()
        return self.adopt(parse_event(value, where=f"{event_type} at seq {value['seq']}"))

    def adopt(self, event: Event) -> Event:
        """Add a finished event whose seq is the next one.

        Raises:
            SessionError: ``event`` or ``surface``; the log is then unchanged.
        """
        if event.seq != len(self._events):
            raise SessionError(
                "event", f"seq {event.seq} does not follow: the log has {len(self._events)} events"
            )
        self._apply(event)
        self._events.append(event)
        self._last[event.type] = event.seq
        if self._sink is not None:
            self._sink.write(event)
        for listener in tuple(self._listeners):
            listener(self, event)
        return event

    def _apply(self, event: Event) -> None:
        if event.type not in SURFACE_TYPES:
            return
        operation = event.surface_op
        if isinstance(operation, Replace):
            shadowed = self.surface.span(operation.start_seq, operation.end_seq)
            missing = sorted(set(shadowed) - set(event.source_event_seqs))
            if missing:
                raise SessionError(
                    "surface",
                    f"the replacement at seq {event.seq} does not cite shadowed seq {missing[0]}",
                )
            self.surface.replace(operation.start_seq, operation.end_seq, event.seq)
        else:
            self.surface.append(event.seq)

    def describe_requests(
        self, header: Mapping[str, Any], *, context_window: int | None = None
    ) -> None:
        """Log the fixed part of the requests to come, where it first holds or has changed.

        Args:
            header: ``config`` with provider and model, ``system``, ``tools``.
            context_window: the model's capacity in tokens, where it is known.

        Raises:
            SessionError: as :meth:`append`.
        """
        if self.request_header != header:
            reason = "changed" if self.request_header else "initial"
            self.append("request/header", {"header": dict(header), "reason": reason})
        if context_window is None:
            return
        context = {**header.get("config", {}), "contextWindow": context_window}
        known = self.last("request/context")
        if not isinstance(known, RequestContext) or known.data.wire() != context:
            self.append("request/context", context)

    def derive_messages(self) -> list[Message]:
        """The model's view: the surface's messages in order."""
        messages = (self._events[seq].message for seq in self.surface)
        return [message for message in messages if message is not None]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` after every append; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def attach(self, sink: SessionSink) -> None:
        """Send every later event to ``sink`` too.

        Raises:
            SessionError: ``locked``, when there already is one.
        """
        if self._sink is not None:
            raise SessionError("locked", f"session {self.id!r} already has a sink")
        self._sink = sink

    async def flush(self) -> None:
        """Return once everything appended is durable; at once where nothing is attached."""
        if self._sink is not None:
            await self._sink.flush()
