"""Marks: what a person pinned or superseded, kept beside the records and inherited by forks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import MARK_NAMES, MarkName, Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

RELEASED = """
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1668577377;
CREATE TABLE migrations(name TEXT PRIMARY KEY, applied INTEGER NOT NULL);
CREATE TABLE archive(id TEXT NOT NULL);
INSERT INTO archive VALUES ('00112233445566778899aabbccddeeff');
CREATE TABLE sessions(ordinal INTEGER PRIMARY KEY AUTOINCREMENT, id NOT NULL UNIQUE, title, parent,
    inherited_seq INTEGER, meta TEXT NOT NULL DEFAULT '{}', opened INTEGER NOT NULL);
CREATE TABLE records(key INTEGER PRIMARY KEY, filing INTEGER NOT NULL, layer TEXT NOT NULL,
    kind TEXT NOT NULL, role TEXT NOT NULL, time INTEGER, chars INTEGER NOT NULL, name,
    images TEXT, head NOT NULL, event NOT NULL);
CREATE TABLE tallies(session INTEGER NOT NULL, layer TEXT NOT NULL, records INTEGER NOT NULL,
    chars INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    first_time INTEGER, last_time INTEGER, PRIMARY KEY (session, layer)) WITHOUT ROWID;
CREATE TABLE filings(number INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL,
    first_key INTEGER NOT NULL, last_key INTEGER NOT NULL, records INTEGER NOT NULL);
INSERT INTO migrations VALUES ('create_tables', 1700000000000);
INSERT INTO sessions(id, opened) VALUES ('s', 1700000000000);
INSERT INTO records VALUES (4294967299, 1, 'constraint', 'original', 'user', NULL, 8, NULL, NULL,
    '', '{"text": "Use tabs"}');
