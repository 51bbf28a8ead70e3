"""Promises for every log: made-up ones of each format, cut anywhere, and plain garbage."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.playback import Playback, import_session
from ctxarchive.importers.read import read_log
from ctxarchive.session import pairing
from ctxarchive.session.jsonl import write_session

Step = tuple[str, int]
"""What happens, and a number that says which."""
Records = list[dict[str, Any]]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "say", "call", "call", "result", "result", "noise", "compact"]),
        st.integers(0, 5),
    ),
    max_size=25,
)


class _Story(ABC):
    """Turns steps into the records of one format."""

    def __init__(self, steps: list[Step]) -> None:
        self.records: Records = []
        self.calls: list[str] = []
        self.texts: list[str] = []
        self.begin()
        for number, (what, which) in enumerate(steps):
            if what == "result" and not self.calls:
                continue
            text = f"{what} {number}"
            if what in {"user", "say", "result"}:
                self.texts.append(text)
            if what == "result":
                self.result(self.calls[which % len(self.calls)], text)
            elif what == "call":
                self.calls.append(f"c{number}")
                self.call(self.calls[-1], which)
            else:
                getattr(self, what)(text, which)

    def begin(self) -> None:
        """Write the log's first record; most formats have none."""
        self.records.clear()

    @abstractmethod
    def call(self, call_id: str, which: int) -> None:
        """The model calls a tool."""

    @abstractmethod
    def result(self, call_id: str, text: str) -> None:
        """The tool answers."""

    def add(self, **record: Any) -> None:
        self.records.append(record)


