"""Which span to compact. Pure: reads a session and its prices, returns a span or the reason."""

from __future__ import annotations

from dataclasses import dataclass

from ctxarchive.errors import CompactionError
from ctxarchive.metering.meter import Measurement
from ctxarchive.session.events import UserMessage
from ctxarchive.session.log import Session
from ctxarchive.session.pairing import balanced_after, balanced_before, balanced_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A balanced run of surface positions."""

    first: int
    """Surface position of its first entry."""
    last: int
    seqs: tuple[int, ...]
    tokens: int
    generation: int
    """The surface's replace generation when it was selected."""
    surface_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpan:
    """Nothing to compact, and why."""

    reason: str


def span_at(session: Session, measurement: Measurement, first: int, last: int) -> Span:
    """The span of the surface positions ``first`` to ``last``."""
    return Span(
        first=first,
        last=last,
        seqs=session.surface.span(session.surface[first], session.surface[last]),
        tokens=measurement.span(first, last),
        generation=measurement.generation,
        surface_length=measurement.length,
    )


def retained_from(measurement: Measurement, retain: int) -> int:
    """The surface position from which at least ``retain`` tokens, and the newest entry, stay."""
    length = measurement.length
    cut = length
    while cut > 0 and (cut == length or measurement.span(cut, length - 1) < retain):
        cut -= 1
    return cut


def select_older(
    session: Session,
    measurement: Measurement,
    *,
    retain: int,
    min_tokens: int,
    min_reclaim: int = 0,
) -> Span | NoSpan:
    """From the head to the cut that keeps at least ``retain`` tokens at the end.

    The cut moves headward to a balanced one. Where there is none, it moves tailward, keeping less
    than asked rather than nothing done; the newest indivisible unit always stays.

    Args:
        session: whose surface.
        measurement: its prices now.
        retain: tokens to keep verbatim at the end.
        min_tokens: least tokens of a span worth compacting.
        min_reclaim: least tokens of it that are no checkpoint already: what can be freed at all.
    """
    length = measurement.length
    cut = retained_from(measurement, retain)
    chosen = _balanced_at_or_before(session, cut)
    judged = _judge(session, measurement, chosen, min_tokens, min_reclaim)
    if isinstance(judged, NoSpan):
        tailward = _balanced_after(session, cut, length)
        if tailward is not None:
            return _judge(session, measurement, tailward, min_tokens, min_reclaim)
    return judged


def select_all_but_newest(
    session: Session, measurement: Measurement, *, min_tokens: int, min_reclaim: int = 0
) -> Span | NoSpan:
    """From the head to the last balanced cut before the end: only the newest unit stays."""
    cut = _balanced_at_or_before(session, measurement.length - 1)
    return _judge(session, measurement, cut, min_tokens, min_reclaim)


def select_region(session: Session, measurement: Measurement, start: int, end: int) -> Span:
    """The span from seq ``start`` to seq ``end``.

    Raises:
        SessionError: ``surface``, when either is not on the surface, or they are out of order.
        CompactionError: ``range``, when an edge parts a tool call from its result.
    """
    session.surface.span(start, end)
    if not balanced_before(session, start):
        raise CompactionError("range", f"a tool call is open before seq {start}")
    if not balanced_after(session, end):
        raise CompactionError("range", f"a tool call is open after seq {end}")
    position = session.surface.position
    return span_at(session, measurement, position(start), position(end))


def _judge(
    session: Session, measurement: Measurement, cut: int, min_tokens: int, min_reclaim: int
) -> Span | NoSpan:
    if cut <= 0:
        return NoSpan(reason="no balanced cut leaves anything to compact")
    tokens = measurement.span(0, cut - 1)
    if tokens < min_tokens:
        return NoSpan(reason=f"the older span has {tokens} tokens, fewer than {min_tokens}")
    fresh = _fresh(session, measurement, cut, enough=max(min_reclaim, 1))
    if fresh == 0:
        return NoSpan(reason="the older span is checkpoints already")
    if fresh < min_reclaim:
        return NoSpan(
            reason=f"the older span has {fresh} tokens that are no checkpoint, fewer than "
            f"{min_reclaim}"
        )
    return span_at(session, measurement, 0, cut - 1)


def _fresh(session: Session, measurement: Measurement, cut: int, *, enough: int) -> int:
    """Tokens before ``cut`` that are no checkpoint, counted until there are ``enough``."""
    fresh = 0
    for place in range(cut):
        event = session.event_at(session.surface[place])
        if not (isinstance(event, UserMessage) and event.is_checkpoint):
            fresh += measurement.span(place, place)
            if fresh >= enough:
                break
    return fresh


def _balanced_at_or_before(session: Session, cut: int) -> int:
    while cut > 0 and not balanced_cut(session, cut):
        cut -= 1
    return max(cut, 0)


def _balanced_after(session: Session, cut: int, length: int) -> int | None:
    return next(
        (place for place in range(cut + 1, length) if balanced_cut(session, place)),
        None,
    )
