"""Claude Code logs, on logs of a few lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.playback import Playback
from ctxarchive.importers.read import detect, read_log
from ctxarchive.session import pairing
from ctxarchive.session.log import Session

Live = Callable[..., Session]
Said = Callable[[Session], list[tuple[str, str]]]
WriteLog = Callable[..., Path]


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "sessionId": "s-1",
        "uuid": "u",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "message": {"role": "user", "content": content},
        **more,
    }


def assistant(message_id: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": list(blocks)}
    return {
        "type": "assistant",
        "sessionId": "s-1",
        "uuid": "a",
        "timestamp": "2026-01-02T03:04:06Z",
        "message": {**message, "usage": {"input_tokens": 7}},
        **more,
    }


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": given}


def result(call_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


PROGRESS = {"type": "progress", "sessionId": "s-1", "data": {}}
BOUNDARY = {
    "type": "system",
    "subtype": "compact_boundary",
    "sessionId": "s-1",
    "compactMetadata": {"trigger": "manual", "preTokens": 123},
}
SUMMARY = user("This session is being continued: we did things", isCompactSummary=True)


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


def test_a_turn_becomes_a_turn_with_header_context_and_messages(live: Live) -> None:
    """A prompt and its answer give the events of one closed turn, with the log's own times."""
    session = live([user("hi"), assistant("m1", text("hello"))])
    assert types(session) == [
        "turn/start",
        "user/message",
        "request/header",
        "request/context",
        "assistant/message",
        "turn/end",
    ]
    assert session.id == "s-1"
    assert session.event_at(1).time == 1767323045678
    assert session.event_at(4).data.wire()["recordedUsage"] == {"input_tokens": 7}
    assert "usage" not in session.event_at(4).data.wire()
    assert session.context_window == 200_000


def test_adjacent_lines_of_one_message_are_one_message(live: Live) -> None:
    """Lines that share a message id are joined, in order, with thinking and its signature kept."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    session = live(
        [
            user("hi"),
            assistant("m1", thinking),
            assistant("m1", text("\n\n")),
            assistant("m1", call("c", a="é")),
        ]
    )
    last = session.event_at(session.surface[1])
    assert last.message is not None
    assert [block.wire() for block in last.message.content] == [
        {"type": "reasoning", "text": "hm", "signature": "sig"},
        text("\n\n"),
        {"type": "tool-call", "id": "c", "name": "Bash", "arguments": '{"a": "é"}'},
    ]
    assert last.origin is not None
    assert (last.origin.line, last.origin.last_line) == (2, 4)


def test_a_message_is_not_joined_across_another_record(live: Live) -> None:
    """A record between two lines of a message keeps them apart, so that a prefix stays a prefix."""
    session = live([user("hi"), assistant("m1", text("a")), PROGRESS, assistant("m1", text("b"))])
    assert types(session).count("assistant/message") == 2


def test_a_message_is_not_joined_across_a_sidechain(live: Live) -> None:
    """Nor does a record that is left out bring its neighbours together."""
    aside = assistant("m9", text("sub"), isSidechain=True)
    session = live([user("hi"), assistant("m1", text("a")), aside, assistant("m1", text("b"))])
    assert types(session).count("assistant/message") == 2


def test_parallel_calls_of_one_message_stay_open_together(live: Live, said: Said) -> None:
    """A second part of the same message does not close the calls of the first."""
    session = live(
        [
            user("hi"),
            assistant("m1", call("c1")),
            PROGRESS,
            assistant("m1", call("c2")),
            user([result("c1", "one")]),
            user([result("c2", [text("two"), {"type": "image", "source": {"data": "AA"}}])]),
        ]
    )
    assert said(session)[-2:] == [("tool", "one"), ("tool", "two")]
    assert not pairing.open_calls(session)


def test_a_call_without_result_gets_one_that_says_so(live: Live) -> None:
    """When the conversation moves on, an open call is answered by a marked stand-in."""
    session = live([user("hi"), assistant("m1", call("c")), assistant("m2", text("on"))])
    stand_in = next(event for event in session.events if event.type == "tool/result")
    assert stand_in.data.wire()["synthetic"] is True
    assert stand_in.data.message.block.is_error
    assert "no result" in stand_in.data.message.block.content[0].text
    assert types(session)[-2:] == ["assistant/message", "turn/end"]


def test_text_waits_until_the_calls_are_answered(live: Live, said: Said) -> None:
    """User text between a call and its result stands after the result, and starts no turn."""
    session = live(
        [user("hi"), assistant("m1", call("c")), user("wait"), user([result("c"), text("too")])]
    )
    assert [role for role, _ in said(session)] == ["user", "assistant", "tool", "user", "user"]
    assert said(session)[-2:] == [("user", "wait"), ("user", "too")]
    assert types(session).count("turn/start") == 1


def test_a_late_result_is_kept_as_injected_text(live: Live) -> None:
    """A result that comes after its call was closed is not lost and breaks no pair."""
    session = live(
        [
            user("hi"),
            assistant("m1", call("c")),
            assistant("m2", text("on")),
            user([result("c", "late words")]),
        ]
    )
    last = session.event_at(session.surface[-1])
    assert last.data.source.wire() == {
        "kind": "injected",
        "reason": "late-result",
        "callId": "c",
    }
    assert last.data.content[0].text == "late words"


def test_a_result_without_call_is_an_error_that_names_the_line(write_log: WriteLog) -> None:
    """A log that answers what was never asked is refused."""
    path = write_log([user("hi"), user([result("nowhere")])])
    with pytest.raises(LogFormatError, match=r"line 2.*nowhere") as caught:
        read_log(path)
    assert (caught.value.code, caught.value.line) == ("invalid", 2)


@pytest.mark.parametrize(
    ("content", "more", "reason"),
    [
        ("plain words", {"isMeta": True}, "meta"),
        ("<command-name>/exit</command-name><command-args></command-args>", {}, "command"),
        ("<command-message>x</command-message>\n<command-name>/x</command-name>", {}, "command"),
        ("<local-command-stdout>Bye</local-command-stdout>", {}, "local-command"),
        ("<bash-input>ls</bash-input>", {}, "bash"),
        ("<task-notification>\n<task-id>1", {}, "task-notification"),
        ("  <system-reminder>x", {}, "system-reminder"),
        ("<ide_opened_file>x", {}, "ide"),
        ("[Request interrupted by user for tool use]", {}, "interrupted"),
        ("Stop hook feedback:\n- no", {}, "hook"),
        ("This session is being continued from a previous conversation", {}, "continuation"),
        ("Current runtime context. x", {}, "runtime-context"),
        ("<active_memory>x", {}, "memory"),
        ("<resume_snapshot>x", {}, "resume"),
        ("The available skill catalog changed", {}, "skills"),
        ("<current_runtime_context>", {}, "runtime-context"),
    ],
)
def test_what_the_harness_wrote_is_not_the_users(
    live: Live, content: str, more: dict[str, Any], reason: str
) -> None:
    """Injected text in the user's role keeps its bytes and is marked with its reason."""
    session = live([user(content, **more)])
    event = session.event_at(session.surface[0])
    assert event.data.source.wire() == {"kind": "injected", "reason": reason}
    assert event.data.content[0].text == content


