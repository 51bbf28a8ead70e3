"""The log: seeds, listeners, sinks, and errors that leave it unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from ctxarchive.errors import SessionError
from ctxarchive.session.events import Event, Replace
from ctxarchive.session.log import Session, SessionHeader


def _user(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}


def _types(session: Session) -> list[str]:
    return [event.type for event in session.events]


def test_a_seed_ends_with_one_end_seed() -> None:
    """A session opened over earlier events closes them with one mark."""
    first = Session.create("a")
    first.append("user/message", _user("x"), surface_op="append")
    second = Session.create("b", first.events)
    assert _types(second) == ["user/message", "session/end-seed"]


def test_reopening_an_untouched_session_adds_no_mark() -> None:
    """However often a session is reopened, one mark closes an untouched seed."""
    session = Session.create("a")
    session.append("user/message", _user("x"), surface_op="append")
    for _ in range(3):
        session = Session.create("a", session.events)
    assert _types(session).count("session/end-seed") == 1
    session.append("user/message", _user("y"), surface_op="append")
    assert _types(Session.create("a", session.events)).count("session/end-seed") == 2


def test_an_empty_seed_adds_nothing() -> None:
    """A session without a seed begins with no event."""
    assert len(Session.create("a")) == 0


def test_a_seed_with_a_gap_is_refused() -> None:
    """Seqs are contiguous from 0: a seed that starts later is no seed."""
    session = Session.create("a")
    session.append("turn/start", {"turn": 1})
    session.append("turn/end", {"turn": 1})
    with pytest.raises(SessionError, match="seq 1 does not follow: the log has 0 events") as caught:
        Session.create("b", session.events[1:])
    assert caught.value.code == "event"


def test_a_listener_sees_every_event_in_order_until_it_leaves() -> None:
    """Listeners are told after each append, with the event already on the log."""
    session = Session.create("a")
    seen: list[tuple[int, str]] = []

    def listen(source: Session, event: Event) -> None:
        assert source.event_at(event.seq) is event
        seen.append((event.seq, event.type))

    leave = session.subscribe(listen)
    session.append("turn/start", {"turn": 1})
    session.append("user/message", _user("x"), surface_op="append")
    with pytest.raises(SessionError):
        session.append("user/message", _user("x"), surface_op=None)
    session.append("turn/end", {"turn": 1})
    leave()
    session.append("turn/start", {"turn": 2})
    assert seen == [(0, "turn/start"), (1, "user/message"), (2, "turn/end")]


def test_a_second_sink_is_refused() -> None:
    """One session writes to one place."""

    class Sink:
        def write(self, event: Event) -> None:
            """Take nothing."""

        async def flush(self) -> None:
            """Have nothing."""

    session = Session.create("a")
    session.attach(Sink())
    with pytest.raises(SessionError) as caught:
        session.attach(Sink())
    assert caught.value.code == "locked"


def test_the_open_turn_is_the_one_started_and_not_ended() -> None:
    """A turn is open from its start to its end."""
    session = Session.create("a")
    seen = [session.open_turn]
    for step, turn in (("start", 4), ("end", 4), ("start", 5)):
        session.append(f"turn/{step}", {"turn": turn})
        seen.append(session.open_turn)
    assert seen == [None, 4, None, 5]


def test_header_and_context_are_the_newest_ones() -> None:
    """The request header and the window are what the log said last."""
    session = Session.create("a")
    assert session.request_header == {}
    assert session.context_window is None
    session.append("request/header", {"header": {"system": "old"}})
    session.append("request/header", {"header": {"system": "new"}})
    session.append("request/context", {"provider": "p", "model": "m", "contextWindow": 7})
    assert session.request_header == {"system": "new"}
    assert session.context_window == 7


def test_a_replacement_may_be_given_as_a_value() -> None:
    """A Replace built in code does the same as its JSON."""
    session = Session.create("a")
    session.append("user/message", _user("x"), surface_op="append")
    session.append(
        "user/message",
        _user("y"),
        surface_op=Replace(op="replace", start_seq=0, end_seq=0),
        source_event_seqs=[0],
    )
    assert session.surface.nodes == (1,)
    assert '"surfaceOp":{"op":"replace","startSeq":0,"endSeq":0}' in session.events[1].json_text


def test_an_event_off_the_log_is_named() -> None:
    """Asking for a seq that is not there says how long the log is."""
    session = Session.create("a")
    for seq in (-1, 0):
        with pytest.raises(SessionError, match=f"no event at seq {seq}: the log has 0"):
            session.event_at(seq)


def test_a_session_needs_an_id() -> None:
    """The empty id names nothing."""
    with pytest.raises(SessionError, match="a session id must not be empty"):
        Session(SessionHeader(id=""))


def test_times_come_from_the_clock_unless_given() -> None:
    """An importer states the time; a host's clock gives it otherwise."""
    session = Session.create("a", clock=lambda: 5)
    assert session.append("turn/start", {"turn": 1}).time == 5
    assert session.append("turn/end", {"turn": 1}, time=9).time == 9
