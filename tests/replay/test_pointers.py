"""Every real log, replayed: each printed call returns what the raw log holds.

The truth is read from the raw files by a few lines here, not by the importers: an archived event
only says which line it came from.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ctxarchive.archive.rendering import render
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.replay.check import check_log, check_session
from ctxarchive.replay.run import Replay, Replayer, ReplaySettings
from ctxarchive.session.jsonl import read_session, write_session
from ctxarchive.tools.ctx_search import CtxSearchTool

if TYPE_CHECKING:
    from tests import reading
else:
    place = Path(__file__).parents[1] / "reading.py"
    spec = importlib.util.spec_from_file_location("reading_checkpoints", place)
    reading = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reading)

FOLDER = os.environ.get("CTXARCHIVE_LOGS")
LOGS = sorted(
    path
    for path in (Path(FOLDER).glob("*/*.json*") if FOLDER else ())
    if path.is_file() and not path.name.startswith(".")
)
RUN_BY_COMMAND = ("compacted-03a1382e", "codex-", "runtime-", "airline-0")
"""Logs that go through the command line itself; the others through what it calls."""

# --- raw logs --------------------------------------------------------------------------------


def raw_lines(path: Path) -> list[Any]:
    """The records of a log, by line; of a list of messages, by position."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if path.suffix == ".json":
        found = json.loads(text)
        return list(found)
    return [json.loads(line) if line.strip() else None for line in text.split("\n")]


def joined(content: Any) -> str:
    """The text of raw content: a string, or the texts of its blocks."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(
        block if isinstance(block, str) else block["text"]
        for block in content
        if isinstance(block, str) or block.get("type") in {"text", "input_text", "output_text"}
    )


def blocks_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The content blocks of a raw record's message."""
    content = (record.get("message") or {}).get("content")
    return content if isinstance(content, list) else []


Calls = Iterator[tuple[str, str, Any]]
"""Id, name and arguments of the tool calls of one raw record."""


def claude_calls(record: dict[str, Any]) -> Calls:
    """Blocks of an assistant's message."""
    for block in blocks_of(record):
        if block.get("type") == "tool_use":
            yield block["id"], block["name"], block["input"]


def pi_calls(record: dict[str, Any]) -> Calls:
    """Blocks of an assistant's message."""
    for block in blocks_of(record):
        if block.get("type") == "toolCall":
            yield block["id"], block["name"], block["arguments"]


def codex_calls(record: dict[str, Any]) -> Calls:
    """A record of its own."""
    payload = record.get("payload", {})
    if payload.get("type") in {"function_call", "custom_tool_call"}:
        yield payload["call_id"], payload["name"], payload.get("arguments", payload.get("input"))


def dsh_calls(record: dict[str, Any]) -> Calls:
    """Blocks of an assistant's message."""
    for block in blocks_of(record.get("data") or {}):
        if block.get("type") == "tool-call":
            yield block["id"], block["name"], block["arguments"]


def chat_calls(record: dict[str, Any]) -> Calls:
    """A field beside the content."""
    for call in record.get("tool_calls") or ():
        yield call["id"], call["function"]["name"], call["function"]["arguments"]


CALLS: dict[str, Callable[[dict[str, Any]], Calls]] = {
    "claude-code": claude_calls,
    "pi": pi_calls,
    "codex": codex_calls,
    "dsh": dsh_calls,
    "openai-chat": chat_calls,
}


class Raw:
    """A raw log, asked for the text at a line."""

    def __init__(self, path: Path) -> None:
        self.kind = path.parent.name
        self.lines = raw_lines(path)
        self.calls: dict[str, str] = {}
        for record in self.lines:
            for call_id, name, given in () if record is None else CALLS[self.kind](record):
                spelt = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
                self.calls[call_id] = reading.call_line(name, spelt)

    def text(self, event: dict[str, Any]) -> str | None:
        """The text behind an archived event; ``None`` where the log never held one."""
        origin = event["origin"]
        lines = self.lines[origin["line"] - 1 : origin.get("lastLine") or origin["line"]]
        if event["type"] == "tool/result":
            message = event["data"]["message"]
            content = message.get("content") or [{}]
            call_id = message.get("toolCallId") or content[0]["toolCallId"]
            body = self._result(lines[0], call_id)
            return None if body is None else f"{self.calls[call_id]}\n{body}"
        if self.kind == "claude-code":
            # Lines of one message only: what stands between them is of other kinds.
            own = (lines[0].get("message") or {}).get("id")
            lines = [line for line in lines if (line.get("message") or {}).get("id") == own]
        texts = [text for line in lines if (text := self._message(line)) is not None]
        return "\n".join(texts) if texts else None

    def _message(self, record: dict[str, Any]) -> str | None:
        if self.kind == "openai-chat":
            return joined(record["content"])
        if self.kind == "codex":
            content = record["payload"].get("content")
            return None if content is None else joined(content)
        if self.kind == "dsh":
            data = record["data"]
            return joined((data.get("message") or data)["content"])
        message = record.get("message") or record
        if message.get("role") == "bashExecution" or "content" not in message:
            return None
        content = message["content"]
        if isinstance(content, list):
            content = [block for block in content if block.get("type") == "text"]
            return joined(content) if content else None
        return joined(content)

    def _result(self, record: dict[str, Any], call_id: str) -> str | None:
        if self.kind == "claude-code":
            for block in blocks_of(record):
                if block.get("type") == "tool_result" and block["tool_use_id"] == call_id:
                    return joined(block.get("content"))
            return None
        if self.kind == "pi":
            message = record.get("message") or {}
            return joined(message["content"]) if message.get("toolCallId") == call_id else None
        if self.kind == "codex":
            payload = record["payload"]
            return joined(payload["output"]) if payload.get("call_id") == call_id else None
        if self.kind == "openai-chat":
            return joined(record["content"]) if record.get("tool_call_id") == call_id else None
        content = record["data"]["message"]["content"]
        inner = [block["content"] for block in content if block["type"] == "tool-result"]
        return joined(inner[0] if inner else content)