def test_words_typed_after_a_command_are_the_users(live: Live) -> None:
    """A command record whose arguments hold text counts as what the user asked."""
    content = (
        "<command-message>plan</command-message>\n<command-name>/plan</command-name>\n"
        "<command-args>keep the tests green</command-args>"
    )
    session = live([user(content)])
    assert session.event_at(session.surface[0]).data.source.kind == "user"


def test_injected_and_own_text_in_one_record_are_two_messages(live: Live) -> None:
    """A wrapper beside the user's words does not make them the harness's."""
    session = live([user([text("<ide_opened_file>a</ide_opened_file>"), text("fix it")])])
    kinds = [session.event_at(seq).data.source.kind for seq in session.surface]
    assert kinds == ["injected", "user"]


def test_text_queued_and_taken_within_a_turn_is_the_users(live: Live) -> None:
    """A queued message that no user record repeats stands where the queue gave it to the model."""
    queue = {"type": "queue-operation", "sessionId": "s-1"}
    session = live(
        [
            user("hi"),
            assistant("m1", call("c")),
            {**queue, "operation": "enqueue", "content": "commit first"},
            {**queue, "operation": "remove"},
            user([result("c")]),
            {**queue, "operation": "enqueue", "content": "next"},
            {**queue, "operation": "dequeue"},
            user("next"),
        ]
    )
    texts = [event.data.content[0].text for event in session.events if event.type == "user/message"]
    assert texts == ["hi", "commit first", "next"]
    assert types(session).count("turn/start") == 2


def test_sidechains_are_left_out_unless_asked_for(live: Live, write_log: WriteLog) -> None:
    """What a subagent did is not the session's, and its absence is told."""
    records = [user("hi"), user("sub", isSidechain=True), assistant("m", text("x"))]
    assert len(live(records).surface) == 2
    assert len(live(records, sidechains=True).surface) == 3
    assert read_log(write_log(records)).warnings == ("1 sidechain records are left out",)


