"""Searching by meaning beside words, with a small model of our own: letters for meaning."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.knowledge.query import parse
from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.semantic import (
    MOST_PASSAGES,
    PASSAGE,
    Nearness,
    SemanticModel,
    fuse,
    literal,
    passages,
    windows,
)
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.sqlite.connection import Connection
from ctxarchive.knowledge.sqlite.vectors import vectors_path
from ctxarchive.knowledge.store import Scope, SearchAnswer, SearchRequest

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

TOPICS = (("car", "automobile", "vehicle"), ("cat", "feline", "kitten"), ("rain", "storm"))


class Topics(SemanticModel):
    """A vector says how often a text names each of three topics, by whichever word."""

    def __init__(self, name: str = "topics") -> None:
        self.name = name
        self.embedded = 0

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Three bytes a text."""
        self.embedded += len(texts)
        return [
            bytes(min(255, sum(text.lower().count(word) for word in words)) for words in TOPICS)
            for text in texts
        ]

    def nearness(self, query: bytes, stored: Sequence[bytes]) -> list[Nearness]:
        """By the cosine."""
        found = []
        for data in stored:
            cosines = [_cosine(query, data[at : at + 3]) for at in range(0, len(data), 3)]
            best = max(range(len(cosines)), key=cosines.__getitem__)
            found.append(Nearness(cosines[best], best))
        return found


def _cosine(left: bytes, right: bytes) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    return dot / ((math.hypot(*left) * math.hypot(*right)) or 1.0)


def ask(archive: SqliteKnowledgeBase, query: str, **scope: Any) -> SearchAnswer:
    return archive.search(SearchRequest(query=query, scope=Scope(**scope)))


def seqs(answer: SearchAnswer) -> list[int]:
    return [hit.seq for hit in answer.hits]


def test_a_question_in_other_words_is_answered(path: Path, make: Make, open_archive: Open) -> None:
    """No word of it occurs in the record; without a model nothing is found."""
    records = [make("s", 0, "the vehicle broke down"), make("s", 1, "a kitten slept")]
    with open_archive(path) as archive:
        archive.put(records)
        assert ask(archive, "my automobile stopped").tier == "none"
    with open_archive(path, semantic=Topics()) as archive:
        answer = ask(archive, "my automobile stopped")
    assert (answer.tier, seqs(answer)) == ("semantic", [0])
    assert answer.tried[-1] == "meaning: the newest 2 records of the scope"


def test_a_question_near_nothing_is_answered_by_words_alone(
    path: Path, make: Make, open_archive: Open
) -> None:
    """What is not near enough is no result."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, "the vehicle broke down")])
        assert ask(archive, "unrelated zebra").tier == "none"
        assert ask(archive, "broke down").tier == "strict"


@pytest.mark.parametrize("query", ["automobile", '"automobile" car', ""])
def test_a_query_for_letters_as_they_are_is_left_to_the_words(
    path: Path, make: Make, open_archive: Open, query: str
) -> None:
    """One chunk, anything quoted, or nothing: no vector is even made."""
    model = Topics()
    with open_archive(path, semantic=model) as archive:
        archive.put([make("s", 0, "the vehicle broke down")])
        assert ask(archive, query).tier == "none"
    assert model.embedded == 0
    assert not vectors_path(path).exists()
    assert literal(parse(query))


def test_an_answer_shows_the_piece_of_a_long_record_that_is_nearest(
    path: Path, make: Make, open_archive: Open
) -> None:
    """Its offset lies in the second passage, where the topic is met."""
    text = f"{'x ' * PASSAGE}then a kitten slept"
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, text)])
        (hit,) = ask(archive, "some feline animal").hits
    assert hit.offset >= PASSAGE
    assert "kitten" in hit.snippet


def test_a_scope_bounds_what_is_found_and_what_is_made(
    path: Path, make: Make, open_archive: Open
) -> None:
    """Layers, seqs, times and sessions; vectors only of the sessions that were asked for."""
    model = Topics()
    with open_archive(path, semantic=model) as archive:
        archive.put([make("s", seq, "a vehicle", time=seq * 1_000) for seq in range(4)])
        archive.put([make("s", 9, "a vehicle", layer="narrative"), make("other", 0, "a vehicle")])
        here = (SourceRef(session="s"),)
        query = "my automobile stopped"
        assert seqs(ask(archive, query, sources=here, after_seq=1, before_seq=4)) == [3, 2]
        assert seqs(ask(archive, query, sources=here, after_time=2_000)) == [3]
        layer = (SourceRef(session="s", layer="narrative"),)
        assert seqs(ask(archive, query, sources=layer)) == [9]
        assert seqs(ask(archive, query, sources=())) == []
        assert model.embedded < 5 + 4 * 8
        assert len(ask(archive, query).hits) == 5


def test_a_checkpoint_is_never_found_by_meaning(path: Path, make: Make, open_archive: Open) -> None:
    """It names every topic of what it replaced, and would stand above all of it."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, "a vehicle"), make("s", 1, "vehicle", kind="checkpoint")])
        assert seqs(ask(archive, "my automobile stopped")) == [0]


