"""The sink: durable flushes, failed writes, killed writers, one writer at a time."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from ctxarchive.errors import SessionError
from ctxarchive.session.jsonl import JsonlSink, read_session
from ctxarchive.session.log import Session, SessionHeader


def _user(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}


def _say(session: Session, text: str) -> None:
    session.append("user/message", _user(text), surface_op="append")


def _open(path: Path) -> tuple[Session, JsonlSink]:
    session = Session(SessionHeader(id="s"))
    sink = JsonlSink(path, session.header)
    session.attach(sink)
    return session, sink


def _texts(path: Path) -> list[str]:
    return [event.data.content[0].text for event in read_session(path).events]


WRITER = """
import anyio, pathlib, sys
from ctxarchive.session.jsonl import JsonlSink
from ctxarchive.session.log import Session, SessionHeader

async def main():
    session = Session(SessionHeader(id="s"))
    session.attach(JsonlSink(pathlib.Path(sys.argv[1]), session.header))
    for count in range(int(sys.argv[2])):
        content = [{"type": "text", "text": str(count)}]
        session.append("user/message", {"content": content}, surface_op="append")
        await session.flush()
    session.append("user/message", {"content": []}, surface_op="append")
    print("flushed", flush=True)
    sys.stdin.read()

anyio.run(main)
"""


@contextmanager
def _other_writer(path: Path, flushes: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that has flushed so many events, has one more in hand, and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(flushes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "flushed\n"
            yield process
        finally:
            process.kill()


def test_what_was_flushed_survives_a_killed_writer(tmp_path: Path) -> None:
    """SIGKILL after a flush loses nothing of it, and the file reopens for the next writer."""
    path = tmp_path / "s.jsonl"
    with _other_writer(path, 20) as process:
        process.kill()
    stored = read_session(path)
    assert _texts(path) == [str(count) for count in range(20)]
    assert stored.torn_line is None
    JsonlSink(path, stored.header).close()


def test_a_session_is_on_disk_from_the_moment_it_has_a_file(tmp_path: Path) -> None:
    """A writer killed before its first flush leaves a session of no events, not half a header."""
    path = tmp_path / "s.jsonl"
    with _other_writer(path, 0) as process:
        assert read_session(path).header.id == "s"
        process.kill()
    assert read_session(path).events == ()


def test_the_second_writer_is_told_that_the_file_is_locked(tmp_path: Path) -> None:
    """Another process that writes keeps everyone else out; readers read; its death lets go."""
    path = tmp_path / "s.jsonl"
    with _other_writer(path, 3):
        for _ in range(2):
            with pytest.raises(SessionError, match=r"s\.jsonl: another writer") as caught:
                JsonlSink(path, SessionHeader(id="s"))
            assert caught.value.code == "locked"
        assert _texts(path) == ["0", "1", "2"]
    JsonlSink(path, SessionHeader(id="s")).close()


def test_a_second_writer_in_one_process_is_locked_out_too(tmp_path: Path) -> None:
    """The lock belongs to the sink, not to the process."""
    _, sink = _open(tmp_path / "s.jsonl")
    with pytest.raises(SessionError) as caught:
        _open(tmp_path / "s.jsonl")
    assert caught.value.code == "locked"
    sink.close()
    _open(tmp_path / "s.jsonl")[1].close()


def test_a_sink_may_be_closed_in_another_thread(tmp_path: Path) -> None:
    """A host that closes its files in a worker thread releases the lock all the same."""
    _, sink = _open(tmp_path / "s.jsonl")
    thread = Thread(target=sink.close)
    thread.start()
    thread.join()
    _open(tmp_path / "s.jsonl")[1].close()


def test_a_damaged_file_is_not_left_locked(tmp_path: Path) -> None:
    """A sink that cannot open its file holds no lock on it."""
    path = tmp_path / "s.jsonl"
    path.write_text("damaged\n")
    for _ in range(2):
        with pytest.raises(SessionError) as caught:
            _open(path)
        assert caught.value.code == "corrupt"


@contextmanager
def _files_end_at(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes: the kernel refuses the rest, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("room", "size"), [(1, 4_000), (5_000, 4_000), (60_000, 4_000), (1, 20), (700, 20)]
)
def test_a_failed_write_keeps_what_was_pending_and_duplicates_nothing(
    tmp_path: Path, room: int, size: int
) -> None:
    """After a full disk the next flush writes every event once, in order, whole."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)
    _say(session, "before")
    anyio.run(session.flush)
    for count in range(20):
        _say(session, f"{count} " + "x" * size)
    with _files_end_at(path.stat().st_size + room):
        for _ in range(2):
            with pytest.raises(SessionError, match=str(path)) as caught:
                anyio.run(session.flush)
            assert caught.value.code == "storage"
    assert _texts(path)[0] == "before"
    _say(session, "after")
    anyio.run(session.flush)
    anyio.run(session.flush)
    sink.close()
    stored = read_session(path)
    assert stored.torn_line is None
    assert list(stored.events) == list(session.events)


def test_what_a_failed_write_left_on_disk_reopens(tmp_path: Path) -> None:
    """If the process ends after a failed write, the file holds whole events and at most a torn one."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)
    for count in range(20):
        _say(session, f"{count} " + "x" * 4_000)
    with _files_end_at(30_000), pytest.raises(SessionError):
        sink.close()
    stored = read_session(path)
    assert list(stored.events) == list(session.events)[: len(stored.events)]
    JsonlSink(path, stored.header).close()
    assert read_session(path).torn_line is None


def test_flushes_at_once_write_every_event_once(tmp_path: Path) -> None:
    """Two tasks that flush together do not both write what is pending."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)

    async def run() -> None:
        for count in range(20):
            for part in range(50):
                _say(session, f"{count}.{part} " + "y" * 200)
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(session.flush)

    anyio.run(run)
    sink.close()
    assert list(read_session(path).events) == list(session.events)


def test_a_cancelled_flush_is_finished_first(tmp_path: Path) -> None:
    """Cancellation waits for the disk: the events are there when it is felt."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)
    _say(session, "said")

    async def run() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.flush()

    anyio.run(run)
    assert _texts(path) == ["said"]
    sink.close()


def test_closing_writes_what_was_not_flushed(tmp_path: Path) -> None:
    """A closed sink owes nothing."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)
    _say(session, "said")
    sink.close()
    assert _texts(path) == ["said"]


def test_a_reopened_session_goes_on_in_its_file(tmp_path: Path) -> None:
    """A later writer appends behind the events of the earlier one."""
    path = tmp_path / "s.jsonl"
    session, sink = _open(path)
    _say(session, "one")
    sink.close()
    stored = read_session(path)
    again = stored.replay()
    sink = JsonlSink(path, stored.header)
    again.attach(sink)
    _say(again, "two")
    sink.close()
    assert _texts(path) == ["one", "two"]


def test_a_place_that_is_no_folder_is_a_storage_error(tmp_path: Path) -> None:
    """The path is named."""
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match=str(tmp_path)) as caught:
        _open(tmp_path / "file" / "s.jsonl")
    assert caught.value.code == "storage"