def truth_of(knowledge: SqliteKnowledgeBase, session: str, raw: Raw) -> tuple[dict[int, str], int]:
    """Texts by seq, from the raw log; and how many of them the log itself did not hold."""
    found: dict[int, str] = {}
    made_up = 0
    for seq in knowledge.archived(session):
        record = knowledge.get(session, seq)
        assert record is not None
        event = json.loads(record.event)
        if record.kind == "checkpoint":
            continue
        text = raw.text(event)
        if text is None:
            made_up += record.kind == "original" and bool(record.text)
            text = record.text
        found[seq] = text
    return found, made_up


# --- replays ---------------------------------------------------------------------------------


def replay(path: Path, archive: Path, at: str) -> tuple[list[dict[str, Any]], Replay]:
    """A log replayed in this process; its compactions as the command prints them."""
    settings = ReplaySettings(
        at=at,  # type: ignore[arg-type]
        summarizer="recorded" if at == "recorded" else "extractive",
        window=60_000 if at == "pressure" else None,
    )
    with SqliteKnowledgeBase.open(archive, render=render) as base:
        done = anyio.run(Replayer(read_log(path), settings, base).run)
    made = [
        {
            "checkpoint": each.checkpoint,
            "shadowed_seqs": each.shadowed_seqs,
            "shadowed_tokens": each.shadowed_tokens,
            "checkpoint_tokens": each.checkpoint_tokens,
        }
        for each in done.compactions
    ]
    return made, done


def command(*arguments: str | Path) -> str:
    """What the real command prints; it must exit with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "ctxarchive", *map(str, arguments)],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogatepass")


def expect_user_messages(made: dict[str, Any], events: dict[int, dict[str, Any]]) -> int:
    """Where no run was dropped, every user message of the span up to 1,000 characters is whole."""
    if " older entries elided (seq " in made["checkpoint"]:
        return 0
    if "## Conversation Transcript" not in made["checkpoint"]:
        return 0
    count = 0
    for seq in made["shadowed_seqs"]:
        event = events.get(seq)
        if event is None or event["type"] != "user/message":
            continue
        data = event["data"]
        text = reading.joined_text(data["content"])
        if data.get("source", {}).get("kind") == "user" and 1_000 >= len(text) > 0:
            assert f"\n## [user {seq}, {len(text)} chars]\n{text}" in made["checkpoint"]
            count += 1
    return count


def expect_everything(
    path: Path, archive: Path, session: str, compactions: list[dict[str, Any]]
) -> None:
    """Each checkpoint is smaller than its span, and each of its calls returns the raw text."""
    raw = Raw(path)
    with SqliteKnowledgeBase.open(archive, render=render) as base:
        assert base.verify() == []
        truth, made_up = truth_of(base, session, raw)
        assert made_up <= max(3, len(truth) // 50)
        events = {seq: json.loads(base.get(session, seq).event) for seq in truth}  # type: ignore[union-attr]
        tool = CtxSearchTool(base, session=session)
        for made in compactions:
            assert made["checkpoint_tokens"] < made["shadowed_tokens"]
            reading.check_checkpoint(made["checkpoint"], tool, truth)
            expect_user_messages(made, events)


@pytest.mark.skipif(not LOGS, reason="CTXARCHIVE_LOGS names no folder of real logs")
@pytest.mark.parametrize("at", ["pressure", "recorded"])
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name.partition(".")[0])
def test_every_call_in_every_checkpoint_returns_the_raw_log(
    path: Path, at: str, tmp_path: Path
) -> None:
    """On pressure in a small window, and where the log's own harness compacted."""
    if at == "recorded" and not any(
        isinstance(item, RecordedCompaction) for item in read_log(path).items
    ):
        pytest.skip("the log records no compaction")
    archive, out = tmp_path / "a.db", tmp_path / "out"
    if path.name.startswith(RUN_BY_COMMAND):
        asked = ["--at", at]
        asked += ["--summarizer", "recorded"] if at == "recorded" else ["--window", "60000"]
        printed = command("compact", path, "--archive", archive, *asked, "--out", out, "--json")
        found = json.loads(printed)
        expect_everything(path, archive, found["session"], found["compactions"])
        if found["compactions"]:
            command("verify", archive, "--log", path)
            (written,) = out.glob("*.jsonl")
            command("verify", archive, "--log", written)
        return
    made, done = replay(path, archive, at)
    expect_everything(path, archive, done.session.id, made)
    if made:
        write_session(tmp_path / "session.jsonl", done.session)
        with SqliteKnowledgeBase.open(archive, render=render) as base:
            assert check_log(base, path).findings == ()
            session = read_session(tmp_path / "session.jsonl").replay()
            checked = check_session(base, session)
            assert checked.findings == ()
            assert checked.compared > 0