def test_vectors_are_made_once_and_for_what_is_new(
    path: Path, make: Make, open_archive: Open
) -> None:
    """A second search makes those of the query alone; a later record gets its own."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", seq, f"kitten {seq}") for seq in range(450)])
        ask(archive, "some feline animal")
    model = Topics()
    with open_archive(path, semantic=model) as archive:
        ask(archive, "unrelated zebra here")
        assert model.embedded == 1
        archive.put([make("s", 900, "a vehicle")])
        assert seqs(ask(archive, "my automobile stopped")) == [900]
        assert model.embedded == 1 + 1 + 1 + 1  # two queries, the record, its one window


@pytest.mark.parametrize("how", ["garbage", "another model", "another archive", "removed"])
def test_vectors_that_are_not_to_be_trusted_are_made_anew(
    path: Path, make: Make, open_archive: Open, how: str
) -> None:
    """Damaged, of another model, of another archive, or gone: the answer is the same."""
    records = [make("s", 0, "the vehicle broke down"), make("s", 1, "a kitten slept")]
    with open_archive(path, semantic=Topics("old")) as archive:
        archive.put(records)
        ask(archive, "my automobile stopped")
    vectors = vectors_path(path)
    if how == "garbage":
        vectors.write_bytes(b"garbage " * 1_000)
    elif how == "removed":
        vectors.unlink()
    elif how == "another archive":
        path.unlink()
        with open_archive(path) as archive:
            archive.put([make("s", 1, "the vehicle broke down"), make("s", 0, "a kitten slept")])
    model = Topics("new" if how == "another model" else "old")
    with open_archive(path, semantic=model) as archive:
        expected = [1] if how == "another archive" else [0]
        assert seqs(ask(archive, "my automobile stopped")) == expected
    assert model.embedded > 2


def test_a_reader_makes_what_it_lacks_for_itself_and_writes_nothing(
    path: Path, make: Make, open_archive: Open
) -> None:
    """With and without vectors that were kept before."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, "the vehicle broke down")])
    with open_archive(path, mode="ro", semantic=Topics()) as archive:
        assert seqs(ask(archive, "my automobile stopped")) == [0]
    assert not vectors_path(path).exists()
    with open_archive(path, semantic=Topics()) as archive:
        ask(archive, "my automobile stopped")
        archive.put([make("s", 1, "a car")])
    kept = vectors_path(path).read_bytes()
    model = Topics()
    with open_archive(path, mode="ro", semantic=model) as archive:
        assert seqs(ask(archive, "my automobile stopped")) == [1, 0]
    assert vectors_path(path).read_bytes() == kept
    assert model.embedded == 1 + 1 + 2  # the query, the new record, a window each of two hits


def test_a_record_that_is_gone_loses_its_vector(path: Path, make: Make, open_archive: Open) -> None:
    """At the next search in its session, and is not found meanwhile."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, "the vehicle broke down"), make("s", 1, "one more car")])
        assert len(ask(archive, "my automobile stopped").hits) == 2
        records = archive._connection
        records.all("DELETE FROM records WHERE key & 1 = 0")
        with open_archive(path, mode="ro", semantic=Topics()) as reader:
            assert seqs(ask(reader, "my automobile stopped")) == [1]
        records.all("UPDATE tallies SET records = 1")
        assert seqs(ask(archive, "my automobile stopped")) == [1]
        assert [key & 1 for key, _ in _kept(path)] == [1]


def _kept(path: Path) -> list[tuple[int, bytes]]:
    connection = Connection(vectors_path(path), mode="ro", busy_timeout_ms=100)
    rows = [(row[0], row[1]) for row in connection.all("SELECT key, data FROM vectors")]
    connection.close()
    return rows


def test_the_vectors_are_for_their_owner_only(path: Path, make: Make, open_archive: Open) -> None:
    """They tell of the records."""
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", 0, "the vehicle broke down")])
        ask(archive, "my automobile stopped")
    assert vectors_path(path).stat().st_mode & 0o777 == 0o600


def test_several_threads_may_ask_at_once(path: Path, make: Make, open_archive: Open) -> None:
    """All find the same, and the vectors are those of one."""
    found: list[list[int]] = []
    with open_archive(path, semantic=Topics()) as archive:
        archive.put([make("s", seq, "kitten" if seq else "vehicle") for seq in range(300)])
        threads = [
            threading.Thread(
                target=lambda: found.append(seqs(ask(archive, "my automobile stopped")))
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [[0]] * 4


@given(st.text(max_size=5_000))
def test_passages_are_the_text_and_windows_are_the_passage(text: str) -> None:
    """Nothing between them is lost, up to the bound."""
    pieces = passages(text)
    assert "".join(pieces) == text
    for place, piece in enumerate(pieces):
        assert "".join(windows(text, place)) == piece


def test_of_a_very_long_record_the_beginning_is_found_by_meaning() -> None:
    """The number of vectors of a record is bounded."""
    assert len(passages("x" * PASSAGE * (MOST_PASSAGES + 5))) == MOST_PASSAGES


def test_fusion_scores_by_places() -> None:
    """1 / (60 + place) for each order; what both orders have is first."""
    scores = fuse([[1, 2, 3], [4, 2]])
    assert list(scores) == [2, 1, 4, 3]
    assert scores[2] == pytest.approx(1 / 62 + 1 / 62)
    assert scores[1] == scores[4] == pytest.approx(1 / 61)
