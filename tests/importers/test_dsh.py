"""DSH sessions, on logs of a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.playback import Playback, import_session
from ctxarchive.importers.read import read_log
from ctxarchive.session.log import Session

Live = Callable[..., Session]
Said = Callable[[Session], list[tuple[str, str]]]
WriteLog = Callable[..., Path]


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


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


def test_a_price_of_nothing_is_left_out(write_log: WriteLog) -> None:
    """A prune that no replacement follows directly says nothing about a later one."""
    prune, replacement = PRUNED
    log = read_log(
        write_log(
            [
                DSH_HEADER,
                dsh_user("one"),
                dsh_answer(DSH_CALL),
                dsh_result("long"),
                prune,
                event("step/end", {}),
                replacement,
            ]
        )
    )
    assert log.warnings == ("line 5: nothing was pruned; left out",)
    assert "compaction/prune" not in types(import_session(log))


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
