"""Events as their JSON: verbatim carriage, older spellings, errors that name the field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.errors import SessionError
from ctxarchive.session.events import SURFACE_TYPES, ToolResult, UserMessage, parse_event
from ctxarchive.session.log import Session
from ctxarchive.session.messages import is_checkpoint_source

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
"""Any characters at all, lone surrogates among them."""
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)

KNOWN: dict[str, dict[str, Any]] = {
    "user/message": {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    "assistant/message": {
        "turn": 1,
        "message": {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "r", "signature": "s"},
                {"type": "tool-call", "id": "c", "name": "n", "arguments": "{ }"},
            ],
        },
        "usage": {"inputTokens": 3},
    },
    "tool/result": {
        "message": {
            "content": [{"type": "tool-result", "toolCallId": "c", "content": [], "isError": False}]
        }
    },
    "turn/start": {"turn": 1},
    "turn/end": {"turn": 1, "reason": {"type": "completed"}},
    "request/header": {"header": {"system": "s"}},
    "request/context": {"provider": "p", "model": "m", "contextWindow": 9},
    "compaction/start": {"compactionId": "k", "turn": None},
    "compaction/summary": {
        "compactionId": "k",
        "summary": [{"type": "text", "text": "s"}],
        "shadowedRange": {"start": 4, "end": 2},
        "shadowedSeqs": [4, 2],
        "shadowedTokenCount": 9,
        "provider": "p",
        "model": "m",
    },
    "compaction/end": {"compactionId": "k", "turn": 1, "error": "e"},
    "compaction/prune": {
        "shadowedRange": {"start": 1, "end": 1},
        "shadowedSeqs": [1],
        "shadowedTokenCount": 2,
    },
    "archive/filed": {"compactionId": "k", "throughSeq": 3, "finding": 2},
    "archive/failed": {"compactionId": "k", "stage": "file", "error": "e"},
    "session/end-seed": {},
}


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"seq": 0, "time": 1, "type": kind, "data": KNOWN.get(kind, {})}
    if kind in SURFACE_TYPES:
        value["surfaceOp"] = "append"
    return {**value, **fields}


@given(kind=st.sampled_from(sorted(KNOWN)), extra=JSON, inside=JSON)
def test_a_known_event_keeps_fields_it_does_not_know(kind: str, extra: Any, inside: Any) -> None:
    """What a later version or another host added is written back as it was read."""
    value = _event(kind, **{"x-extra": extra})
    value["data"] = {**value["data"], "x-inside": inside}
    assert json.loads(parse_event(value).json_text) == value


@given(name=TEXT, data=JSON, extra=JSON)
def test_an_unknown_event_is_carried_verbatim_and_never_seen(
    name: str, data: Any, extra: Any
) -> None:
    """A type of another version loads, is written back as it was, and no model sees it."""
    value = {"seq": 0, "type": f"x/{name}", "data": data, "wire": extra, "message": extra}
    session = Session.create("s")
    session.adopt(parse_event(value))
    assert json.loads(session.events[0].json_text) == value
    assert session.derive_messages() == []
    assert len(session.surface) == 0


@given(kind=st.text(max_size=8).map("x-".__add__), extra=JSON)
def test_an_unknown_block_is_carried_verbatim(kind: str, extra: Any) -> None:
    """A block of a kind to come stays as it is, between blocks that are known."""
    content = [{"type": "text", "text": "a"}, {"type": kind, "x": extra}, {"no": "type"}]
    value = _event("user/message", data={"content": content})
    assert json.loads(parse_event(value).json_text) == value


@given(text=TEXT)
def test_one_event_is_one_line_of_utf8(text: str) -> None:
    """Whatever a text holds, its event is one encodable line."""
    event = parse_event(_event("user/message", data={"content": [{"type": "text", "text": text}]}))
    encoded = event.json_text.encode("utf-8")
    assert b"\n" not in encoded
    assert b"\r" not in encoded


def test_an_event_is_written_as_it_was_read_down_to_its_last_default() -> None:
    """A field that was absent stays absent; no default is added."""
    value = _event("user/message")
    text = json.dumps(value, separators=(",", ":"))
    assert parse_event(value).json_text == text


def test_a_replacement_may_name_its_ends_start_and_end() -> None:
    """The older spelling of a surface operation is read."""
    operation = {"op": "replace", "start": 3, "end": 5}
    event = parse_event(_event("user/message", surfaceOp=operation))
    assert isinstance(event, UserMessage)
    assert not isinstance(event.surface_op, str)
    assert (event.surface_op.start_seq, event.surface_op.end_seq) == (3, 5)


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "compact-checkpoint", "compactionId": "k"},
        {"kind": "compact-checkpoint"},
        {"kind": "plugin", "plugin": "compact", "compactionId": "k"},
        {"kind": "plugin", "plugin": "compact"},
    ],
)
def test_a_checkpoint_is_known_in_either_spelling(source: dict[str, str]) -> None:
    """The current source kind and the older plugin source both mark a checkpoint."""
    value = _event("user/message", data={"content": [], "source": source})
    event = parse_event(value)
    assert isinstance(event, UserMessage)
    assert event.is_checkpoint
    assert is_checkpoint_source(event.message.source)
    assert json.loads(event.json_text) == value


@pytest.mark.parametrize("source", [None, {"kind": "user"}, {"kind": "plugin", "plugin": "other"}])
def test_any_other_source_is_no_checkpoint(source: dict[str, str] | None) -> None:
    """A user, and another plugin, write no checkpoints."""
    data = {"content": []} if source is None else {"content": [], "source": source}
    event = parse_event(_event("user/message", data=data))
    assert isinstance(event, UserMessage)
    assert not event.is_checkpoint


V4 = {"role": "tool", "toolCallId": "c7", "content": [{"type": "text", "text": "out"}]}
BLOCK = {
    "role": "user",
    "content": [
        {"type": "tool-result", "toolCallId": "c7", "content": [{"type": "text", "text": "out"}]}
    ],
}
SOURCE = {
    "role": "user",
    "source": {"kind": "tool", "callId": "c7"},
    "content": [{"type": "text", "text": "out"}],
}


@pytest.mark.parametrize("message", [V4, BLOCK, SOURCE], ids=["v4", "block", "source"])
def test_a_tool_message_is_read_in_every_spelling(message: dict[str, Any]) -> None:
    """Content at top level or inside a block; the call named beside it, in it, or in the source."""
    event = parse_event(_event("tool/result", data={"message": message}))
    assert isinstance(event, ToolResult)
    assert event.message.role == "tool"
    block = event.data.message.block
    assert block.tool_call_id == "c7"
    assert [part.wire() for part in block.content] == [{"type": "text", "text": "out"}]
    assert not block.is_error


def test_a_tool_message_that_names_no_call_is_an_error() -> None:
    """Nothing is guessed about which call a result answers."""
    event = parse_event(_event("tool/result", data={"message": {"content": []}}))
    assert isinstance(event, ToolResult)
    with pytest.raises(SessionError, match="a tool/result names no tool call"):
        _ = event.message


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("text", _event("user/message", data={"content": [{"type": "text", "text": 3}]}), "text"),
    ("list", _event("user/message", data={"content": [{"type": []}]}), "data.content.0"),
    ("string", _event("user/message", data={"content": ["x"]}), "data.content.0"),
    ("seq", _event("turn/start", seq="first"), "seq"),
    ("turn", _event("turn/start", data={}), "data.turn"),
    ("type", {"seq": 0, "data": {}}, "type"),
    ("nested type", {"seq": 0, "type": {"a": 1}}, "type"),
    ("no op", {**_event("user/message"), "surfaceOp": None}, "surfaceOp"),
    ("half op", _event("user/message", surfaceOp={"op": "replace", "start": 1}), "endSeq"),
    ("other op", _event("user/message", surfaceOp="prepend"), "surfaceOp"),
    ("op", _event("turn/start", surfaceOp="append"), "turn/start may not carry a surfaceOp"),
    ("unknown op", _event("x/y", surfaceOp="append"), "x/y may not carry a surfaceOp"),
]


@pytest.mark.parametrize(("value", "names"), [pair[1:] for pair in BAD], ids=[p[0] for p in BAD])
def test_a_malformed_event_is_an_error_that_names_place_and_field(
    value: dict[str, Any], names: str
) -> None:
    """One line, with the place the caller gave and the field that is wrong."""
    with pytest.raises(SessionError) as caught:
        parse_event(value, where="a.jsonl line 12")
    message = str(caught.value)
    assert caught.value.code == "event"
    assert message.startswith("a.jsonl line 12: ")
    assert names in message
    assert "\n" not in message


def test_a_refused_append_leaves_the_log_as_it_was() -> None:
    """The error names the event's type and the seq it would have had."""
    session = Session.create("s")
    with pytest.raises(SessionError, match=r"user/message at seq 0: .*content"):
        session.append("user/message", {}, surface_op="append")
    assert len(session) == 0
    assert len(session.surface) == 0
