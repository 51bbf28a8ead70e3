from __future__ import annotations

import apsw
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxarchive.knowledge.folding import TOKENIZER, fold, plain, words
from ctxarchive.knowledge.query import Document, parse

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)
CODE = st.text(st.sampled_from("aZ9_ .-/=>+#é京が한😀\u0301\0\ud800"), max_size=60)


def words_of_fts5(text: str) -> list[str]:
    """The words that SQLite's tokenizer takes from a text, in order."""
    database = apsw.Connection(":memory:")
    database.execute(
        f"CREATE VIRTUAL TABLE t USING fts5(a, content='', tokenize='{TOKENIZER}');"
        "CREATE VIRTUAL TABLE v USING fts5vocab('t', 'instance')"
    )
    database.execute("INSERT INTO t(rowid, a) VALUES (1, ?)", (text,))
    return [row[0] for row in database.execute("SELECT term FROM v ORDER BY offset")]


@settings(deadline=None)
@given(text=ANY_TEXT | CODE)
@example(text="ßﬁ İstanbul Ⅷ ½ ǅ ΐ ก็ दिल्ली")
def test_sqlite_takes_the_folded_words_one_for_one(text: str) -> None:
    """Otherwise a scan without the index and the index would disagree about positions."""
    indexed = fold(text).indexed
    assert words_of_fts5(indexed) == words(indexed)


@given(text=ANY_TEXT | CODE)
def test_folding_never_raises_and_gives_the_same_every_time(text: str) -> None:
    assert fold(text) == fold(text)
    plain(text)


def test_identifiers_are_words_whole_and_in_parts() -> None:
    camel, snake = fold("getUserById"), fold("get_user_by_id")
    assert words(camel.body) == ["getuserbyid"]
    assert set(camel.names.split()) == {"get user by id"} or "user" in camel.names.split()
    assert words(snake.body) == ["get", "user", "by", "id"]
    assert "getuserbyid" in snake.names.split()


def test_a_hash_is_one_word() -> None:
    assert words(fold("commit 813227e1144add70").body) == ["commit", "813227e1144add70"]
    assert fold("813227e1144add70").names == ""


def test_scripts_without_spaces_are_parted_into_characters() -> None:
    assert words(fold("東京タワー").body) == list("東京タワー")
    assert words(fold("한국어").body) == list("한국어")


def test_case_width_and_diacritics_do_not_matter() -> None:
    for one, other in [
        ("CAFÉ", "cafe"),
        ("ＡＢＣ", "abc"),
        ("Straße", "strasse"),
        ("Ёлка", "елка"),
    ]:
        assert words(fold(one).body) == words(fold(other).body)


@settings(deadline=None)
@given(text=ANY_TEXT | CODE, data=st.data())
def test_a_term_finds_in_a_scanned_text_what_it_finds_in_the_index(
    text: str, data: st.DataObject
) -> None:
    """What is not indexed yet must be judged by the very same rules."""
    at = data.draw(st.integers(0, len(text)))
    terms = parse(text[at : at + 8]).loose
    folded = fold(text)
    database = apsw.Connection(":memory:")
    database.execute(f"CREATE VIRTUAL TABLE t USING fts5(a, content='', tokenize='{TOKENIZER}')")
    database.execute("INSERT INTO t(rowid, a) VALUES (1, ?)", (folded.indexed,))
    for term in terms:
        found = database.execute("SELECT count(*) FROM t WHERE t MATCH ?", (term.expression(),)).get
        assert bool(found) == bool(term.count(Document(folded)))
