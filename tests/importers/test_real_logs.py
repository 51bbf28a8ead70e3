"""Every real log: nothing a model could see is missing, doubled, changed or out of order.

What must be there is read from the files by the few lines below, not by the importers.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.importers.log import ImportedLog, RecordedCompaction
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.session import pairing
from ctxarchive.session.events import AssistantMessage, ToolResult, UserMessage
from ctxarchive.session.log import Session

Paths = Callable[[str], list[Path]]
Texts = tuple[list[str], list[str]]
"""The user's side, and the model's side with what its tools answered; each in order."""

PATTERNS = {
    "claude-code": ("claude-code/*.gz", 22, 24),
    "pi": ("pi/*.jsonl", 1, 2),
    "dsh": ("dsh/*.jsonl", 2, 2),
    "codex": ("codex/*.jsonl", 1, 1),
    "chat": ("openai-chat/*.json", 6, 0),
}


def raw(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw(path).splitlines() if line.strip()]


def strings(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    return [str(block["text"]) for block in content or [] if "text" in block]


def spoken(block: dict[str, Any]) -> str:
    if block["type"] in {"tool_use", "toolCall"}:
        return str(block["name"]) + json.dumps(block.get("input", block.get("arguments")))
    return str(block.get("thinking", block.get("text")))


def claude_code_texts(path: Path) -> Texts:
    user: list[str] = []
    model: list[str] = []
    queue: list[str] = []
    for record in lines(path):
        if record["type"] == "queue-operation":
            if record["operation"] == "enqueue":
                queue.append(record.get("content", ""))
            elif queue:
                text = queue.pop(0)
                user += [text] if record["operation"] == "remove" and text else []
        elif record["type"] == "system" and record["subtype"] == "local_command":
            user.append(record["content"])
        elif record["type"] == "assistant":
            model += [spoken(block) for block in record["message"]["content"]]
        elif record["type"] == "user":
            content = record["message"]["content"]
            for block in (
                [{"type": "text", "text": content}] if isinstance(content, str) else content
            ):
                if block["type"] == "tool_result":
                    model += strings(block["content"])
                else:
                    user.append(block["text"])
    return user, model


def pi_texts(path: Path) -> Texts:
    user: list[str] = []
    model: list[str] = []
    for record in lines(path):
        message = record.get("message", {})
        if record["type"] == "compaction":
            user.append(record["summary"])
        elif message.get("role") == "user":
            user += strings(message["content"])
        elif message.get("role") == "bashExecution":
            user.append(message["output"])
        elif message.get("role") == "assistant":
            model += [spoken(block) for block in message["content"]]
        elif message.get("role") == "toolResult":
            model += strings(message["content"])
    return user, model


def dsh_texts(path: Path) -> Texts:
    user: list[str] = []
    model: list[str] = []
    for record in lines(path):
        if record["type"] == "user/message":
            user += strings(record["data"]["content"])
        elif record["type"] in {"assistant/message", "tool/result"}:
            for block in record["data"]["message"]["content"]:
                if block["type"] == "tool-call":
                    model.append(block["name"] + json.dumps(json.loads(block["arguments"])))
                else:
                    model += strings(block["content"]) if "content" in block else [block["text"]]
    return user, model


def codex_texts(path: Path) -> Texts:
    user: list[str] = []
    model: list[str] = []
    for record in lines(path):
        item = record["payload"]
        if record["type"] == "compacted":
            for message in item["replacement_history"]:
                user += strings(message["content"])
        if record["type"] != "response_item" or record.get("metadata", {}).get("compaction_output"):
            continue
        if item["type"] == "message":
            (model if item["role"] == "assistant" else user).extend(strings(item["content"]))
        elif item["type"] == "function_call":
            model.append(item["name"] + json.dumps(json.loads(item["arguments"])))
        elif item["type"] == "function_call_output":
            model += strings(item["output"])
    return user, model


def chat_texts(path: Path) -> Texts:
    user: list[str] = []
    model: list[str] = []
    for message in json.loads(path.read_text("utf-8")):
        if message["role"] != "system":
            (user if message["role"] == "user" else model).extend(strings(message["content"]))
        for call in message.get("tool_calls") or []:
            given = json.loads(call["function"]["arguments"])
            model.append(call["function"]["name"] + json.dumps(given))
    return user, model


EXPECTED = {
    "claude-code": claude_code_texts,
    "pi": pi_texts,
    "dsh": dsh_texts,
    "codex": codex_texts,
    "chat": chat_texts,
}


def session_texts(session: Session) -> Texts:
    user: list[str] = []
    model: list[str] = []
    for event in session.events:
        if isinstance(event, UserMessage):
            user += [block.text for block in event.data.content]  # type: ignore[union-attr]
        elif isinstance(event, AssistantMessage):
            for block in event.data.message.content:
                wire = block.wire()
                if wire["type"] == "tool-call":
                    model.append(wire["name"] + json.dumps(json.loads(wire["arguments"])))
                else:
                    model.append(wire["text"])
        elif isinstance(event, ToolResult) and not event.data.wire().get("synthetic"):
            model += strings([block.wire() for block in event.data.message.block.content])
    return user, model


@pytest.fixture(params=sorted(PATTERNS))
def real(request: pytest.FixtureRequest, log_paths: Paths) -> tuple[str, list[Path]]:
    """A format, and its real logs."""
    pattern, count, _ = PATTERNS[request.param]
    paths = log_paths(pattern)
    assert len(paths) == count
    return request.param, paths


@cache
def imported(path: Path) -> tuple[ImportedLog, Session]:
    log = read_log(path)
    return log, import_session(log)


def test_every_text_is_there_in_order(real: tuple[str, list[Path]]) -> None:
    """What the user and the harness said, and what the model and its tools said, is all there."""
    name, paths = real
    for path in paths:
        _, session = imported(path)
        user, model = EXPECTED[name](path)
        got_user, got_model = session_texts(session)
        assert got_model == model, path
        if name == "pi":  # the command line around the output is the importer's
            got_user = [
                text
                if not text.startswith("Ran `")
                else text.split("```\n", 1)[1].split("\n```")[0]
                for text in got_user
            ]
            user = [text.split("\n```")[0] for text in user]
            got_user = [text.split("\n```")[0] for text in got_user]
        assert Counter(got_user) == Counter(user), path
        moved = sum(1 for a, b in zip(got_user, user, strict=True) if a != b)
        assert moved <= 12, path  # text said while calls were open stands after their results


def test_pairs_hold_after_every_event_and_turns_are_closed(real: tuple[str, list[Path]]) -> None:
    """At no event does a result stand without its call, and at the end no call is open."""
    for path in real[1]:
        log, session = imported(path)
        step = Session(session.header)
        for event in session.events:
            step.adopt(event)
            pairing.open_calls(step)
        assert not pairing.open_calls(step), path
        assert session.open_turn is None, path
        bare = import_session(log, recorded=False)
        assert not pairing.open_calls(bare), path
        assert all(event.type != "compaction/start" for event in bare.events)


def test_recorded_compactions_are_all_found(real: tuple[str, list[Path]]) -> None:
    """As many as the harnesses made, each with its summary in its checkpoint."""
    name, paths = real
    found = [
        item
        for path in paths
        for item in imported(path)[0].items
        if isinstance(item, RecordedCompaction)
    ]
    assert len(found) == PATTERNS[name][2]
    assert all(item.summary in "\n".join(strings(item.content)) for item in found)


def test_two_imports_are_equal_byte_for_byte(real: tuple[str, list[Path]]) -> None:
    """Nothing in a session comes from the clock or from chance."""
    path = real[1][-1]
    first, second = (import_session(read_log(path)) for _ in range(2))
    assert [e.json_text for e in first.events] == [e.json_text for e in second.events]


def test_the_beginning_of_a_log_gives_the_beginning_of_its_events(
    real: tuple[str, list[Path]], tmp_path: Path
) -> None:
    """At cuts anywhere, within lines too, a log still being written gives a prefix."""
    name, paths = real
    if name == "chat":  # a JSON document has no beginning that is one
        return
    for number, path in enumerate(paths, 1):
        data = raw(path)
        _, whole = imported(path)
        texts = [event.json_text for event in whole.events]
        many = len(paths) > 2
        shares = (
            [number * 0.618 % 1, number * 0.414 % 1] if many else [n / 12 for n in range(1, 12)]
        )
        for share in shares:
            part = tmp_path / path.name.removesuffix(".gz")
            part.write_bytes(data[: int(len(data) * share)])
            if b"\n" not in part.read_bytes():
                continue
            begun = import_session(read_log(part, finished=False))
            got = [event.json_text for event in begun.events]
            assert got == texts[: len(got)], (path, share)
            # No more is held back than one open unit: calls, what came meanwhile, a bracket.
            there = part.read_bytes().count(b"\n")
            ready = [
                event
                for event in whole.events
                if event.origin and (event.origin.last_line or event.origin.line or 0) <= there
            ]
            assert len(ready) - len(got) <= 12, (path, share)