def test_a_recorded_compaction_replaces_the_whole_surface(live: Live, said: Said) -> None:
    """Boundary and summary become one bracket inside the open turn; an open call is closed first."""
    session = live([user("hi"), assistant("m1", call("c")), BOUNDARY, SUMMARY, user("go on")])
    names = types(session)
    at = names.index("compaction/start")
    assert names[at : at + 4] == [
        "compaction/start",
        "compaction/summary",
        "user/message",
        "compaction/end",
    ]
    assert names[at - 1] == "tool/result"
    start, summary = session.event_at(at), session.event_at(at + 1)
    assert start.data.turn == 1
    assert summary.data.shadowed_token_count == 123
    assert summary.data.provider == "recorded"
    assert summary.data.model == "claude-x"
    assert session.event_at(at + 2).data.source.wire() == {
        "kind": "compact-checkpoint",
        "compactionId": start.data.compaction_id,
    }
    assert [words for _, words in said(session)] == [SUMMARY["message"]["content"], "go on"]


def test_a_recorded_compaction_names_the_model_of_its_time(live: Live) -> None:
    """A model that is chosen later does not reach back."""
    later = assistant("m2", text("b"))
    later["message"]["model"] = "claude-y"
    session = live([user("hi"), assistant("m1", text("a")), BOUNDARY, SUMMARY, later])
    summary = next(event for event in session.events if event.type == "compaction/summary")
    assert summary.data.model == "claude-x"
    assert session.request_header["config"]["model"] == "claude-y"


def test_recorded_compactions_can_be_left_out(live: Live, said: Said) -> None:
    """Without them the session is as if the harness had never compacted."""
    session = live([user("hi"), BOUNDARY, SUMMARY, user("go on")], recorded=False)
    assert [words for _, words in said(session)] == ["hi", "go on"]


def test_a_boundary_without_summary_is_left_out_with_a_warning(write_log: WriteLog) -> None:
    """No summary, no compaction."""
    log = read_log(write_log([user("hi"), BOUNDARY, user("go on")]))
    assert not [item for item in log.items if isinstance(item, RecordedCompaction)]
    assert "without summary" in log.warnings[0]


def test_a_log_that_begins_with_a_compaction_keeps_its_summary(live: Live) -> None:
    """Where there is nothing to replace, the summary stands as a message of the harness."""
    session = live([BOUNDARY, SUMMARY, user("go on")])
    assert session.event_at(session.surface[0]).data.source.wire()["reason"] == "continuation"


def test_a_microcompaction_is_no_compaction(write_log: WriteLog) -> None:
    """What only drops old tool results from a request leaves the log as it is."""
    boundary = {**BOUNDARY, "subtype": "microcompact_boundary"}
    log = read_log(write_log([user("hi"), boundary, user("x")]))
    assert not [item for item in log.items if isinstance(item, RecordedCompaction)]
    assert not log.warnings


def test_the_synthetic_model_is_not_the_sessions_model(live: Live) -> None:
    """An answer made up by the harness does not change the request header."""
    made_up = assistant("m2", text("No response requested."))
    made_up["message"]["model"] = "<synthetic>"
    session = live([user("hi"), assistant("m1", text("a")), made_up])
    assert types(session).count("request/header") == 1
    assert session.event_at(session.surface[-1]).data.message.source.kind == "injected"


def test_summary_records_give_the_title(write_log: WriteLog) -> None:
    """The first summary line names the session."""
    title = {"type": "summary", "summary": "A title", "leafUuid": "x"}
    path = write_log([title, user("hi")])
    assert detect(path) == "claude-code"
    assert read_log(path).title == "A title"


def test_a_unit_still_open_is_left_out_of_a_log_being_written(live: Live) -> None:
    """What the next line could still change is not there yet, and no turn ends."""
    records = [user("hi"), PROGRESS, assistant("m1", call("c")), PROGRESS, user("held")]
    assert types(live(records, finished=False)) == [
        "turn/start",
        "user/message",
        "request/header",
        "request/context",
    ]
    assert types(live([user("hi"), assistant("m1", text("a"))], finished=False)) == [
        "turn/start",
        "user/message",
    ]


def test_the_span_of_a_second_compaction_starts_at_the_first_checkpoint(
    write_log: WriteLog,
) -> None:
    """What is shadowed already is represented by the checkpoint in its place."""
    log = read_log(write_log([user("hi"), BOUNDARY, SUMMARY, user("go on"), BOUNDARY, SUMMARY]))
    playback = Playback(log, session_id="other")
    spans = []
    for item in log.items:
        if isinstance(item, RecordedCompaction):
            spans.append(playback.span(item))
            playback.apply_recorded(item)
        else:
            playback.apply(item)
    checkpoint = playback.session.events[4]
    assert playback.session.id == "other"
    assert checkpoint.type == "user/message"
    assert [span and span[0] for span in spans] == [1, checkpoint.seq]
