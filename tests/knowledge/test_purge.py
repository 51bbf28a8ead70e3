from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.sqlite.wording import Wording
from ctxarchive.knowledge.store import Scope, SearchRequest, Selection

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

HIDDEN = 'Zebra-Ünïq "kéy" 77\nsecondLineQuagga'
WORDS = ("zebra", "Ünïq", "unïq", "quagga", "secondline", "kéy")
"""What a file must not hold of it, in whatever case."""


def files(path: Path) -> dict[str, bytes]:
    """Every file of the archive: the records, the index, and their logs."""
    return {each.name: each.read_bytes() for each in path.parent.glob(f"{path.stem}.*")}


def left(path: Path, *words: str) -> set[tuple[str, str]]:
    """Which words are in which files, as UTF-8 or as JSON escapes them."""
    found = set()
    for name, content in files(path).items():
        for word in words:
            for spelt in (word, word.lower(), json.dumps(word)[1:-1]):
                if spelt.encode() in content:
                    found.add((name, spelt))
    return found


def filled(archive: SqliteKnowledgeBase, make: Make) -> None:
    """Two sessions of 300 records, of which seq 7 of ``a`` and seq 9 of ``b`` hold the secret."""
    for session, place in (("a", 7), ("b", 9)):
        archive.register(session, title=f"title of {session}")
        archive.put(
            [
                make(
                    session,
                    seq,
                    f"{HIDDEN if seq == place else 'plain'} word{seq} common",
                    head=f"grep {HIDDEN.splitlines()[0]}" if seq == place else "",
                    name="Quagga" if seq == place else "grep",
                    images=("Zebra/png, 5 bytes",) if seq == place else (),
                    time=1_000 * seq,
                )
                for seq in range(300)
            ]
        )


@pytest.mark.parametrize(
    "selection",
    [
        Selection(text=HIDDEN),
        Selection(text="secondLineQuagga"),
        Selection(sessions=("a", "b"), first_seq=5, last_seq=20),
        Selection(sessions=("a", "b")),
        Selection(before_time=10_000),
    ],
    ids=["text", "part", "seqs", "sessions", "age"],
)
@pytest.mark.parametrize("indexed", ["indexed", "not indexed"])
def test_no_byte_of_a_purged_record_is_left_in_any_file(
    path: Path, open_archive: Open, make: Make, selection: Selection, indexed: str
) -> None:
    """Neither in the records nor in the index or their logs, while the archive is still open."""
    with open_archive(path) as archive:
        filled(archive, make)
        if indexed == "indexed":
            archive.index_pending()
            assert {name for name, _ in left(path, *WORDS)} >= {
                "archive.db-wal",
                "archive.search.db-wal",
            }
        result = archive.purge(selection)
        assert result.scrubbed
        assert left(path, *WORDS) == set()
        assert archive.verify() == []
        assert not archive.search(SearchRequest(query="quagga")).hits
        archive.index_pending()
        assert archive.verify() == []
        assert left(path, *WORDS) == set()
        for session, seq in (("a", 7), ("b", 9)):
            with pytest.raises(KnowledgeError, match=f"seq {seq}: was purged on") as refusal:
                archive.get(session, seq)
            assert refusal.value.code == "purged"
            assert archive.purged(session)[seq].reason == selection.reason
    assert left(path, *WORDS) == set()


def test_what_is_not_chosen_stays_and_is_found(
    archive: SqliteKnowledgeBase, path: Path, make: Make
) -> None:
    filled(archive, make)
    archive.index_pending()
    result = archive.purge(Selection(sessions=("a",), first_seq=5, last_seq=8))
    (only,) = result.sessions
    assert (only.session, only.records, only.first_seq, only.last_seq) == ("a", 4, 5, 8)
    assert result.records == 4
    assert archive.stats().records == 596
    assert archive.search(SearchRequest(query="word9")).hits[0].seq == 9
    assert [record.seq for record in archive.range(Scope(), 6)] == [0, 1, 2, 3, 4, 9]
    assert left(path, "zebra") != set()
    info = {each.session: each for each in archive.sessions()}
    assert (info["a"].purged, info["a"].title, info["b"].purged) == (4, "title of a", 0)
    assert archive.missing("a", [4, 5, 6, 300]) == [300]


