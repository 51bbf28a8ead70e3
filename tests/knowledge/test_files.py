from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Scope, SearchRequest

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

PROGRAM = """
import json, sys
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase

def render(event, head):
    return json.loads(event)["text"]

def record(session, seq, text):
    return Record(session=session, seq=seq, layer="finding", role="tool",
                  event=json.dumps({"text": text}), text=text)

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with SqliteKnowledgeBase.open(path, render=render) as archive:
    for batch in range(count):
        archive.put([record(name, 10 * batch + n, f"word{n} of {name} in {batch}") for n in range(10)])
        print(10 * batch + 9, flush=True)
        archive.index_pending()
"""


def start(path: Path, name: str, batches: int) -> subprocess.Popen[str]:
    """A real process that files ten records a batch and prints the last seq that is committed."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), name, str(batches)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def index_of(path: Path) -> Path:
    return path.with_name("archive.search.db")


def test_both_files_are_for_their_owner_only(
    archive: SqliteKnowledgeBase, path: Path, make: Make
) -> None:
    archive.put([make("s", 0, "x")])
    archive.index_pending()
    files = list(path.parent.iterdir())
    assert {path, index_of(path)} <= set(files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_the_records_are_plain_tables_and_the_migrations_are_written_down(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path) as archive:
        archive.put([make("s", 7, "text")])
        assert archive.stats().schema_version == 4
    script = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]);"
        "print(d.execute('select name from migrations order by rowid').fetchall(),"
        "d.execute('select key & 4294967295, event from records').fetchall(),"
        "d.execute('pragma journal_mode').fetchall(), d.execute('pragma user_version').fetchall())"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == (
        "[('create_tables',), ('add_marks',), ('add_purges',), ('add_checksums',)]"
        """ [(7, '{"text": "text"}')] [('wal',)] [(4,)]"""
    )


def _other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t(a)")
        database.commit()


def _other_wal_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t(a)")
        database.commit()


def _some_text(path: Path) -> None:
    path.write_bytes(b"These are notes, not a database.\n" * 200)


def _few_bytes(path: Path) -> None:
    path.write_bytes(b"x")


@pytest.mark.parametrize("mode", ["rw", "ro"])
@pytest.mark.parametrize(
    "fill", [_other_database, _other_wal_database, _some_text, _few_bytes], ids=lambda f: f.__name__
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_was(
    path: Path, open_archive: Open, fill: Callable[[Path], None], mode: str
) -> None:
    fill(path)
    before = bytes_of(path)
    with pytest.raises(KnowledgeError) as refusal:
        open_archive(path, mode=mode)
    assert refusal.value.code == "foreign"
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert bytes_of(path) == before
    assert not index_of(path).exists()


def test_a_folder_is_refused_and_a_missing_file_or_folder_is_said_so(
    tmp_path: Path, open_archive: Open
) -> None:
    cases: list[tuple[Path, dict[str, Any], str]] = [
        (tmp_path, {}, "foreign"),
        (tmp_path / "a.db", {"mode": "ro"}, "missing"),
        (tmp_path / "a.db", {"create": False}, "missing"),
        (tmp_path / "no" / "a.db", {}, "missing"),
    ]
    for path, options, code in cases:
        with pytest.raises(KnowledgeError) as refusal:
            open_archive(path, **options)
        assert refusal.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_a_later_schema_is_refused_and_left_as_it_was(
    path: Path, open_archive: Open
) -> None:
    open_archive(path).close()
    with closing(apsw.Connection(str(path))) as database:
        database.execute("PRAGMA user_version = 99")
    before = bytes_of(path)
    for mode in ("rw", "ro"):
        with pytest.raises(KnowledgeError, match="schema 99") as refusal:
            open_archive(path, mode=mode)
        assert refusal.value.code == "newer"
    assert bytes_of(path) == before


def test_a_reader_never_writes(path: Path, open_archive: Open, make: Make) -> None:
    with open_archive(path) as archive:
        archive.put([make("s", 0, "some word")])
    with open_archive(path, mode="ro") as archive:
        assert archive.search(SearchRequest(query="word")).hits[0].seq == 0
        for act in (
            lambda: archive.put([make("s", 1, "x")]),
            lambda: archive.register("t"),
            archive.index_pending,
            archive.rebuild,
        ):
            with pytest.raises(KnowledgeError) as refusal:
                act()
            assert refusal.value.code == "read-only"
    assert not index_of(path).exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_cannot_be_written_serves_readers_and_refuses_writers(
    open_archive: Open, make: Make
) -> None:
    """Root may write anywhere, so a process of no rights is asked."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "archive.db"
        with open_archive(path) as archive:
            archive.put([make("s", 0, "some word")])
            archive.index_pending()
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        script = PROGRAM.split("path, name", maxsplit=1)[0] + (
            "import os\n"
            "from ctxarchive.errors import KnowledgeError\n"
            "from ctxarchive.knowledge.store import SearchRequest\n"
            "os.getuid() or os.setuid(65534)\n"
            "with SqliteKnowledgeBase.open(sys.argv[1], render=render, mode='ro') as archive:\n"
            "    print(archive.search(SearchRequest(query='word')).hits[0].seq, archive.verify())\n"
            "try:\n"
            "    SqliteKnowledgeBase.open(sys.argv[1], render=render)\n"
            "except KnowledgeError as error:\n"
            "    print(error.code)\n"
            "try:\n"
            "    SqliteKnowledgeBase.open(sys.argv[1] + '.new', render=render)\n"
            "except KnowledgeError as error:\n"
            "    print(error.code)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
        )
        assert done.stdout.split("\n")[:3] == ["0 []", "read-only", "read-only"], done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_full_disk_undoes_the_put_and_reading_goes_on(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    archive.put([make("s", 0, "kept")])
    pages = archive._connection.value("PRAGMA page_count")
    archive._connection.value(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(KnowledgeError) as refusal:
        archive.put([make("s", seq, "x" * 5000) for seq in range(1, 50)])
    assert refusal.value.code == "full"
    assert [record.seq for record in archive.range(Scope(), 99)] == [0]
    assert archive.verify() == []


def test_waiting_for_another_writer_ends_after_the_stated_time(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path, busy_timeout_ms=50) as archive:
        archive.put([make("s", 0, "x")])
        with closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(KnowledgeError, match="50 ms") as refusal:
                archive.put([make("s", 1, "y")])
            assert refusal.value.code == "locked"
            assert time.monotonic() - began < 2
            assert archive.get("s", 0) is not None
            other.execute("ROLLBACK")
        assert archive.put([make("s", 1, "y")]).added == {"finding": 1}


def test_indexing_in_another_process_does_not_hold_up_filing(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path, busy_timeout_ms=50) as archive:
        archive.put([make("s", 0, "x")])
        archive.index_pending()
        with closing(apsw.Connection(str(index_of(path)))) as other:
            other.execute("BEGIN IMMEDIATE")
            archive.put([make("s", 1, "y word")])
            assert archive.search(SearchRequest(query="word")).hits[0].seq == 1
            with pytest.raises(KnowledgeError) as refusal:
                archive.index_pending()
            assert refusal.value.code == "locked"
            other.execute("ROLLBACK")
        assert archive.index_pending() == 1


def _remove(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 | 1])


def _scribble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:] = bytes((byte * 7 + 3) & 255 for byte in content[100:])
    path.write_bytes(content)


