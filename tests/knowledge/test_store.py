from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import KINDS, LAYERS, Record, SourceRef
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import LayerInfo, Scope

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=80)
SESSION = st.sampled_from(["a", "b/'c' \"d\"", "日本", "\0", "\ud800", ""]) | ANY_TEXT
Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record of any shape; its text is what the tests' renderer makes of it."""
    text, head = draw(ANY_TEXT), draw(ANY_TEXT)
    return Record(
        session=draw(SESSION),
        seq=draw(st.integers(0, 3) | st.integers(0, (1 << 32) - 1)),
        layer=draw(st.sampled_from(LAYERS)),
        kind=draw(st.sampled_from(KINDS)),
        role=draw(st.sampled_from(["user", "assistant", "tool"])),
        name=draw(st.none() | ANY_TEXT),
        time=draw(st.none() | st.integers(0, 1 << 45)),
        head=head,
        event=json.dumps({"text": text}, ensure_ascii=draw(st.booleans()) or not _clean(text)),
        text=f"{head}\n{text}" if head else text,
        images=tuple(draw(st.lists(ANY_TEXT, max_size=2))),
    )


def _clean(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def one_each(given: list[Record]) -> dict[tuple[str, int], Record]:
    """The first record under each key."""
    kept: dict[tuple[str, int], Record] = {}
    for record in given:
        kept.setdefault((record.session, record.seq), record)
    return kept


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(records(), max_size=6), max_size=4), indexed=st.booleans())
def test_whatever_is_put_is_got_back_equal(
    batches: list[list[Record]],
    indexed: bool,  # noqa: FBT001
    tmp_path_factory: pytest.TempPathFactory,
    open_archive: Open,
) -> None:
    path = tmp_path_factory.mktemp("archive") / "a.db"
    kept = one_each([record for batch in batches for record in batch])
    with open_archive(path) as archive:
        for batch in batches:
            mine = [kept[record.session, record.seq] for record in batch]
            before = archive.stats().records
            done = archive.put(mine)
            assert sum(done.added.values()) + done.already == len(mine)
            assert archive.stats().records == before + sum(done.added.values())
            if indexed:
                archive.index_pending()
    with open_archive(path, mode="ro") as archive:
        for (session, seq), record in kept.items():
            assert archive.get(session, seq) == record
        assert sorted(archive.range(Scope(), 1000), key=repr) == sorted(kept.values(), key=repr)
        for info in archive.sessions():
            seqs = sorted(seq for session, seq in kept if session == info.session)
            assert (info.first_seq, info.last_seq) == (seqs[0], seqs[-1])
            assert list(archive.archived(info.session)) == seqs
            assert sum(info.records.values()) == len(seqs)
        assert archive.verify() == []