def test_filing_the_same_again_does_not_bring_it_back(
    path: Path, open_archive: Open, make: Make
) -> None:
    """Nor does other content under the same key: nobody can tell the two apart any more."""
    with open_archive(path) as archive:
        filled(archive, make)
        archive.purge(Selection(text="Quagga"))
        filled_again = [
            make("a", 7, HIDDEN),
            make("a", 8, "plain word8 common", head="", name="grep"),
        ]
        done = archive.put(
            [filled_again[0], make("a", 300, "new"), make("a", 299, "x", time=1)][:2]
        )
        assert (done.added, done.already, done.purged) == ({"finding": 1}, 0, 1)
        archive.register("b", title="b again")
        archive.index_pending()
        assert archive.verify() == []
        assert left(path, "zebra", "quagga") == set()


def test_a_session_purged_as_a_whole_keeps_its_id_alone(
    archive: SqliteKnowledgeBase, path: Path, make: Make
) -> None:
    archive.register("a", title="Zebra talk", meta={"cwd": "/home/quagga"})
    archive.put([make("a", 1, "x")])
    result = archive.purge(Selection(sessions=("a",)))
    assert result.titles == ("a",)
    archive.register("a", title="Zebra talk", meta={"cwd": "/home/quagga"})
    (info,) = archive.sessions()
    assert (info.title, info.meta, info.records, info.purged) == (None, {}, {}, 1)
    assert left(path, "Zebra", "quagga") == set()


def test_a_title_that_holds_the_text_goes_and_an_id_that_does_is_named(
    archive: SqliteKnowledgeBase, path: Path, make: Make
) -> None:
    archive.register("quagga-1", title="About a quagga", meta={"x": ["a quagga"]})
    archive.put([make("quagga-1", 1, "plain")])
    result = archive.purge(Selection(text="quagga"))
    assert (result.records, result.titles, result.ids) == (0, ("quagga-1",), ("quagga-1",))
    assert archive.get("quagga-1", 1) is not None
    assert archive.sessions()[0].title is None
    assert b"About" not in path.read_bytes()


def test_a_dry_run_says_the_same_and_changes_nothing(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path) as archive:
        filled(archive, make)
        archive.index_pending()
    before = files(path)
    with open_archive(path, mode="ro") as archive:
        told = archive.purge(Selection(text=HIDDEN), dry_run=True)
        with pytest.raises(KnowledgeError) as refusal:
            archive.purge(Selection(text=HIDDEN))
        assert refusal.value.code == "read-only"
    assert {name: content for name, content in files(path).items() if name in before} == before
    with open_archive(path) as archive:
        assert archive.purge(Selection(text=HIDDEN)).sessions == told.sessions
        assert archive.purge(Selection(text=HIDDEN)).records == 0


@pytest.mark.parametrize(
    ("selection", "code"),
    [
        (Selection(), "scope"),
        (Selection(first_seq=1), "scope"),
        (Selection(text=" "), "scope"),
        (Selection(sessions=("nobody",)), "missing"),
    ],
)
def test_a_purge_that_chooses_nothing_in_particular_is_refused(
    archive: SqliteKnowledgeBase, make: Make, selection: Selection, code: str
) -> None:
    archive.put([make("a", 1, "x")])
    with pytest.raises(KnowledgeError) as refusal:
        archive.purge(selection)
    assert refusal.value.code == code
    assert archive.stats().records == 1


