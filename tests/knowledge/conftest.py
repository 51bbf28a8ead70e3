"""Real archives in a temporary folder, and records whose text is what their JSON says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase

Make = Callable[..., Record]


def render(event: str, head: str) -> str:
    """The simplest renderer: the head, a newline, and the JSON's text."""
    text: str = json.loads(event)["text"]
    return f"{head}\n{text}" if head else text


def make_record(session: str, seq: int, text: str, *, head: str = "", **fields: Any) -> Record:
    """A record of a tool's result that says ``text``."""
    event = json.dumps({"text": text})
    given = {"layer": "finding", "role": "tool", **fields}
    return Record(
        session=session, seq=seq, head=head, event=event, text=render(event, head), **given
    )


@pytest.fixture(scope="session")
def make() -> Make:
    """Makes records."""
    return make_record


@pytest.fixture(scope="session")
def open_archive() -> Callable[..., SqliteKnowledgeBase]:
    """Opens an archive with the renderer of these records."""

    def opened(path: Path, **options: Any) -> SqliteKnowledgeBase:
        return SqliteKnowledgeBase.open(path, render=render, **options)

    return opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where an archive may be."""
    return tmp_path / "archive.db"


@pytest.fixture
def archive(path: Path) -> Iterator[SqliteKnowledgeBase]:
    """An empty archive."""
    with SqliteKnowledgeBase.open(path, render=render) as opened:
        yield opened