def _replace_by_text(path: Path) -> None:
    path.write_bytes(b"not an index\n" * 1000)


def _replace_by_another(path: Path) -> None:
    path.unlink()
    _other_database(path)


DAMAGES = [_remove, _truncate, _scribble, _replace_by_text, _replace_by_another]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_lost_or_damaged_index_costs_nothing_but_time(
    path: Path, open_archive: Open, make: Make, damage: Callable[[Path], None], mode: str
) -> None:
    texts = {seq: f"word{seq} and a common one" for seq in range(300)}
    with open_archive(path) as archive:
        archive.put([make("s", seq, text) for seq, text in texts.items()])
        archive.index_pending()
    damage(index_of(path))
    with open_archive(path, mode=mode) as archive:
        assert archive.search(SearchRequest(query="word77")).hits[0].seq == 77
        assert len(archive.search(SearchRequest(query="common", limit=9)).hits) == 9
        if mode == "rw":
            archive.index_pending()
            assert archive.verify() == []
            assert archive.stats().unindexed == 0


def test_an_index_of_another_archive_or_time_is_not_trusted(
    tmp_path: Path, open_archive: Open, make: Make
) -> None:
    paths = [tmp_path / "one" / "archive.db", tmp_path / "two" / "archive.db"]
    for path, word in zip(paths, ["first", "second"], strict=True):
        path.parent.mkdir()
        with open_archive(path) as archive:
            archive.put([make("s", 0, f"the {word} word")])
            archive.index_pending()
    shutil.copy(index_of(paths[0]), index_of(paths[1]))
    with open_archive(paths[1]) as archive:
        assert archive.search(SearchRequest(query="second")).hits
        assert not archive.search(SearchRequest(query="first")).hits
    shutil.copytree(paths[0].parent, tmp_path / "backup")
    with open_archive(paths[0]) as archive:
        archive.put([make("s", 1, "later lost")])
        archive.index_pending()
    shutil.copy(tmp_path / "backup" / "archive.db", paths[0])
    with open_archive(paths[0]) as archive:
        archive.put([make("s", 1, "other history")])
        assert archive.search(SearchRequest(query="history")).hits
        assert not archive.search(SearchRequest(query="later")).hits
        archive.index_pending()
        assert archive.verify() == []


