"""A folder of sessions: opening, reopening after a crash, and what is mended, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.errors import SessionError
from ctxarchive.session.events import ToolResult
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.session.repair import NOT_STARTED, STARTED, close_open, interrupted
from ctxarchive.session.store import SessionStore
from ctxarchive.testing.sessions import assistant, closed_conversation, derived_texts, result, user
from ctxarchive.testing.validity import request_faults


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    """A store in a folder that is not there yet."""
    return SessionStore(tmp_path / "sessions")


def write(store: SessionStore, session_id: str = "s", *, turns: int = 1) -> None:
    with store.create(session_id) as opened:
        closed_conversation(turns, session=opened.session)
        anyio.run(opened.session.flush)


def crashed(session: Session) -> None:
    """An open turn whose second step has three calls: answered, begun, and not begun."""
    session.append("turn/start", {"turn": 1})
    user(session, "go")
    session.append("step/start", {"turn": 1, "step": 1})
    assistant(session, "thinking")
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 2})
    assistant(session, "", ("a", "bash", "{}"), ("b", "edit", "{}"), ("c", "read", "{}"))
    for call_id, name in (("a", "bash"), ("b", "edit")):
        place = {"turn": 1, "step": 2, "callId": call_id, "name": name, "arguments": "{}"}
        session.append("tool/call", place)
    result(session, "a", "fine")


def answers(session: Session) -> dict[str, str]:
    return {
        event.data.message.block.tool_call_id: joined_text(event.data.message.block.content)
        for event in session.events
        if isinstance(event, ToolResult)
    }


def test_a_session_is_found_again_as_it_was_written(store: SessionStore) -> None:
    with store.create("s", title="a title", cwd="/repo") as opened:
        closed_conversation(session=opened.session)
        written = list(opened.session.events)
    assert store.ids() == ["s"]
    with store.open("s") as again:
        assert list(again.session.events)[:-1] == written
        assert again.session.header.title == "a title"
        assert not again.closed.anything
        assert again.torn_line is None
    assert store.path("s").read_text(encoding="utf-8").count("\n") == len(written) + 2


def test_reopening_an_untouched_session_adds_nothing(store: SessionStore) -> None:
    write(store)
    for _ in range(2):
        with store.open("s"):
            pass
        once = store.path("s").read_bytes()
    with store.open("s") as opened:
        assert opened.session.events[-1].type == "session/end-seed"
    assert store.path("s").read_bytes() == once
    assert once.count(b"session/end-seed") == 1


def test_an_empty_session_is_reopened_empty(store: SessionStore) -> None:
    with store.create("s"):
        pass
    with store.open("s") as opened:
        assert len(opened.session) == 0


def test_unanswered_calls_step_and_turn_are_closed_once_as_interrupted(
    store: SessionStore,
) -> None:
    with store.create("s") as opened:
        crashed(opened.session)
    with store.open("s") as opened:
        assert opened.closed.calls == ("b", "c")
        assert (opened.closed.step, opened.closed.turn) == (2, 1)
        session = opened.session
        assert answers(session) == {
            "a": "fine",
            "b": f"edit: {STARTED}",
            "c": f"read: {NOT_STARTED}",
        }
        assert [event.type for event in session.events[-5:]] == [
            "tool/result",
            "tool/result",
            "step/end",
            "turn/end",
            "session/end-seed",
        ]
        assert session.events[-2].data.reason == {"kind": "interrupted"}
        assert request_faults(session.derive_messages()) == []
    once = store.path("s").read_bytes()
    with store.open("s") as opened:
        assert not opened.closed.anything
    assert store.path("s").read_bytes() == once


@given(st.integers(min_value=0, max_value=11))
def test_a_crash_between_any_two_events_leaves_a_session_that_is_mended(kept: int) -> None:
    whole = Session.create("s")
    crashed(whole)
    session = Session.create("s")
    for event in whole.events[:kept]:
        session.adopt(event)
    close_open(session, reason={"kind": "interrupted"}, answer=interrupted)
    assert request_faults(session.derive_messages()) == []
    assert session.open_turn is None
    steps = [event.type for event in session.events if event.type.startswith("step/")]
    assert steps.count("step/start") == steps.count("step/end")
    assert not close_open(session, reason={"kind": "interrupted"}, answer=interrupted).anything


def test_a_crash_in_the_middle_of_a_repair_is_mended_by_the_next(store: SessionStore) -> None:
    with store.create("s") as opened:
        crashed(opened.session)
    with store.open("s"):
        pass
    path = store.path("s")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))  # only the two answers had come to disk
    with store.open("s") as opened:
        assert opened.closed.calls == ()
        assert (opened.closed.step, opened.closed.turn) == (2, 1)
    assert len(path.read_bytes().splitlines()) == len(lines)


def test_a_bracket_that_a_crash_left_open_is_stale_after_the_repair(store: SessionStore) -> None:
    with store.create("s") as opened:
        crashed(opened.session)
        opened.session.append("compaction/start", {"compactionId": "c", "turn": 1})
    with store.open("s") as opened:
        assert check_compactions(opened.session.events) == []
        opened.session.append("compaction/start", {"compactionId": "d", "turn": None})
        opened.session.append(
            "compaction/end", {"compactionId": "d", "turn": None, "error": "none"}
        )
        assert check_compactions(opened.session.events) == []


def test_a_torn_last_line_is_cut_and_reported(store: SessionStore) -> None:
    write(store)
    path = store.path("s")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":99,"ty')
    with store.open("s") as opened:
        assert opened.torn_line == whole.count(b"\n") + 1
    assert path.read_bytes().startswith(whole)
    assert b'{"seq":99' not in path.read_bytes()


def test_damage_before_the_last_line_is_an_error_that_names_it_and_frees_the_lock(
    store: SessionStore,
) -> None:
    write(store)
    path = store.path("s")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"garbage\n"
    path.write_bytes(b"".join(lines))
    for _ in range(2):
        with pytest.raises(SessionError, match="line 3") as caught, store.open("s"):
            pass
        assert caught.value.code == "corrupt"


def test_a_second_writer_is_refused_and_readers_are_not(store: SessionStore) -> None:
    write(store)
    with store.open("s"):
        with pytest.raises(SessionError) as caught, store.open("s"):
            pass
        assert caught.value.code == "locked"
        assert len(store.read("s").events) > 0
        code = (
            "import sys; from pathlib import Path\n"
            "from ctxarchive.session.store import SessionStore\n"
            "from ctxarchive.errors import SessionError\n"
            "try:\n"
            "    with SessionStore(Path(sys.argv[1])).open('s'): pass\n"
            "except SessionError as error: print(error.code)\n"
        )
        other = subprocess.run(
            [sys.executable, "-c", code, str(store.folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout == "locked\n"
    with store.open("s"):
        pass


def test_a_session_is_created_once_and_an_absent_one_is_not_opened(store: SessionStore) -> None:
    write(store)
    with pytest.raises(SessionError, match="already is such a session"), store.create("s"):
        pass
    with pytest.raises(SessionError, match="no such session"), store.open("other"):
        pass
    assert store.ids() == ["s"]


@pytest.mark.parametrize(
    "session_id", ["a/b", "..", ".hidden", "a b", "100%", 'q"uote', "日本", "C:\\x", "a\nb", "%2F"]
)
def test_any_id_has_a_file_of_its_own_inside_the_folder(
    store: SessionStore, session_id: str
) -> None:
    write(store, session_id)
    assert store.path(session_id).parent == store.folder
    assert store.ids() == [session_id]
    with store.open(session_id) as opened:
        assert opened.session.id == session_id


def test_a_session_without_a_name_gets_a_fresh_one(store: SessionStore) -> None:
    with store.create() as first, store.create() as second:
        assert first.session.id != second.session.id


def test_a_fork_begins_with_its_parent_and_remembers_where(store: SessionStore) -> None:
    write(store, "parent", turns=2)
    parent = store.read("parent")
    with store.fork("parent", "child") as opened:
        session = opened.session
        assert session.header.parent == "parent"
        assert session.header.inherited_seq == len(parent.events) - 1
        assert derived_texts(session) == derived_texts(parent.replay())
        assert session.events[-1].type == "session/end-seed"
    assert store.read("child").events[:-1] == parent.events
    with store.open("child") as again:
        assert again.session.header.parent == "parent"
