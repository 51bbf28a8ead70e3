"""pi, our own sessions, Codex and chat lists, on logs of a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.playback import Playback, import_session
from ctxarchive.importers.read import detect, read_log
from ctxarchive.session import pairing
from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session

Live = Callable[..., Session]
Said = Callable[[Session], list[tuple[str, str]]]
WriteLog = Callable[..., Path]


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


# pi

PI_HEADER = {
    "type": "session",
    "id": "p",
    "timestamp": "2026-01-01T00:00:00Z",
    "provider": "anthropic",
    "modelId": "claude-x",
}


def pi_message(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more}
    return {"type": "message", "timestamp": "2026-01-01T00:00:01Z", "message": message}


def pi_text(role: str, text: str) -> dict[str, Any]:
    return pi_message(
        role, [{"type": "text", "text": text}], model="claude-x", provider="anthropic"
    )


PI_CALL = pi_message(
    "assistant",
    [{"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}}],
    model="claude-x",
    provider="anthropic",
    usage={"input": 3},
)
PI_RESULT = pi_message(
    "toolResult", [{"type": "text", "text": "out"}], toolCallId="c", isError=True
)


def pi_compaction(first_kept: int) -> dict[str, Any]:
    return {
        "type": "compaction",
        "timestamp": "2026-01-01T00:00:02Z",
        "summary": "so far",
        "firstKeptEntryIndex": first_kept,
        "tokensBefore": 9,
    }


def test_a_pi_session_keeps_results_usage_and_model(live: Live, said: Said) -> None:
    """Calls, results and the header's model come over; usage is only recorded."""
    session = live([PI_HEADER, pi_text("user", "hi"), PI_CALL, PI_RESULT])
    assert said(session) == [("user", "hi"), ("assistant", "bash"), ("tool", "out")]
    assert session.event_at(session.surface[-1]).data.message.block.is_error
    assert session.event_at(session.surface[1]).data.wire()["recordedUsage"] == {"input": 3}
    assert session.request_header["config"] == {"provider": "anthropic", "model": "claude-x"}


def test_a_branched_pi_session_keeps_the_times_of_what_it_took_over(live: Live) -> None:
    """The header of a branch is later than the messages it begins with."""
    header = {**PI_HEADER, "timestamp": "2026-01-01T09:00:00Z"}
    session = live([header, pi_text("user", "hi")])
    assert session.event_at(session.surface[-1]).time == 1_767_225_601_000


def test_a_pi_compaction_keeps_its_tail(live: Live, said: Said) -> None:
    """Entries are counted from the header on; those from the first kept one stay."""
    session = live(
        [
            PI_HEADER,
            pi_text("user", "one"),
            pi_text("assistant", "two"),
            pi_text("user", "three"),
            pi_compaction(3),
            pi_text("user", "four"),
        ]
    )
    assert [words for _, words in said(session)] == ["so far", "three", "four"]


def test_a_pi_compaction_that_would_part_a_pair_gives_way(live: Live, said: Said) -> None:
    """A cut between a call and its result moves before the call."""
    session = live([PI_HEADER, pi_text("user", "one"), PI_CALL, PI_RESULT, pi_compaction(3)])
    assert [words for _, words in said(session)] == ["so far", "bash", "out"]
    assert not pairing.open_calls(session)


def test_a_pi_compaction_takes_stand_in_results_with_their_calls(live: Live, said: Said) -> None:
    """A result that the log lacked goes with its call, though it was made up later."""
    tail = pi_text("assistant", "two")
    session = live([PI_HEADER, pi_text("user", "one"), PI_CALL, tail, pi_compaction(3)])
    assert [words for _, words in said(session)] == ["so far", "two"]


def test_a_span_that_a_host_compacted_first_is_its_checkpoint(write_log: WriteLog) -> None:
    """What a recorded compaction replaced is found in whatever took its place meanwhile."""
    records = [PI_HEADER, pi_text("user", "one"), pi_text("assistant", "two"), pi_compaction(2)]
    log = read_log(write_log(records))
    playback = Playback(log)
    session = playback.session
    for item in log.items:
        if isinstance(item, RecordedCompaction):
            mine = session.append(
                "user/message",
                {"content": [{"type": "text", "text": "mine"}], "source": {"kind": "x"}},
                surface_op={
                    "op": "replace",
                    "startSeq": session.surface[0],
                    "endSeq": session.surface[1],
                },
                source_event_seqs=session.surface.nodes,
            )
            assert playback.span(item) == (mine.seq, mine.seq)
            break
        playback.apply(item)


def test_pi_runs_of_the_users_own_shell_are_injected(live: Live) -> None:
    """A command the user ran is context for the model, not a request."""
    ran = pi_message("bashExecution", command="ls", output="a\nb", exitCode=2)
    session = live([PI_HEADER, ran])
    data = session.event_at(session.surface[0]).data
    assert data.source.wire() == {"kind": "injected", "reason": "bash"}
    assert data.content[0].text == "Ran `ls`\n```\na\nb\n```\n\nCommand exited with code 2"


def test_an_aborted_pi_request_without_content_is_not_on_the_surface(live: Live) -> None:
    """An empty answer is on the log only, with the reason why."""
    session = live([PI_HEADER, pi_message("assistant", [], stopReason="aborted")])
    assert not len(session.surface)
    assert session.events[-1].data == {"stopReason": "aborted"}


# our own


def test_our_own_sessions_come_back_as_they_were(write_log: WriteLog, tmp_path: Path) -> None:
    """A session written to disk and imported has the same events, compactions included."""
    log = read_log(
        write_log(
            [
                PI_HEADER,
                pi_text("user", "one"),
                PI_CALL,
                PI_RESULT,
                pi_text("user", "two"),
                pi_compaction(4),
                pi_text("assistant", "three"),
            ]
        )
    )
    first = import_session(log)
    path = tmp_path / "own.jsonl"
    write_session(path, first)
    assert detect(path) == "ctxarchive"
    again = import_session(read_log(path))
    plain = [[{**e.wire(), "origin": None} for e in s.events] for s in (first, again)]
    assert plain[0] == plain[1]