def test_verify_names_what_is_wrong(path: Path, open_archive: Open, make: Make) -> None:
    with open_archive(path) as archive:
        archive.put([make("s", seq, f"word{seq} common") for seq in range(6)])
        archive.index_pending()
    first = 1 << 32
    with closing(apsw.Connection(str(path))) as database:
        database.execute("UPDATE records SET event = 'no json' WHERE key = ?", (first,))
        database.execute(
            "UPDATE records SET event = ? WHERE key = ?",
            (json.dumps({"text": "one two three four five"}), first + 1),
        )
        database.execute("DELETE FROM records WHERE key = ?", (first + 2,))
        database.execute("UPDATE tallies SET chars = 1")
    with closing(apsw.Connection(str(index_of(path)))) as database:
        database.execute("DELETE FROM originals WHERE rowid = ?", (first + 3,))
    with open_archive(path) as archive:
        found = {(each.code, each.seq) for each in archive.verify()}
        assert {("json", 0), ("text", 1), ("stale", 1), ("unindexed", 3)} <= found
        assert {("checksum", 0), ("checksum", 1), ("checksum", None)} <= found
        assert {"stray", "tally", "filing"} <= {code for code, _ in found}
        archive.rebuild()
        assert {each.code for each in archive.verify()} == {
            "checksum",
            "json",
            "text",
            "tally",
            "filing",
        }


def test_verify_reports_a_damaged_index_and_damaged_records(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path) as archive:
        archive.put([make("s", seq, f"word{seq} " * 400) for seq in range(100)])
        archive.index_pending()
    whole = bytes_of(path)
    content = bytearray(bytes_of(index_of(path)))
    content[len(content) // 2 : len(content) // 2 + 40_000] = bytes(40_000)
    index_of(path).write_bytes(content)
    with open_archive(path, mode="ro") as archive:
        assert {each.code for each in archive.verify()} & {"index-damaged", "unindexed", "stale"}
    content = bytearray(whole)
    content[len(content) // 2 : len(content) // 2 + 40_000] = bytes(40_000)
    path.write_bytes(content)
    with open_archive(path, mode="ro") as archive:
        assert "records-damaged" in {each.code for each in archive.verify()}


def test_an_index_replaced_by_another_process_is_noticed(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path) as first, open_archive(path) as second:
        first.put([make("s", 0, "one word")])
        first.index_pending()
        assert first.search(SearchRequest(query="word")).hits
        assert second.search(SearchRequest(query="word")).hits
        second.rebuild()
        first.put([make("s", 1, "another word")])
        assert len(first.search(SearchRequest(query="word")).hits) == 2
        assert first.index_pending() == 1
        assert second.index_pending() == 0
        assert first.stats().unindexed == second.stats().unindexed == 0
        assert len(second.search(SearchRequest(query="word")).hits) == 2
        assert first.verify() == second.verify() == []


def test_two_processes_filing_at_once_lose_nothing(path: Path, open_archive: Open) -> None:
    running = [start(path, name, 20) for name in ("left", "right", "same")]
    for process in running:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    with open_archive(path) as archive:
        assert [info.records for info in archive.sessions()] == [{"finding": 200}] * 3
        assert archive.stats().unindexed == 0
        assert archive.verify() == []
        assert archive.search(SearchRequest(query='"word3 of left in 17"')).hits[0].seq == 173


def test_a_writer_killed_at_any_moment_loses_nothing_it_was_told_is_kept(
    path: Path, open_archive: Open
) -> None:
    for round_, patience in enumerate([0.0, 0.003, 0.01, 0.02, 0.05]):
        process = start(path, f"s{round_}", 10_000)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(patience)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        last = int((first + rest).split()[-1]) if (first + rest).endswith("\n") else int(first)
        with open_archive(path) as archive:
            seqs = list(archive.archived(f"s{round_}"))
            assert seqs == list(range(len(seqs)))
            assert len(seqs) % 10 == 0
            assert len(seqs) > last
            assert archive.verify() == []
            archive.index_pending()
            assert archive.verify() == []


def test_threads_may_file_index_and_search_one_archive_at_once(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    failures: list[BaseException] = []

    def work(act: Callable[[int], object]) -> Iterator[threading.Thread]:
        def run() -> None:
            try:
                for number in range(40):
                    act(number)
            except BaseException as error:  # noqa: BLE001 - told to the test below
                failures.append(error)

        yield threading.Thread(target=run)

    threads = [
        *work(lambda n: archive.put([make("a", n, f"word{n} here")])),
        *work(lambda n: archive.put([make("b", n, f"word{n} there")])),
        *work(lambda _: archive.index_pending()),
        *work(lambda _: archive.search(SearchRequest(query="here"))),
        *work(lambda n: archive.rebuild() if n % 10 == 0 else archive.stats()),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    archive.index_pending()
    assert archive.verify() == []
    assert archive.stats().records == 80


def test_closing_twice_is_no_error_and_afterwards_nothing_works(
    path: Path, open_archive: Open
) -> None:
    archive = open_archive(path)
    archive.close()
    archive.close()
    with pytest.raises(KnowledgeError, match="closed"):
        archive.get("s", 0)


def test_a_name_that_means_something_in_a_uri_is_only_a_name(
    tmp_path: Path, open_archive: Open, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path stays the file it was when the working folder changes."""
    name = "50% a#b?mode=ro&日本.db"
    monkeypatch.chdir(tmp_path)
    with open_archive(name) as archive:
        monkeypatch.chdir("/")
        archive.put([make("s", 0, "some word")])
        assert archive.index_pending() == 1
        assert archive.search(SearchRequest(query="word")).hits
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name[:-3]}.search.db"}