def test_filing_again_counts_as_already_and_writes_nothing(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    first = [make("s", seq, f"text {seq}") for seq in range(3)]
    assert archive.put(first).added == {"finding": 3}
    again = archive.put([*first, make("s", 9, "new", layer="narrative")])
    assert (again.added, again.already) == ({"narrative": 1}, 3)
    assert archive.put([]).already == 0


@pytest.mark.parametrize(
    "change",
    [
        {"event": '{"text": "other"}', "text": "other"},
        {"head": "other call", "text": "other call\nas it was"},
    ],
)
def test_a_conflict_leaves_nothing_of_its_put_behind(
    archive: SqliteKnowledgeBase, make: Make, change: dict[str, Any]
) -> None:
    archive.put([make("s", 5, "as it was")])
    with pytest.raises(KnowledgeError) as refusal:
        archive.put([make("s", 4, "before"), replace(make("s", 5, "as it was"), **change)])
    assert refusal.value.code == "conflict"
    assert "seq 5" in str(refusal.value)
    assert archive.get("s", 4) is None
    assert archive.range(Scope(), 10) == (make("s", 5, "as it was"),)
    with pytest.raises(KnowledgeError, match="filed with other content"):
        archive.put([make("new", 1, "one"), make("new", 1, "other")])
    assert [info.session for info in archive.sessions()] == ["s"]
    assert archive.verify() == []


@pytest.mark.parametrize(
    "change",
    [{"layer": "narrative"}, {"name": "grep"}, {"images": ("image/png, 3 bytes",)}],
)
def test_what_other_rules_derive_from_equal_content_is_no_conflict(
    archive: SqliteKnowledgeBase, make: Make, change: dict[str, Any]
) -> None:
    """A later version may place a message in another layer; what was filed first stands."""
    archive.put([make("s", 5, "as it was")])
    again = archive.put([replace(make("s", 5, "as it was"), **change)])
    assert (again.added, again.already) == ({}, 1)
    assert archive.get("s", 5) == make("s", 5, "as it was")


def test_a_session_filled_out_of_order_and_interleaved_is_whole(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    for seq in (7, 0, 3, 1, 9):
        archive.put([make("a", seq, f"a {seq}"), make("b", 9 - seq, f"b {seq}")])
        archive.index_pending()
    assert archive.missing("a", [0, 1, 2, 3, -1, 1 << 40, 2]) == [2, -1, 1 << 40, 2]
    assert archive.missing("nobody", [4, 5]) == [4, 5]
    assert list(archive.archived("a")) == [0, 1, 3, 7, 9]
    assert archive.layers("a") == {
        "finding": LayerInfo(records=5, first_seq=0, last_seq=9, chars=15)
    }
    found = archive.range(Scope(sources=(SourceRef(session="a"),), after_seq=0, before_seq=9), 2)
    assert [record.seq for record in found] == [1, 3]
    assert archive.verify() == []


def test_a_registered_session_keeps_its_ancestry(archive: SqliteKnowledgeBase, make: Make) -> None:
    archive.register("child", parent="parent", inherited_seq=41, meta={"cwd": "x"})
    archive.register("child", title="A title", meta={"model": "m"})
    archive.put([make("other", 0, "x", time=5), make("child", 42, "y", time=9)])
    child, other = archive.sessions()
    assert (child.session, child.parent, child.inherited_seq) == ("child", "parent", 41)
    assert (child.title, child.meta) == ("A title", {"cwd": "x", "model": "m"})
    assert (child.first_time, child.last_time, other.first_time) == (9, 9, 5)
    with pytest.raises(KnowledgeError, match="another parent") as refusal:
        archive.register("child", parent="stranger")
    assert refusal.value.code == "conflict"


@pytest.mark.parametrize("seq", [-1, 1 << 32])
def test_a_seq_outside_its_range_never_reaches_another_session(
    archive: SqliteKnowledgeBase, make: Make, seq: int
) -> None:
    archive.put([make("a", 0, "x"), make("b", 0, "y")])
    assert archive.get("a", seq) is None
    assert archive.missing("a", [seq]) == [seq]
    with pytest.raises(KnowledgeError):
        archive.put([make("a", seq, "z")])


def test_a_record_that_cannot_be_rendered_is_reported_and_hides_nothing(
    path: Path, make: Make, open_archive: Open
) -> None:
    broken = replace(make("s", 1, "x"), event='{"other": "brokenword"}')
    with open_archive(path) as archive:
        archive.put([make("s", 0, "fine"), broken])
        archive.index_pending()
        with pytest.raises(KnowledgeError, match="seq 1: cannot be rendered") as refusal:
            archive.get("s", 1)
        assert refusal.value.code == "corrupt"
        assert [(each.code, each.seq) for each in archive.verify()] == [("text", 1)]


@pytest.mark.parametrize("then", ["gone", "replaced"])
def test_an_archive_that_was_removed_meanwhile_takes_nothing(
    tmp_path: Path, open_archive: Callable[..., SqliteKnowledgeBase], make: Make, then: str
) -> None:
    """What would be written to a file without a name is refused, not lost."""
    path = tmp_path / "a.db"
    with open_archive(path) as archive:
        archive.put([make("s", 1, "one")])
        path.unlink()
        if then == "replaced":
            path.write_bytes(b"")
        with pytest.raises(KnowledgeError, match="removed or replaced") as refusal:
            archive.put([make("s", 2, "two")])
        assert refusal.value.code == "missing"