def test_records_without_a_time_are_as_old_as_their_session(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    """By its newest time; a session without any is as old as it is here."""
    archive.put([make("a", 1, "x", time=50), make("a", 2, "y"), make("a", 3, "z", time=100)])
    archive.put([make("b", 1, "x")])
    now = time.time_ns() // 1_000_000
    assert archive.purge(Selection(before_time=100), dry_run=True).records == 1
    assert archive.purge(Selection(before_time=101), dry_run=True).records == 3
    assert archive.purge(Selection(before_time=now + 10_000), dry_run=True).records == 4


def test_a_fork_loses_what_it_inherited_and_nothing_else(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    """What it filed of it already, and what it would file of it later; and theirs who fork from it."""
    archive.put([make("a", seq, f"word{seq}") for seq in range(10)])
    archive.register("fork", parent="a", inherited_seq=4)
    archive.register("fork of fork", parent="fork", inherited_seq=2)
    archive.put([make("fork", seq, f"word{seq}") for seq in (2, 3, 5)])
    archive.mark("fork", 3, "pinned")
    archive.mark("a", 8, "pinned")
    archive.purge(Selection(sessions=("a",), first_seq=1, last_seq=6))
    assert list(archive.archived("a")) == [0, 7, 8, 9]
    assert list(archive.archived("fork")) == [5]
    assert list(archive.purged("fork")) == [1, 2, 3, 4]
    assert list(archive.purged("fork of fork")) == [1, 2]
    assert archive.put([make("fork", seq, f"word{seq}") for seq in range(1, 8)]).purged == 4
    assert archive.put([make("fork of fork", 2, "again")]).purged == 1
    assert list(archive.marks("fork")) == []
    assert list(archive.marks("a")) == [8]
    with pytest.raises(KnowledgeError) as refusal:
        archive.mark("fork", 4, "pinned")
    assert refusal.value.code == "purged"
    assert archive.verify() == []


def test_what_a_fork_purges_its_parent_keeps(archive: SqliteKnowledgeBase, make: Make) -> None:
    archive.put([make("a", seq, f"word{seq}") for seq in range(4)])
    archive.register("fork", parent="a", inherited_seq=2)
    archive.put([make("fork", seq, f"word{seq}") for seq in range(4)])
    archive.purge(Selection(sessions=("fork",)))
    assert len(archive.archived("a")) == 4
    assert archive.purged("a") == {}
    assert archive.verify() == []


def test_a_purge_broken_off_is_told_and_finished(
    path: Path, open_archive: Open, make: Make
) -> None:
    """After the records went and before the files were written anew."""
    script = (
        "import os, sys\n"
        "from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase\n"
        "from ctxarchive.knowledge.sqlite.purge import Purging\n"
        "from ctxarchive.knowledge.store import Selection\n"
        "Purging.scrub = lambda self: os._exit(9)\n"
        "a = SqliteKnowledgeBase.open(sys.argv[1], render=lambda event, head: event)\n"
        "a.purge(Selection(text='secondLineQuagga'))\n"
    )
    with open_archive(path) as archive:
        filled(archive, make)
        archive.index_pending()
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 9
    with open_archive(path) as archive:
        assert {each.code for each in archive.verify()} == {"purge", "stray"}
        assert left(path, "quagga") != set()
        assert archive.optimize()
        assert archive.verify() == []
        assert left(path, *WORDS) == set()


def test_bytes_that_another_process_still_reads_are_told_and_go_later(
    path: Path, open_archive: Open, make: Make
) -> None:
    with open_archive(path, busy_timeout_ms=100) as archive:
        filled(archive, make)
        archive.index_pending()
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM records").fetchall()
            result = archive.purge(Selection(text=HIDDEN))
            assert not result.scrubbed
            assert [each.code for each in archive.verify()] == ["purge"]
            reader.execute("ROLLBACK")
        assert archive.purge(Selection(text=HIDDEN)).scrubbed
        assert archive.verify() == []
        assert left(path, *WORDS) == set()


def test_a_change_of_the_same_length_is_seen(path: Path, open_archive: Open, make: Make) -> None:
    """In every column of a record."""
    fields = {"name": "grep", "time": 5, "images": ("image/png, 3 bytes",), "head": "grep x"}
    with open_archive(path) as archive:
        archive.put([make("s", seq, f"number 1{seq}", **fields) for seq in range(9)])
        archive.index_pending()
    changes = (
        "event = replace(event, 'number 1', 'number 2')",
        "head = 'grep y'",
        "name = 'gert'",
        "time = 6",
        "layer = 'narrative'",
        "kind = 'injected'",
        "images = replace(images, '3', '4')",
        "role = 'user'",
    )
    with closing(sqlite3.connect(path)) as database:
        for seq, change in enumerate(changes):
            database.execute(f"UPDATE records SET {change} WHERE key = {(1 << 32) + seq}")  # noqa: S608
        database.commit()
    with open_archive(path, mode="ro") as archive:
        found = {each.seq for each in archive.verify() if each.code == "checksum"}
    assert found == set(range(len(changes)))


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(st.characters(), min_size=1, max_size=12),
    depth=st.integers(0, 3),
    plain=st.booleans(),
)
def test_a_text_is_found_however_json_spells_it(text: str, depth: int, plain: bool) -> None:  # noqa: FBT001
    """Inside of JSON inside of JSON, escaped or not."""
    value: object = {"a": [f"before {text} behind"]}
    for _ in range(depth):
        value = {"arguments": json.dumps(value, ensure_ascii=plain)}
    assert Wording(text).is_in_json(json.dumps(value, ensure_ascii=not plain))


def test_an_unusual_spelling_in_json_is_no_hiding_place() -> None:
    r"""As ``\u0041`` for a plain letter, which no writer of ours makes."""
    assert Wording("Quagga").is_in_json('{"a": "\\u0051uagga"}')
    assert Wording("Quagga").is_in_json(json.dumps({"a": '{"b": "\\u0051uagga"}'}))
    assert not Wording("Quagga").is_in_json('{"a": "Quaggo"}')
