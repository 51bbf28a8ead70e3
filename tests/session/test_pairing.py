"""Tool pairing: the cache against a fresh count, and corrupt surfaces that leave it alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.errors import SessionError
from ctxarchive.session import pairing
from ctxarchive.session.events import Event
from ctxarchive.session.log import Session
from ctxarchive.session.pairing import balanced_after, balanced_before, balanced_cut, open_calls


def _call(session: Session, *ids: str) -> int:
    content = [{"type": "tool-call", "id": name, "name": "t", "arguments": "{}"} for name in ids]
    data = {"message": {"role": "assistant", "content": content}}
    return session.append("assistant/message", data, surface_op="append").seq


def _result(session: Session, name: str) -> int:
    data = {"message": {"toolCallId": name, "content": []}}
    return session.append("tool/result", data, surface_op="append").seq


def _user(session: Session, over: Sequence[int] = ()) -> int:
    operation: Any = "append"
    if over:
        operation = {"op": "replace", "startSeq": over[0], "endSeq": over[-1]}
    return session.append(
        "user/message", {"content": []}, surface_op=operation, source_event_seqs=over
    ).seq


def _counted(session: Session) -> list[bool]:
    """Whether each cut, from before the first entry to after the last, is balanced."""
    waiting: set[str] = set()
    cuts = [True]
    for seq in session.surface:
        message = session.event_at(seq).message
        assert message is not None
        for block in message.content:
            wire = block.wire()
            if wire["type"] == "tool-call":
                waiting.add(wire["id"])
            elif wire["type"] == "tool-result":
                waiting.remove(wire["toolCallId"])
        cuts.append(not waiting)
    return cuts


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "call", "call", "result", "result", "replace", "ask"]),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=40,
)


def _take(session: Session, kind: str, one: int, two: int) -> None:
    """One step of a history that stays paired: runs are replaced at balanced cuts only."""
    waiting = sorted(open_calls(session))
    if kind == "user":
        _user(session)
    elif kind == "call":
        _call(session, *(f"c{len(session)}-{index}" for index in range(1 + one % 3)))
    elif kind == "result" and waiting:
        _result(session, waiting[one % len(waiting)])
    elif kind == "replace":
        cuts = [place for place, fine in enumerate(_counted(session)) if fine]
        first, last = sorted((cuts[one % len(cuts)], cuts[two % len(cuts)]))
        if first < last:
            _user(session, session.surface.nodes[first:last])


@given(STEPS)
def test_the_cache_equals_a_fresh_count_after_any_history(
    steps: list[tuple[str, int, int]],
) -> None:
    """Extended by appends or rebuilt by replacements, the cache answers as a first reading does."""
    session = Session.create("s")
    for kind, one, two in steps:
        if kind != "ask":
            _take(session, kind, one, two)
            continue
        cuts = _counted(session)
        assert [balanced_cut(session, place) for place in range(len(cuts))] == cuts
    cuts = _counted(session)
    fresh = Session.create("fresh")
    for event in session.events:
        fresh.adopt(event)
    for place, seq in enumerate(session.surface):
        assert balanced_before(session, seq) == balanced_before(fresh, seq) == cuts[place]
        assert balanced_after(session, seq) == balanced_after(fresh, seq) == cuts[place + 1]
    assert open_calls(session) == open_calls(fresh)
    assert bool(open_calls(session)) is not cuts[-1]


def test_a_call_is_open_until_its_result() -> None:
    """Between a call and the last of its results no cut is balanced."""
    session = Session.create("s")
    first = _user(session)
    call = _call(session, "a", "b")
    result_b = _result(session, "b")
    assert open_calls(session) == {"a"}
    result_a = _result(session, "a")
    assert [balanced_before(session, seq) for seq in (first, call, result_b, result_a)] == [
        True,
        True,
        False,
        False,
    ]
    assert balanced_after(session, result_a)
    assert not open_calls(session)


def test_an_append_extends_the_cache_by_the_new_entries_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question after k new events reads k events, however long the session is."""
    session = Session.create("s")
    for _ in range(50):
        _user(session)
    balanced_after(session, 49)
    read: list[int] = []
    event_at = session.event_at

    def reading(seq: int) -> Event:
        read.append(seq)
        return event_at(seq)

    monkeypatch.setattr(session, "event_at", reading)
    _call(session, "a")
    _result(session, "a")
    balanced_after(session, 51)
    balanced_before(session, 3)
    assert read == [50, 51]


@pytest.mark.parametrize("orphan", ["never-called", "answered"])
def test_a_result_without_an_open_call_raises_and_leaves_the_cache(orphan: str) -> None:
    """Corruption is an error at every question until it is gone; the cache never half advances."""
    session = Session.create("s")
    _call(session, "answered", "open")
    done = _result(session, "answered")
    balanced_after(session, done)
    before = copy.deepcopy(pairing._CACHE[session])
    _call(session, "another")
    bad = _result(session, orphan)
    for _ in range(2):
        for ask in (balanced_before, balanced_after):
            with pytest.raises(
                SessionError, match=rf"the tool/result at seq {bad} .*{orphan}"
            ) as caught:
                ask(session, done)
            assert caught.value.code == "pairing"
        assert pairing._CACHE[session] == before
    _user(session, [bad])
    assert open_calls(session) == {"open", "another"}
    assert not balanced_after(session, done)


def test_a_corrupt_surface_leaves_no_cache_of_a_later_generation() -> None:
    """After a replacement too, an error keeps what was cached before it."""
    session = Session.create("s")
    call = _call(session, "a")
    done = _result(session, "a")
    balanced_after(session, done)
    before = copy.deepcopy(pairing._CACHE[session])
    _user(session, [call])
    with pytest.raises(SessionError, match="answers no open call"):
        balanced_after(session, done)
    assert pairing._CACHE[session] == before


def test_a_seq_off_the_surface_raises() -> None:
    """Shadowed, log-only and absent seqs have no place to cut at."""
    session = Session.create("s")
    shadowed = _user(session)
    _user(session, [shadowed])
    log_only = session.append("turn/start", {"turn": 1}).seq
    for seq in (shadowed, log_only, 99, -1):
        for ask in (balanced_before, balanced_after):
            with pytest.raises(SessionError, match=f"seq {seq} is not on the surface") as caught:
                ask(session, seq)
            assert caught.value.code == "surface"