INSERT INTO tallies VALUES (1, 'constraint', 1, 8, 3, 3, NULL, NULL);
INSERT INTO filings(token, first_key, last_key, records) VALUES (7, 4294967299, 4294967299, 1);
PRAGMA user_version = 1;
"""
"""An archive as version 1 of the schema made it, with one record. Never changed."""


def told(archive: SqliteKnowledgeBase, session: str = "s") -> dict[int, str]:
    """The marks in force, in words."""
    return {seq: mark.told() for seq, mark in archive.marks(session).items()}


@pytest.fixture
def filed(archive: SqliteKnowledgeBase, make: Make) -> SqliteKnowledgeBase:
    """An archive that holds a few records of a session."""
    archive.put([make("s", seq, f"text {seq}") for seq in range(30)])
    return archive


def test_a_mark_stands_until_it_is_replaced_or_taken_away(
    filed: SqliteKnowledgeBase, path: Path, open_archive: Open
) -> None:
    """And says what was in force before; another process sees it at once."""
    before = filed.get("s", 3)
    assert filed.mark("s", 3, "pinned") is None
    assert filed.mark("s", 5, "superseded", by_seq=20) is None
    with open_archive(path, mode="ro") as reader:
        assert told(reader) == {3: "pinned", 5: "superseded by seq 20"}
        assert reader.marks("s")[3].at > 1_700_000_000_000
    replaced = filed.mark("s", 3, "superseded")
    assert replaced is not None
    assert replaced.told() == "pinned"
    assert told(filed) == {3: "superseded", 5: "superseded by seq 20"}
    filed.mark("s", 5, None)
    assert told(filed) == {3: "superseded"}
    assert filed.mark("s", 5, None) is None
    assert filed.get("s", 3) == before, "a mark changes no record"
    assert filed.verify() == []


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*MARK_NAMES, None])), max_size=20)
)
def test_the_newest_word_holds(
    steps: list[tuple[int, MarkName | None]],
    tmp_path_factory: pytest.TempPathFactory,
    open_archive: Open,
) -> None:
    """Whatever was marked and unmarked before."""
    model: dict[int, MarkName] = {}
    with open_archive(tmp_path_factory.mktemp("marks") / "a.db") as archive:
        archive.register("s")
        for seq, name in steps:
            before = archive.mark("s", seq, name)
            assert (before.name if before else None) == model.pop(seq, None)
            if name:
                model[seq] = name
        assert {seq: mark.name for seq, mark in archive.marks("s").items()} == model
        assert list(archive.marks("s")) == sorted(model)


def test_a_mark_may_come_before_its_record(archive: SqliteKnowledgeBase) -> None:
    """What stands in view is not filed yet, and a person may pin it there."""
    archive.register("s")
    archive.mark("s", 7, "pinned")
    assert told(archive) == {7: "pinned"}
    assert archive.get("s", 7) is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (("nobody", 1, "pinned", None), "missing"),
        (("s", -1, "pinned", None), "mark"),
        (("s", 1 << 32, "superseded", None), "mark"),
        (("s", 1, "superseded", 1 << 32), "mark"),
        (("s", 1, "superseded", 1), "mark"),
        (("s", 1, "pinned", 2), "mark"),
        (("s", 1, None, 2), "mark"),
    ],
)
def test_what_cannot_be_marked_so_is_refused(
    filed: SqliteKnowledgeBase,
    asked: tuple[str, int, MarkName | None, int | None],
    code: str,
) -> None:
    """In one line that names the session and the seq; nothing is marked."""
    session, seq, name, by_seq = asked
    with pytest.raises(KnowledgeError, match=f"session/{session}, seq {seq}: ") as refusal:
        filed.mark(session, seq, name, by_seq=by_seq)
    assert refusal.value.code == code
    assert told(filed) == {}


def test_a_fork_has_the_marks_of_what_it_inherited(filed: SqliteKnowledgeBase, make: Make) -> None:
    """Its own word comes first, and holds for it and its forks alone."""
    filed.register("fork", parent="s", inherited_seq=10)
    filed.register("leaf", parent="fork", inherited_seq=20)
    filed.put([make("fork", 15, "own")])
    for seq in (2, 4, 12):
        filed.mark("s", seq, "pinned")
    filed.mark("s", 6, "superseded", by_seq=9)
    filed.mark("s", 7, "superseded", by_seq=25)
    assert told(filed, "fork") == {2: "pinned", 4: "pinned", 6: "superseded by seq 9"}, (
        "seq 7 was superseded by what the fork has never seen, seq 12 is no part of it"
    )
    before = filed.mark("fork", 4, None)
    assert before is not None
    assert before.session == "s"
    filed.mark("fork", 15, "pinned")
    filed.mark("leaf", 2, "superseded")
    assert told(filed, "fork") == {2: "pinned", 6: "superseded by seq 9", 15: "pinned"}
    assert told(filed, "leaf") == {2: "superseded", 6: "superseded by seq 9", 15: "pinned"}
    assert set(told(filed)) == {2, 4, 6, 7, 12}
    assert told(filed, "nobody") == {}


def test_sessions_that_name_each_other_as_parents_end_the_search(
    archive: SqliteKnowledgeBase,
) -> None:
    """Ancestry is what the hosts say; a ring is no reason to search for ever."""
    archive.register("a", parent="b", inherited_seq=5)
    archive.register("b", parent="a", inherited_seq=5)
    archive.mark("b", 1, "pinned")
    assert told(archive, "a") == {1: "pinned"}


def test_an_archive_of_the_released_schema_takes_marks_once_it_was_opened_for_writing(
    path: Path, open_archive: Open
) -> None:
    """By a migration that is written down; a reader of the old file is told what to do."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(RELEASED)
    with pytest.raises(KnowledgeError, match="open it for writing once") as refusal:
        open_archive(path, mode="ro")
    assert refusal.value.code == "read-only"
    with open_archive(path) as archive:
        assert archive.stats().schema_version == 4
        record = archive.get("s", 3)
        assert record is not None
        assert record.text == "Use tabs"
        assert told(archive) == {}
        archive.mark("s", 3, "pinned")
        assert archive.verify() == []
    with open_archive(path, mode="ro") as archive:
        assert told(archive) == {3: "pinned"}
        with pytest.raises(KnowledgeError, match="opened for reading only"):
            archive.mark("s", 3, None)
    with closing(sqlite3.connect(path)) as database:
        done = database.execute("SELECT name FROM migrations ORDER BY rowid").fetchall()
        assert done[:2] == [("create_tables",), ("add_marks",)]