# Codex


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def codex_message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


CODEX = [
    codex(
        "session_meta", id="x", cwd="/w", model_provider="openai", base_instructions={"text": "sys"}
    ),
    codex("event_msg", type="task_started", model_context_window=95_000),
    codex_message("developer", "rules"),
    codex_message("user", "<environment_context>\n</environment_context>"),
    codex("turn_context", model="gpt-5"),
    codex_message("user", "find the port"),
    codex("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
    codex("response_item", type="function_call", name="sh", arguments="{}", call_id="c"),
    codex("event_msg", type="token_count", info=None),
    codex("response_item", type="function_call_output", call_id="c", output="8473"),
]


def test_a_codex_rollout_keeps_prompt_rules_window_and_calls(live: Live, said: Said) -> None:
    """The first turn begins with what was injected; adjacent model items are one message."""
    session = live(CODEX)
    assert said(session) == [
        ("user", "rules"),
        ("user", "<environment_context>\n</environment_context>"),
        ("user", "find the port"),
        ("assistant", "hm"),
        ("tool", "8473"),
    ]
    kinds = [session.event_at(seq).data.source.kind for seq in list(session.surface)[:3]]
    assert kinds == ["injected", "injected", "user"]
    assert session.request_header["system"] == "sys"
    assert session.context_window == 95_000
    assert types(session).count("turn/start") == 1


def test_the_harnesss_own_request_for_a_summary_is_not_said_to_the_user(
    live: Live, said: Said
) -> None:
    """What the model answered to it is in the checkpoint; the log keeps it beside the surface."""
    answer = {**codex_message("assistant", "handoff"), "metadata": {"compaction_output": True}}
    session = live([*CODEX, answer])
    assert ("assistant", "handoff") not in said(session)
    assert any(e.type == "assistant/attempt" for e in session.events)


def test_a_codex_compaction_carries_its_whole_replacement(live: Live) -> None:
    """Everything the model saw instead of its history is in the checkpoint, in order."""
    history = [codex_message("user", "find the port")["payload"]]
    compacted = codex(
        "compacted",
        message="Summary: 8473",
        replacement_history=[*history, codex_message("user", "Summary: 8473")["payload"]],
    )
    session = live([*CODEX, compacted, codex_message("assistant", "done")])
    checkpoint = session.event_at(session.surface[0])
    assert [block.text for block in checkpoint.data.content] == ["find the port", "Summary: 8473"]
    assert len(session.surface) == 2
    assert len(live([*CODEX, compacted], recorded=False).surface) == 5


# chat lists

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "out"},
    {"role": "assistant", "content": "bye"},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "out"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "bye"}]},
]


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
@pytest.mark.parametrize("shape", ["array", "pretty", "object", "lines"])
def test_a_chat_list_is_read_in_every_shape(
    tmp_path: Path, said: Said, messages: list[dict[str, Any]], shape: str
) -> None:
    """An array, an object that holds it, and JSON lines give the same conversation."""
    body = {
        "array": lambda: json.dumps(messages),
        "pretty": lambda: json.dumps({"messages": messages}, indent=2),
        "object": lambda: json.dumps({"messages": messages}),
        "lines": lambda: "\n".join(json.dumps(message) for message in messages),
    }[shape]()
    path = tmp_path / "talk.json"
    path.write_text(body, "utf-8")
    log = read_log(path)
    session = import_session(log)
    assert log.format == "chat"
    assert session.id.startswith("talk-")
    assert said(session) == [
        ("user", "hi"),
        ("assistant", "f"),
        ("tool", "out"),
        ("assistant", "bye"),
    ]
    assert session.request_header.get("system") == ("be kind" if messages is OPENAI else None)


def test_what_stands_around_the_messages_becomes_the_header(tmp_path: Path) -> None:
    """System prompt, tools and model beside the list are the request's fixed part."""
    path = tmp_path / "x.json"
    around = {"system": "s", "tools": [{"name": "f"}], "model": "claude-x", "messages": ANTHROPIC}
    path.write_text(json.dumps(around), "utf-8")
    session = import_session(read_log(path))
    assert session.request_header == {
        "system": "s",
        "tools": [{"name": "f"}],
        "config": {"model": "claude-x"},
    }
    assert session.context_window == 200_000


@pytest.mark.parametrize(
    "record",
    [
        {"role": "user", "content": [{"type": []}]},
        {"role": "assistant", "content": [{"type": {}}]},
        {"type": "user", "sessionId": "s", "message": {"content": [{"type": ["x"]}]}},
        codex("response_item", type="message", role="user", content=[{"type": [1]}]),
        {"type": "assistant", "sessionId": "s", "message": {"content": [{"type": "tool_use"}]}},
        {"role": "user", "content": [{"type": "text", "text": 1}]},
        {"role": "user", "content": 5},
    ],
)
def test_a_block_of_the_wrong_shape_is_refused(write_log: WriteLog, record: dict[str, Any]) -> None:
    """A block that is none is an error that names the line."""
    with pytest.raises(LogFormatError, match="line 1: ") as caught:
        read_log(write_log([record]))
    assert caught.value.code == "invalid"


def test_two_conversations_in_one_file_are_refused(write_log: WriteLog) -> None:
    """One file is one session."""
    with pytest.raises(LogFormatError, match=r"line 2.*own file"):
        read_log(write_log([{"messages": OPENAI}, {"messages": OPENAI}]))