class _ClaudeCode(_Story):
    def message(self, kind: str, **message: Any) -> None:
        self.add(
            type=kind,
            sessionId="s",
            timestamp=f"2026-01-01T00:00:{len(self.records) % 60:02}Z",
            message={"role": kind, **message},
        )

    def user(self, text: str, which: int) -> None:
        self.message("user", content=text if which % 2 else [{"type": "text", "text": text}])

    def say(self, text: str, which: int) -> None:
        self.message(
            "assistant",
            id=f"m{which % 3}",
            model="claude-x",
            content=[{"type": "text", "text": text}],
        )

    def call(self, call_id: str, which: int) -> None:
        block = {"type": "tool_use", "id": call_id, "name": "t", "input": {}}
        self.message("assistant", id=f"m{which % 3}", model="claude-x", content=[block])

    def result(self, call_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        self.message("user", content=[block])

    def noise(self, text: str, which: int) -> None:
        self.add(type="progress", sessionId="s", n=which, text=text)

    def compact(self, text: str, which: int) -> None:
        self.add(type="system", subtype="compact_boundary", sessionId="s", n=which)
        self.add(
            type="user",
            sessionId="s",
            isCompactSummary=True,
            message={"role": "user", "content": text},
        )


class _Pi(_Story):
    def begin(self) -> None:
        self.add(type="session", id="s", timestamp="2026-01-01T00:00:00Z")

    def message(self, role: str, *content: dict[str, Any], **more: Any) -> None:
        self.add(type="message", message={"role": role, "content": list(content), **more})

    def user(self, text: str, which: int) -> None:
        self.message("user", {"type": "text", "text": text}, n=which)

    def say(self, text: str, which: int) -> None:
        self.message("assistant", {"type": "text", "text": text}, model=f"m{which % 2}")

    def call(self, call_id: str, which: int) -> None:
        block = {"type": "toolCall", "id": call_id, "name": "t", "arguments": {"n": which}}
        self.message("assistant", block, model="m0")

    def result(self, call_id: str, text: str) -> None:
        self.message("toolResult", {"type": "text", "text": text}, toolCallId=call_id)

    def noise(self, text: str, which: int) -> None:
        self.add(type="thinking_level_change", n=which, text=text)

    def compact(self, text: str, which: int) -> None:
        kept = max(0, len(self.records) - which)
        self.add(type="compaction", summary=text, firstKeptEntryIndex=kept)


class _Codex(_Story):
    def begin(self) -> None:
        self.add(type="session_meta", payload={"id": "s"})

    def item(self, **payload: Any) -> None:
        self.add(type="response_item", payload=payload)

    def user(self, text: str, which: int) -> None:
        self.item(
            type="message", role="user", content=[{"type": "input_text", "text": text}], n=which
        )

    def say(self, text: str, which: int) -> None:
        block = {"type": "output_text", "text": text}
        self.item(type="message", role="assistant", content=[block], n=which)

    def call(self, call_id: str, which: int) -> None:
        self.item(type="function_call", call_id=call_id, name="t", arguments="{}", n=which)

    def result(self, call_id: str, text: str) -> None:
        self.item(type="function_call_output", call_id=call_id, output=text)

    def noise(self, text: str, which: int) -> None:
        kind = "task_started" if which % 2 else "token_count"
        self.add(type="event_msg", payload={"type": kind, "text": text})

    def compact(self, text: str, which: int) -> None:
        self.add(type="compacted", payload={"message": text, "n": which})


class _Chat(_Story):
    def user(self, text: str, which: int) -> None:
        self.add(role="user", content=text, n=which)

    def say(self, text: str, which: int) -> None:
        self.add(role="assistant", content=text, n=which)

    def call(self, call_id: str, which: int) -> None:
        function = {"name": "t", "arguments": str(which)}
        self.add(role="assistant", content=None, tool_calls=[{"id": call_id, "function": function}])

    def result(self, call_id: str, text: str) -> None:
        self.add(role="tool", tool_call_id=call_id, content=text)

    def noise(self, text: str, which: int) -> None:
        self.add(role="system", content=f"{text} {which}")

    def compact(self, text: str, which: int) -> None:
        self.noise(text, which)


class _Dsh(_Story):
    surface: list[int]
    waiting: set[str]

    @property
    def at_rest(self) -> bool:
        return bool(self.surface) and not self.waiting

    def begin(self) -> None:
        self.surface, self.waiting = [], set()
        self.add(type="session", id="s", createdAt=1)
        self.event("turn/start", {"turn": 1})

    def event(self, kind: str, data: Any, operation: Any = None) -> None:
        seq = len(self.records) - 1
        self.add(type=kind, seq=seq, data=data, **({"surfaceOp": operation} if operation else {}))
        if operation == "append":
            self.surface.append(seq)

    def user(self, text: str, which: int) -> None:
        source = {"kind": "user" if which % 2 else "other"}
        data = {"content": [{"type": "text", "text": text}], "source": source}
        self.event("user/message", data, "append")

    def say(self, text: str, which: int) -> None:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        self.event("assistant/message", {"message": message, "step": which}, "append")
        self.waiting = set()

    def call(self, call_id: str, which: int) -> None:
        block = {"type": "tool-call", "id": call_id, "name": "t", "arguments": str(which)}
        message = {"role": "assistant", "content": [block]}
        self.event("assistant/message", {"message": message}, "append")
        self.waiting = {call_id}

    def result(self, call_id: str, text: str) -> None:
        self.waiting.discard(call_id)
        content = [{"type": "text", "text": text}]
        self.event(
            "tool/result", {"message": {"toolCallId": call_id, "content": content}}, "append"
        )

    def noise(self, text: str, which: int) -> None:
        self.event("session/note", {"text": text, "n": which})

    def compact(self, text: str, which: int) -> None:
        if which > 1 and not self.at_rest:
            return
        self.event("compaction/start", {"compactionId": text, "turn": 1})
        if which > 1:
            first, last = self.surface[0], self.surface[-1]
            block = {"type": "text", "text": text}
            summary = {"compactionId": text, "summary": [block], "shadowedTokenCount": 1}
            self.event("compaction/summary", summary)
            source = {"kind": "compact-checkpoint", "compactionId": text}
            data = {"content": [block], "source": source}
            self.surface.clear()
            self.event("user/message", data, {"op": "replace", "startSeq": first, "endSeq": last})
            self.surface.append(len(self.records) - 2)
            self.event("compaction/end", {"compactionId": text, "turn": 1})
        if which == 0:
            self.event("compaction/end", {"compactionId": text, "turn": 1, "error": "no"})


STORIES = pytest.mark.parametrize("story", [_ClaudeCode, _Pi, _Codex, _Chat, _Dsh])
MANY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(path: Path, records: Records) -> bytes:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(data)
    return data


@STORIES
@MANY
@given(steps=STEPS, cut=st.integers(0, 40))
def test_any_beginning_gives_the_beginning_of_the_events(
    tmp_path: Path, story: Callable[[list[Step]], _Story], steps: list[Step], cut: int
) -> None:
    """At every line, and within lines, what a log being written gives is never taken back."""
    path = tmp_path / "log.jsonl"
    records = story(steps).records
    if not records:
        return
    data = written(path, records)
    log = read_log(path)
    whole = [event.json_text for event in import_session(log).events]
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for end in [*ends, ends[0] + cut]:
        path.write_bytes(data[:end])
        begun = read_log(path, finished=False)
        assert begun.items == log.items[: len(begun.items)]
        got = [event.json_text for event in import_session(begun).events]
        assert got == whole[: len(got)]


@STORIES
@MANY
@given(steps=STEPS)
def test_every_text_is_kept_and_every_pair_holds(
    tmp_path: Path, story: Callable[[list[Step]], _Story], steps: list[Step]
) -> None:
    """Whatever a log left unanswered or out of order, no text is lost and no pair is parted."""
    made = story(steps)
    if not made.records:
        return
    path = tmp_path / "log.jsonl"
    written(path, made.records)
    log = read_log(path)
    for recorded in (True, False):
        session = import_session(log, recorded=recorded)
        assert not pairing.open_calls(session)
        everything = "\n".join(event.json_text for event in session.events)
        assert [text for text in made.texts if f'"{text}"' not in everything] == []


@STORIES
@MANY
@given(steps=STEPS, every=st.integers(2, 5))
def test_another_hosts_compactions_leave_room_for_the_recorded_ones(
    tmp_path: Path, story: Callable[[list[Step]], _Story], steps: list[Step], every: int
) -> None:
    """While a host compacts by its own policy, spans are told on the surface as it then is."""
    made = story(steps)
    if not made.records:
        return
    path = tmp_path / "log.jsonl"
    written(path, made.records)
    log = read_log(path)
    playback = Playback(log, session_id="mine")
    session = playback.session
    for number, item in enumerate(log.items):
        if isinstance(item, RecordedCompaction):
            span = playback.span(item)
            if span is not None:
                assert pairing.balanced_before(session, span[0])
                assert pairing.balanced_after(session, span[1])
                playback.apply_recorded(item)
            continue
        playback.apply(item)
        last = len(session.surface) - 1
        if number % every == 0 and last > 0 and not pairing.open_calls(session):
            shadowed = session.surface.nodes[: last + 1]
            session.append(
                "user/message",
                {"content": [{"type": "text", "text": "mine"}], "source": {"kind": "x"}},
                surface_op={"op": "replace", "startSeq": shadowed[0], "endSeq": shadowed[-1]},
                source_event_seqs=shadowed,
            )
    assert not pairing.open_calls(session)


@MANY
@given(steps=STEPS)
def test_our_own_file_of_any_import_gives_the_same_events(
    tmp_path: Path, steps: list[Step]
) -> None:
    """Written to disk and imported again, a session has the events it had."""
    made = _Pi(steps)
    path, own = tmp_path / "log.jsonl", tmp_path / "own.jsonl"
    written(path, made.records)
    session = import_session(read_log(path))
    write_session(own, session)
    again = import_session(read_log(own))
    assert [{**event.wire(), "origin": 0} for event in again.events] == [
        {**event.wire(), "origin": 0} for event in session.events
    ]


WORDS = [
    "type", "role", "message", "content", "text", "id", "name", "input", "arguments", "tool_use_id",
    "tool_calls", "function", "payload", "data", "source", "kind", "surfaceOp", "op", "start", "end",
    "summary", "subtype", "timestamp", "seq", "call_id", "output", "replacement_history", "header",
    "firstKeptEntryIndex", "isCompactSummary", "operation", "toolCallId", "model", "usage", "thinking",
    "shadowedSeqs", "sourceEventSeqs", "tool_call_id", "messages", "system", "turn", "compactionId",
]  # fmt: skip
VALUES = [
    "user", "assistant", "system", "tool", "text", "tool_use", "tool_result", "thinking", "message",
    "compact_boundary", "compaction", "session", "response_item", "function_call", "event_msg",
    "function_call_output", "compacted", "session_meta", "turn_context", "user/message",
    "assistant/message", "tool/result", "compaction/start", "compaction/summary", "compaction/end",
    "compaction/prune", "request/header", "request/context", "system/message", "turn/start",
    "queue-operation", "enqueue", "remove", "toolResult", "bashExecution", "append", "replace",
    "tool-call", "tool-result", "reasoning", "image", "2026-01-01T00:00:00Z", "", "\ud800", "c1",
]  # fmt: skip
LEAVES = st.one_of(
    st.sampled_from(VALUES), st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.text()
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=6)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(WORDS), JSON, max_size=6)
OPENINGS = [
    {"type": "session", "id": "s", "createdAt": 1},
    {"type": "session", "id": "s", "timestamp": "x"},
    {"type": "session", "format": "ctxarchive", "version": 1, "id": "s"},
    {"type": "session_meta", "payload": {}},
    {"type": "progress", "sessionId": "s"},
    {"role": "user", "content": "x"},
]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    opening=st.sampled_from(OPENINGS),
    records=st.lists(OBJECTS, max_size=4),
    kinds=st.lists(st.sampled_from(VALUES), max_size=4),
    finished=st.booleans(),
)
def test_garbage_raises_nothing_but_a_log_format_error(
    tmp_path: Path, opening: dict[str, Any], records: Records, kinds: list[str], *, finished: bool
) -> None:
    """Any JSON under any field is read, left out, or refused in our own words."""
    path = tmp_path / "log.jsonl"
    refusal = ""
    typed = [{**record, "type": kind} for record, kind in zip(records, kinds, strict=False)]
    written(path, [opening, *typed, *records[len(typed) :]])
    try:
        log = read_log(path, finished=finished, sidechains=True)
        import_session(log)
        import_session(log, recorded=False)
    except LogFormatError as error:
        refusal = str(error)
    assert "\n" not in refusal


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(), st.binary().map(lambda tail: b'{"role":"user"}\n' + tail)))
def test_bytes_raise_nothing_but_a_log_format_error(tmp_path: Path, data: bytes) -> None:
    """A file of any bytes is refused, never a crash."""
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(LogFormatError):
        read_log(path)
