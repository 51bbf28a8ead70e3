"""What the importers' tests share: writing small logs, and looking at what came of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.session.events import Event
from ctxarchive.session.log import Session

Records = Sequence[dict[str, Any]]
WriteLog = Callable[..., Path]


@pytest.fixture
def write_log(tmp_path: Path) -> WriteLog:
    """Writes records as JSON lines and gives the file."""

    def write(records: Records, name: str = "log.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return path

    return write


@pytest.fixture
def live(write_log: WriteLog) -> Callable[..., Session]:
    """Writes records, reads them as a log and lives them into a session."""

    def run(records: Records, *, recorded: bool = True, **options: bool) -> Session:
        return import_session(read_log(write_log(records), **options), recorded=recorded)

    return run


@pytest.fixture
def said() -> Callable[[Session], list[tuple[str, str]]]:
    """Role and first text, call name or result text of what the model sees."""

    def one(event: Event) -> tuple[str, str]:
        message = event.message
        assert message is not None
        block = message.content[0].wire()
        inner = block["content"][0] if block.get("content") else block
        return message.role, inner.get("text") or inner.get("name") or inner["type"]

    return lambda session: [one(session.event_at(seq)) for seq in session.surface]
