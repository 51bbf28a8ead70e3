"""A compacting agent killed with SIGKILL at its writes: what is left is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from ctxarchive.agent.loop import Agent
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.session.jsonl import read_session
from ctxarchive.session.store import SessionStore
from ctxarchive.testing.models import ScriptedModel
from ctxarchive.testing.validity import request_faults

CHILD = Path(__file__).with_name("crash_child.py")


def run_child(folder: Path, *points: int) -> None:
    subprocess.run([sys.executable, str(CHILD), str(folder), *map(str, points)], check=True)


def check_survivor(folder: Path) -> None:
    """What a process that died in ``folder`` left, against what it had been told is durable."""
    store = SessionStore(folder)
    path = store.path("s")
    if not path.exists():
        return  # it died before there was a session
    acknowledged = folder / "acknowledged"
    if acknowledged.exists():
        assert path.read_bytes().startswith(acknowledged.read_bytes())
    with store.open("s") as opened:
        session = opened.session
        assert check_compactions(session.events) == []
        assert request_faults(session.derive_messages()) == []
        assert session.open_turn is None
        with SqliteKnowledgeBase.open(folder / "archive.db", render=render) as knowledge:
            assert list(knowledge.verify()) == []
            for seq in knowledge.archived("s"):
                record = knowledge.get("s", seq)
                assert record is not None
                assert record.event == session.event_at(seq).json_text
            anyio.run(go_on, session, knowledge)
            assert list(knowledge.verify()) == []
    stored = read_session(path).replay()
    assert check_compactions(stored.events) == []
    assert request_faults(stored.derive_messages()) == []


async def go_on(session: object, knowledge: SqliteKnowledgeBase) -> None:
    """Two more turns, and a compaction that files all that is there."""
    from crash_child import OPTIONS, engine  # type: ignore[import-not-found]

    from ctxarchive.session.log import Session

    assert isinstance(session, Session)
    compaction = engine(knowledge)
    async with Agent(session, ScriptedModel(), compaction=compaction, options=OPTIONS) as agent:
        agent.followup("And now the rest of it, in some more words. " * 20)
        agent.followup("Thank you.")
        await agent.when_idle()
        assert await compaction.compact_now(agent) is not None
    assert session.last("archive/failed") is None


def survive(folder: Path, count: int | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """Kill at ``count`` points spread over all, or at every one; returns how many."""
    monkeypatch.syspath_prepend(str(CHILD.parent))
    run_child(folder, 0)
    total = int((folder / "0" / "passed").read_text())
    log = SessionStore(folder / "0").path("s").read_bytes()
    assert log.count(b'"type":"compaction/summary"') >= 3
    points = range(1, total + 1)
    if count is not None:
        points = points[:: total // (count + 2)]
    run_child(folder, *points)
    # Concurrent flushes share a write now and then: the last points may not come.
    killed = [point for point in points if not (folder / str(point) / "passed").exists()]
    for point in killed:
        try:
            check_survivor(folder / str(point))
        except BaseException as error:
            error.add_note(f"killed at point {point} of {total}")
            raise
    return len(killed)


def test_a_kill_at_twenty_points_loses_nothing_that_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert survive(tmp_path, 20, monkeypatch) >= 20


@pytest.mark.slow
def test_a_kill_between_any_two_writes_loses_nothing_that_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert survive(tmp_path, None, monkeypatch) >= 200
