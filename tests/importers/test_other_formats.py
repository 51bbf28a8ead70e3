"""pi, DSH, Codex and chat lists, on logs of a few lines."""

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


# DSH and our own

DSH_HEADER = {"type": "session", "version": 4, "id": "d", "createdAt": 5, "cwd": "/w"}


def event(kind: str, data: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, **more}


def dsh_user(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    data = {"role": "user", "content": content, "source": {"kind": "user"}}
    return event("user/message", data, surfaceOp="append", **more)


def dsh_answer(*blocks: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks)}
    return event(
        "assistant/message", {"message": message, "usage": {"inputTokens": 1}}, surfaceOp="append"
    )


def dsh_checkpoint(start: int, end: int) -> dict[str, Any]:
    data = {
        "role": "user",
        "content": [{"type": "text", "text": "checkpoint"}],
        "source": {"kind": "plugin", "plugin": "compact", "compactionId": "x"},
    }
    return event("user/message", data, surfaceOp={"op": "replace", "start": start, "end": end})


DSH_START = event("compaction/start", {"compactionId": "x", "turn": 1})
DSH_SUMMARY = event(
    "compaction/summary",
    {"compactionId": "x", "summary": [{"type": "text", "text": "sum"}], "shadowedTokenCount": 8},
)
DSH_END = event("compaction/end", {"compactionId": "x", "turn": 1})
TURN = event("turn/start", {"turn": 1})


def test_a_dsh_bracket_is_one_recorded_compaction(write_log: WriteLog, said: Said) -> None:
    """Events without seq have their position; what stood inside the bracket stands before it."""
    inside = event("step/mark", {"n": 1})
    log = read_log(
        write_log(
            [
                DSH_HEADER,
                TURN,
                dsh_user("one"),
                DSH_START,
                inside,
                DSH_SUMMARY,
                dsh_checkpoint(1, 1),
                DSH_END,
                dsh_user("two"),
            ]
        )
    )
    assert log.format == "dsh"
    (item,) = [item for item in log.items if isinstance(item, RecordedCompaction)]
    assert (item.summary, item.shadows, item.pre_tokens, item.trigger) == ("sum", (1,), 8, "auto")
    session = import_session(log)
    assert [words for _, words in said(session)] == ["checkpoint", "two"]
    assert types(session)[2:4] == ["step/mark", "compaction/start"]


@pytest.mark.parametrize(
    "ending",
    [
        [event("compaction/end", {"compactionId": "x", "turn": 1, "error": "no"})],
        [event("session/end-seed", {})],
        [],
    ],
    ids=["failed", "crashed", "cut off"],
)
def test_a_dsh_compaction_that_came_to_nothing_is_left_out(
    write_log: WriteLog, ending: list[dict[str, Any]]
) -> None:
    """A failed or unmatched bracket leaves a warning and no events."""
    log = read_log(write_log([DSH_HEADER, TURN, dsh_user("one"), DSH_START, *ending]))
    assert not [item for item in log.items if isinstance(item, RecordedCompaction)]
    assert "line 4: a compaction is left out" in log.warnings[0]
    assert "compaction/start" not in types(import_session(log))


def test_a_dsh_checkpoint_without_end_stands(write_log: WriteLog, said: Said) -> None:
    """A crash after the replacement left it on the surface: what follows builds on it."""
    bracket = [DSH_START, DSH_SUMMARY, dsh_checkpoint(1, 1)]
    log = read_log(write_log([DSH_HEADER, TURN, dsh_user("one"), *bracket]))
    assert "kept for its checkpoint" in log.warnings[0]
    assert [words for _, words in said(import_session(log))] == ["checkpoint"]


DSH_CALL = {"type": "tool-call", "id": "c", "name": "read", "arguments": "{}"}


def dsh_result(text: str, **more: Any) -> dict[str, Any]:
    message = {
        "role": "tool",
        "toolCallId": "c",
        "content": [{"type": "text", "text": text}],
    }
    return event("tool/result", {"message": message}, **{"surfaceOp": "append", **more})


PRUNED = [
    event(
        "compaction/prune",
        {"shadowedRange": {"start": 2, "end": 2}, "shadowedSeqs": [2], "shadowedTokenCount": 4},
    ),
    dsh_result(
        "short",
        surfaceOp={"op": "replace", "startSeq": 2, "endSeq": 2},
        sourceEventSeqs=[2],
    ),
]


def test_a_dsh_prune_takes_the_place_of_the_original(live: Live, said: Said) -> None:
    """The replacement stands in the original's place, cites it, and its price follows its seqs."""
    session = live([DSH_HEADER, dsh_user("one"), dsh_answer(DSH_CALL), dsh_result("long"), *PRUNED])
    assert [words for _, words in said(session)] == ["one", "read", "short"]
    pruned = session.events[-1]
    assert pruned.source_event_seqs == (2,)
    assert session.events[-2].data.shadowed_seqs == (2,)
    assert session.event_at(1).data.wire()["recordedUsage"] == {"inputTokens": 1}
    assert session.event_at(1).data.usage is None


def test_a_dsh_replacement_may_part_no_pair(write_log: WriteLog) -> None:
    """A replacement that answers another call than what it replaces is refused."""
    wrong = json.loads(json.dumps(PRUNED[1]).replace('"c"', '"other"'))
    records = [DSH_HEADER, dsh_user("one"), dsh_answer(DSH_CALL), dsh_result("long"), wrong]
    with pytest.raises(LogFormatError, match=r"line 5.*parts a tool call"):
        read_log(write_log(records))


def test_a_prune_of_what_is_gone_stays_on_the_log_only(write_log: WriteLog) -> None:
    """Where a host compacted the original first, its replacement has no place on the surface."""
    log = read_log(
        write_log([DSH_HEADER, dsh_user("one"), dsh_answer(DSH_CALL), dsh_result("long"), *PRUNED])
    )
    playback = Playback(log)
    for number, item in enumerate(log.items):
        assert not isinstance(item, RecordedCompaction)
        if number == 3:
            playback.session.append(
                "user/message",
                {"role": "user", "content": [{"type": "text", "text": "mine"}]},
                surface_op={"op": "replace", "startSeq": 0, "endSeq": 2},
                source_event_seqs=(0, 1, 2),
            )
        playback.apply(item)
    assert len(playback.session.surface) == 1
    assert types(playback.session)[-2:] == ["import/superseded", "import/superseded"]


def test_a_dsh_system_message_becomes_the_headers_system_prompt(live: Live) -> None:
    """It is no message, and later headers without a prompt of their own keep it."""
    system = event(
        "system/message",
        {"message": {"role": "system", "content": [{"type": "text", "text": "be good"}]}},
        surfaceOp="append",
    )
    header = event("request/header", {"header": {"config": {"model": "m"}}})
    session = live([DSH_HEADER, system, header, dsh_user("hi")])
    assert session.request_header == {"config": {"model": "m"}, "system": "be good"}
    assert len(session.surface) == 1


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
    assert (log.format, session.id) == ("chat", "talk")
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
