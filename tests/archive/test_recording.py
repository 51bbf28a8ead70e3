"""A record's text is what its JSON renders to, by the archive's rule and by nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.history import history_of
from ctxarchive.archive.recording import call_line, event_text, record
from ctxarchive.archive.rendering import render
from ctxarchive.session.events import Event, parse_event
from ctxarchive.session.log import Session

anything = st.text(st.characters(), max_size=30)
blocks = st.lists(
    st.one_of(
        anything.map(lambda text: {"type": "text", "text": text}),
        anything.map(lambda text: {"type": "reasoning", "text": text}),
        st.just({"type": "image", "mediaType": "image/png", "data": "AAAA"}),
        anything.map(lambda text: {"type": "odd", "text": text, "content": []}),
        anything.map(
            lambda text: {
                "type": "tool-result",
                "toolCallId": "c",
                "content": [{"type": "text", "text": text}],
            }
        ),
    ),
    max_size=4,
)


def event(event_type: str, data: dict[str, object]) -> Event:
    """An event of a surface type."""
    value = {"seq": 0, "time": 1, "type": event_type, "data": data, "surfaceOp": "append"}
    return parse_event(value)


@given(blocks, anything)
def test_a_text_is_the_same_from_the_event_and_from_its_json(
    content: list[dict[str, object]], head: str
) -> None:
    """Whatever blocks stand where, and whatever else the data holds."""
    odd = {"content": [{"type": "text", "text": "not this"}]}
    events = [
        event("user/message", {"content": content, "message": odd}),
        event("assistant/message", {"message": {"role": "assistant", "content": content}, **odd}),
        event("tool/result", {"message": {"toolCallId": "c", "content": content}, **odd}),
    ]
    for each in events:
        line = head if each.type == "tool/result" else ""
        assert event_text(each, line) == render(each.json_text, line)
        assert "not this" not in event_text(each, "")


def test_the_halves_of_a_surrogate_pair_are_one_character_as_json_reads_them() -> None:
    """A text put together from two pieces may hold them apart; offsets count what is archived."""
    each = event("user/message", {"content": [{"type": "text", "text": "a\ud83d\ude00b\ud83d"}]})
    assert event_text(each, "") == "a\U0001f600b\ud83d" == render(each.json_text, "")


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("bash", '{"command": "ls  -l"}', 'bash {"command": "ls  -l"}'),
        ("patch", "*** Begin\n  x = 1\n", 'patch "*** Begin\\n  x = 1\\n"'),
        ("t", "a\u2028b\x85c", 't "a\\u2028b\\u0085c"'),
        ("odd\nname", "", "odd name"),
        ("", "x", "x"),
        ("t", "\ud83d\ude00", "t \U0001f600"),
    ],
)
def test_a_call_is_one_line(name: str, arguments: str, line: str) -> None:
    """Name and arguments; what is not one line stands as a JSON string, and loses nothing."""
    assert call_line(name, arguments) == line
    assert len(f"{line}.".splitlines()) == 1


def pruned(session: Session, seq: int, text: str) -> Event:
    """Put a shortened result in the place of the one at ``seq``."""
    return session.append(
        "tool/result",
        {"message": {"toolCallId": "c", "content": [{"type": "text", "text": text}]}},
        surface_op={"op": "replace", "startSeq": seq, "endSeq": seq},
        source_event_seqs=(seq,),
    )


def test_a_result_shortened_twice_is_archived_as_its_first_original() -> None:
    """Each replacement cites the one before it."""
    session = Session.create("s")
    call = {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}
    session.append(
        "assistant/message",
        {"message": {"role": "assistant", "content": [call]}},
        surface_op="append",
    )
    first = session.append(
        "tool/result",
        {"message": {"toolCallId": "c", "content": [{"type": "text", "text": "whole"}]}},
        surface_op="append",
    )
    second = pruned(session, first.seq, "who…")
    third = pruned(session, second.seq, "w…")
    history = history_of(session)
    assert [history.original(seq) for seq in (first.seq, second.seq, third.seq)] == [first.seq] * 3
    assert history.originals == [0, first.seq]
    assert record("s", third, name="bash", head="bash {}") is None


def test_a_summary_that_shadows_nothing_is_no_compaction() -> None:
    """Foreign logs hold such; an index must not fall over them."""
    session = Session.create("s")
    session.append(
        "compaction/summary",
        {
            "compactionId": "c",
            "summary": [],
            "shadowedRange": {"start": 0, "end": 0},
            "shadowedSeqs": [],
            "shadowedTokenCount": 0,
            "provider": "p",
            "model": "m",
        },
    )
    session.append(
        "user/message",
        {"content": [], "source": {"kind": "compact-checkpoint", "compactionId": "c"}},
        surface_op="append",
    )
    assert history_of(session).compactions == []


def test_a_record_holds_the_event_s_json_verbatim() -> None:
    """Fields that nobody knows included."""
    each = event("user/message", {"content": [{"type": "text", "text": "x", "new": 1}], "odd": [2]})
    made = record("s", each, name=None, head="")
    assert made is not None
    assert json.loads(made.event)["data"] == {
        "content": [{"type": "text", "text": "x", "new": 1}],
        "odd": [2],
    }
